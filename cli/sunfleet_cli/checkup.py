"""What ``doctor`` looks at, as data, and what it says of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS
from sunfleet_cli.fleet import condition

Json = Mapping[str, Any]
GPU: Final = "nvidia.com/gpu"
LEAST_KUBERNETES: Final = (1, 29)  # rules in CRDs, sidecars


@dataclass(frozen=True)
class Facts:
    """What was read; ``None`` is what could not be, and why stands in ``refused`` by the same name."""

    version: str | None = None
    crds: Mapping[str, Json] | None = None  # by name
    nodes: Sequence[Json] | None = None
    deployments: Sequence[Json] | None = None  # of the system's namespace
    objects: Sequence[Json] | None = None  # decoders, prefill pools and tasks
    command: str = ""  # version of this command
    allowed: Mapping[str, bool] = field(default_factory=dict)  # what the caller may do, in words
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what mends it."""

    check: str
    verdict: Literal["ok", "warning", "failed"]
    message: str

    def data(self) -> dict[str, str]:
        return asdict(self)


def findings(facts: Facts) -> list[Finding]:
    """In the order in which one thing needs the other."""
    if facts.version is None:
        return [Finding("API server", "failed", facts.refused.get("version", "it does not answer"))]
    return [
        _server(facts.version),
        *_crds(facts),
        *_programs(facts),
        _gpus(facts),
        *_objects(facts),
        *(Finding(f"may {what}", "ok" if may else "warning", "" if may else "your account may not") for what, may
          in facts.allowed.items()),
    ]  # fmt: skip


def _server(version: str) -> Finding:
    """A version of another form than v1.34.4 is shown as it is."""
    found, least = re.match(r"v?(\d+)\.(\d+)", version), "{}.{}".format(*LEAST_KUBERNETES)
    if found and (int(found[1]), int(found[2])) < LEAST_KUBERNETES:
        return Finding("API server", "failed", f"{version}: Sunfleet needs Kubernetes {least} or newer")
    return Finding("API server", "ok", version)


def _crds(facts: Facts) -> list[Finding]:
    if facts.crds is None:
        return [Finding("CRDs", "warning", facts.refused.get("crds", "not read"))]
    return [_crd(kind, facts.crds.get(model.KIND.crd_name)) for kind, model in KINDS.items()]


def _crd(kind: str, live: Json | None) -> Finding:
    check = f"CRD {kind}"
    if live is None:
        return Finding(check, "failed", "not installed: kubectl apply --server-side -k crds, or install the chart")
    (wanted,), found = crd(kind)["spec"]["versions"], live["spec"]["versions"]
    same = next((version for version in found if version["name"] == wanted["name"]), None)
    if same is None:
        return Finding(check, "failed", f"version {wanted['name']} is not served")
    if _fields(same["schema"]) != _fields(wanted["schema"]):
        text = "installed from another version of Sunfleet than this command: update whichever is older"
        return Finding(check, "warning", text)
    return Finding(check, "ok", str(wanted["name"]))


def _fields(schema: Json) -> set[str]:
    """Paths of all fields; descriptions and the API server's own additions do not count."""
    found: set[str] = set()

    def walk(node: Json, path: str) -> None:
        for name, child in (node.get("properties") or {}).items():
            found.add(f"{path}.{name}")
            walk(child, f"{path}.{name}")
        if isinstance(items := node.get("items"), Mapping):
            walk(items, f"{path}[]")

    walk(schema["openAPIV3Schema"], "")
    return {path for path in found if not path.startswith((".metadata", ".kind", ".apiVersion"))}


def _programs(facts: Facts) -> list[Finding]:
    if facts.deployments is None:
        return [Finding("operator and router", "warning", facts.refused.get("deployments", "not read"))]
    return [_program(name, facts.deployments, facts.command) for name in ("operator", "router")]


def _program(name: str, deployments: Sequence[Json], command: str) -> Finding:
    live = next((one for one in deployments if _component(one) == name), None)
    if live is None:
        return Finding(name, "failed", "no Deployment of it: kubectl apply -k manifests/base, or install the chart")
    ready, wanted = int((live.get("status") or {}).get("readyReplicas") or 0), int(live["spec"].get("replicas", 1))
    text = f"{ready} of {wanted} pods are Ready"
    if image := _image(live):
        text += f", {image}"
    if not ready:
        return Finding(name, "failed", f"{text}: kubectl -n {live['metadata']['namespace']} describe deployment")
    found = _version(live, image)
    if found and command and _minor(found) != _minor(command):
        return Finding(name, "warning", f"{text}; this command is {command}: update whichever is older")
    return Finding(name, "ok" if ready >= wanted else "warning", text)


def _image(live: Json) -> str:
    pod = (live["spec"].get("template") or {}).get("spec") or {}
    return next((str(one.get("image", "")) for one in pod.get("containers") or ()), "")


def _version(live: Json, image: str) -> str:
    """The image's tag where that is a version, else what the chart wrote on the Deployment; empty where nothing says
    it."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    told = str((live["metadata"].get("labels") or {}).get("app.kubernetes.io/version", ""))
    return next((one for one in (tag, told) if _minor(one)), "")


def _minor(version: str) -> tuple[int, int] | None:
    """Within a minor version everything fits together; None for what is no version."""
    found = re.match(r"v?(\d+)\.(\d+)\.\d+", version)
    return (int(found[1]), int(found[2])) if found else None


def _component(live: Json) -> str:
    return str((live["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _gpus(facts: Facts) -> Finding:
    if facts.nodes is None:
        return Finding("GPUs", "warning", facts.refused.get("nodes", "not read"))
    counts = [int(((node.get("status") or {}).get("allocatable") or {}).get(GPU, 0)) for node in facts.nodes]
    if not any(counts):
        return Finding("GPUs", "warning", f"no node offers {GPU}: is the device plugin installed?")
    return Finding("GPUs", "ok", f"{sum(counts)} on {sum(1 for count in counts if count)} of {len(counts)} nodes")


def _objects(facts: Facts) -> list[Finding]:
    """Decoders, prefill pools and tasks: whether they serve, and whether those that scale have what they scale by."""
    if facts.objects is None:
        return [Finding("objects", "warning", facts.refused.get("objects", "not read"))]
    unready = [live for live in facts.objects if condition(live, "Ready").get("status") != "True"]
    text = f"{len(facts.objects) - len(unready)} of {len(facts.objects)} are Ready"
    found = [Finding("objects", "warning" if unready else "ok", _worst(text, unready, "Ready"))]
    scaling = [live for live in facts.objects if condition(live, "ScalingReady")]
    if scaling:
        held = [live for live in scaling if condition(live, "ScalingReady").get("status") == "False"]
        text = f"{len(scaling) - len(held)} of {len(scaling)} scale as they should"
        found.append(Finding("scaling", "warning" if held else "ok", _worst(text, held, "ScalingReady")))
    return found


def _worst(text: str, wrong: Sequence[Json], type_: str) -> str:
    """With the first one's name and reason; ``sunfleet status`` lists the others."""
    if not wrong:
        return text
    first, said = wrong[0], condition(wrong[0], type_)
    name = f"{first.get('kind', '')} {first['metadata'].get('namespace', '')}/{first['metadata']['name']}".strip()
    return f"{text}; {name}: {said.get('reason', 'nobody has looked at it yet')}: sunfleet explain says why"
