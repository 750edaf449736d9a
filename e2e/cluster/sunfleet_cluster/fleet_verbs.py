"""The verbs that put the fleet onto a cluster: the engine's environment, sample models, images, installation."""

import argparse
import shutil
from pathlib import Path
from typing import get_args

from sunfleet_api.settings import read
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.commands import follow
from sunfleet_cluster.engine_env import Device, EngineEnvironment
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.images.builders import Builder, pick_builder
from sunfleet_cluster.images.catalog import Image, images, on_request
from sunfleet_cluster.images.network import build_secrets
from sunfleet_cluster.images.pipeline import Workshop, forget_replaced, prepare, remove_leftovers
from sunfleet_cluster.images.records import read_refs, record_refs, recorded
from sunfleet_cluster.images.rootfs import ensure_base
from sunfleet_cluster.images.settings import Engine, HostNetwork, ImageSettings
from sunfleet_cluster.install.fleet import Fleet
from sunfleet_cluster.install.overlay import NEEDED
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder
from sunfleet_cluster.uv import export_requirements, find_uv
from sunfleet_cluster.verbs import Verbs, add_verb

ROOT = Path(__file__).resolve().parents[3]
ENGINE_ROOM = 30 << 30  # bytes


def register(verbs: Verbs) -> None:
    """Add the verbs to the command line."""
    environment = add_verb(verbs, "engine-env", _engine_env, "make the engine's Python environment, or finish it")
    environment.add_argument("--device", choices=get_args(Device), default="cpu", help="what the engine computes on")
    add_verb(verbs, "models", _models, "make the sample models")
    build = add_verb(verbs, "images", _images, "build what changed and load it into the cluster")
    build.add_argument("names", nargs="*", metavar="NAME", help="only these images: operator, router, ...")
    build.add_argument("--build-only", action="store_true", help="leave the cluster alone")
    add_verb(verbs, "install", _install, "apply CRDs, operator and router with the images built last, and wait")
    add_verb(verbs, "uninstall", _uninstall, "delete the fleet's resources, then operator and router, then the CRDs")


def _engine_env(arguments: argparse.Namespace, progress: Progress) -> int:
    state = StateFolder.from_env()
    with exclusive(state.root / "engine.lock", progress):
        EngineEnvironment(state, ROOT, arguments.device).ensure(progress)
    return 0


def _models(arguments: argparse.Namespace, progress: Progress) -> int:
    """The tuner makes them, in the engine's environment: this room must not import it."""
    del arguments
    state = StateFolder.from_env()
    python = EngineEnvironment(state, ROOT).python
    if not python.exists():
        raise ClusterError("the engine's environment is missing: run `make engine-env`")
    adapters = str(ROOT / "manifests" / "samples" / "adapters")
    command = [str(python), "-m", "sunfleet_tuner.samples", "models", "--to", str(state.models), "--adapters", adapters]
    path = f"{ROOT / 'crds'}:{ROOT / 'worker_images' / 'tuner'}"
    with exclusive(state.root / "models.lock", progress), progress.step("sample models") as step:
        follow(command, step.heard, variables={"PYTHONPATH": path})
    return 0


def _images(arguments: argparse.Namespace, progress: Progress) -> int:
    state, cluster, builder = StateFolder.from_env(), open_cluster(), pick_builder()
    settings, uv = read(ImageSettings), find_uv(state)
    engine = worker_engine(settings, cluster)
    chosen = _chosen(arguments.names, engine)
    if engine is not Engine.MOUNTED and any(image.name == "worker" for image in chosen):
        _require_room(state)
    with exclusive(state.root / "images.lock", progress), build_secrets(read(HostNetwork)) as secrets:
        remove_leftovers(state, (*images(engine), *on_request()))
        workshop = Workshop(
            root=ROOT,
            state=state,
            builder=builder,
            base=_base(settings, builder, engine, state, progress),
            requirements=lambda extra: export_requirements(uv, ROOT, (extra,)),
            secrets=secrets,
            progress=progress,
        )
        if arguments.build_only:
            prepare(workshop, chosen, None)
        else:
            before, refs = read_refs(state), prepare(workshop, chosen, cluster)
            record_refs(state, refs)
            forget_replaced(builder, before, refs, progress)
    return 0


def _require_room(state: StateFolder) -> None:
    """The engine lies in the builder's store, in the archive and in the cluster at once."""
    state.root.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(state.root).free) < ENGINE_ROOM:
        raise ClusterError(
            f"a worker image with its engine needs {ENGINE_ROOM >> 30} GiB of free disk, and {state.root} "
            f"has {free >> 30}: free some, or name the other images"
        )


def worker_engine(settings: ImageSettings, cluster: Cluster) -> Engine:
    """The worker's flavour: pods of a cluster on this machine can mount its environment, others cannot."""
    if settings.worker_engine is not Engine.AUTO:
        return settings.worker_engine
    return Engine.CPU if cluster.flavour == "external" else Engine.MOUNTED


def _chosen(names: list[str], engine: Engine) -> list[Image]:
    usual = images(engine)
    known = {image.name: image for image in (*usual, *on_request())}
    if unknown := sorted(set(names) - set(known)):
        raise ClusterError(f"no image is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [image for name, image in known.items() if name in names] if names else list(usual)


def _base(settings: ImageSettings, builder: Builder, engine: Engine, state: StateFolder, progress: Progress) -> str:
    """The base image's name; empty leaves it to the Dockerfiles. A mounted engine is made for our own base's Python."""
    if settings.base_image or (builder.pulls and engine is not Engine.MOUNTED):
        return settings.base_image
    return ensure_base(builder, state.images, settings.debian_mirror, progress)


def _install(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    state, cluster = StateFolder.from_env(), open_cluster()
    _require_answer(cluster, state)
    lacking = [ref for name in NEEDED if not cluster.has_image(ref := recorded(state, name))]
    if lacking:
        raise ClusterError(f"the cluster lacks {', '.join(lacking)}: run `make images` (docs/install.md for your own)")
    _fleet(progress).install()
    return 0


def _uninstall(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    _require_answer(open_cluster(), StateFolder.from_env())
    _fleet(progress).uninstall()
    return 0


def _require_answer(cluster: Cluster, state: StateFolder) -> None:
    try:
        Kubectl.of(cluster, state)("get", "--raw=/readyz", "--request-timeout=10s", timeout=30.0)
    except ClusterError as error:
        raise ClusterError(
            f"the {cluster.flavour} cluster does not answer; `make cluster-up` starts it, `make cluster-status` shows "
            f"what is wrong with it\n{error}"
        ) from error


def _fleet(progress: Progress) -> Fleet:
    state = StateFolder.from_env()
    return Fleet(ROOT, state, Kubectl.of(open_cluster(), state), progress)
