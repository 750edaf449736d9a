"""The engine's environment is made once per lock, an interrupted installation is finished, volumes are read-only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sunfleet_cluster import engine_env
from sunfleet_cluster.engine_env import EngineEnvironment, environment_key, sync_command
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.progress import Progress, Step
from sunfleet_cluster.state import StateFolder
from sunfleet_cluster.volumes import ENGINE_CLAIM, local_claim

ROOT = Path(__file__).resolve().parents[3]


class FakeUv:
    """Stands for uv and for the script that fills the cache; remembers the commands and can die in one."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self.environment = environment
        self.commands: list[list[str]] = []
        self.dies = False

    def run(self, command: Sequence[str], variables: dict[str, str], step: Step) -> None:
        del step
        self.commands.append(list(command))
        if self.dies:
            raise ClusterError("killed")
        if "sync" in command:
            assert variables["UV_PROJECT_ENVIRONMENT"] == str(self.environment.state.engine)
            self.environment.python.parent.mkdir(parents=True, exist_ok=True)
            self.environment.python.touch()


@pytest.fixture
def environment(tmp_path: Path) -> EngineEnvironment:
    return EngineEnvironment(StateFolder(tmp_path), ROOT)


@pytest.fixture
def uv(environment: EngineEnvironment, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    fake = FakeUv(environment)
    monkeypatch.setattr(engine_env, "_run", fake.run)
    monkeypatch.setattr(engine_env, "_check_machine", lambda: None)
    monkeypatch.setattr(engine_env, "find_uv", lambda _: "uv")
    monkeypatch.setattr(engine_env, "export_requirements", lambda *_: "torch==2\n")
    return fake


def test_it_is_made_once(environment: EngineEnvironment, uv: FakeUv) -> None:
    assert environment.ensure(Progress())
    assert not environment.ensure(Progress())
    assert len(uv.commands) == 2  # uv, and the script


def test_a_new_lock_brings_it_up_to_date(
    environment: EngineEnvironment, uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    del uv
    environment.ensure(Progress())
    monkeypatch.setattr(engine_env, "export_requirements", lambda *_: "torch==3\n")
    kept = environment.state.engine / "lib" / "kept"
    kept.mkdir(parents=True)
    assert environment.ensure(Progress())
    assert kept.exists()


def test_an_interrupted_installation_is_done_again(environment: EngineEnvironment, uv: FakeUv) -> None:
    uv.dies = True
    with pytest.raises(ClusterError, match="killed"):
        environment.ensure(Progress())
    half = environment.state.engine / "lib" / "half-a-package"
    half.mkdir(parents=True)
    inode = environment.state.engine.stat().st_ino
    uv.dies = False
    assert environment.ensure(Progress())
    assert not half.exists()
    assert environment.state.engine.stat().st_ino == inode, "pods hold the folder"
    assert not environment.ensure(Progress())


def test_an_interrupted_update_is_not_taken_for_the_old_state(
    environment: EngineEnvironment, uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure(Progress())
    monkeypatch.setattr(engine_env, "export_requirements", lambda *_: "torch==3\n")
    uv.dies = True
    with pytest.raises(ClusterError):
        environment.ensure(Progress())
    uv.dies = False
    monkeypatch.setattr(engine_env, "export_requirements", lambda *_: "torch==2\n")
    assert environment.ensure(Progress()), "half of it is of the other lock"


def test_a_folder_that_is_no_environment_is_never_emptied(environment: EngineEnvironment, uv: FakeUv) -> None:
    theirs = environment.state.engine / "plans.txt"
    theirs.parent.mkdir()
    theirs.touch()
    for _ in range(2):
        with pytest.raises(ClusterError, match=r"engine holds what we did not make \(plans.txt\)"):
            environment.ensure(Progress())
    assert theirs.exists()
    assert uv.commands == []


def test_a_deleted_environment_is_made_again(environment: EngineEnvironment, uv: FakeUv) -> None:
    environment.ensure(Progress())
    environment.python.unlink()
    assert environment.ensure(Progress())


def test_the_key_depends_on_packages_and_on_the_cache_script() -> None:
    keys = {environment_key("a", "x"), environment_key("b", "x"), environment_key("a", "y")}
    assert len(keys) == 3


def test_bytecode_is_compiled_because_pods_cannot_write_it() -> None:
    assert "--compile-bytecode" in sync_command("uv", ROOT, ("engine-cpu",))


def test_the_worker_image_looks_for_model_facts_where_they_are() -> None:
    dockerfile = (ROOT / "worker_images" / "vllm" / "Dockerfile").read_text()
    assert f"VLLM_CACHE_ROOT=/opt/sunfleet/engine/{engine_env.CACHE}\n" in dockerfile


def test_a_claim_is_bound_to_one_volume_of_its_own_and_read_only() -> None:
    volume, claim = local_claim(ENGINE_CLAIM, "team-a", Path("/state/engine"), "node-1")
    assert volume["spec"]["claimRef"] == {"name": ENGINE_CLAIM, "namespace": "team-a"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "sunfleet-engine-team-a"
    assert volume["spec"]["accessModes"] == claim["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert volume["spec"]["local"] == {"path": "/state/engine"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_two_namespaces_get_two_volumes_of_the_same_folder() -> None:
    one, two = (local_claim(ENGINE_CLAIM, name, Path("/engine"), "node-1")[0] for name in ("team-a", "team-b"))
    assert one["metadata"]["name"] != two["metadata"]["name"]
    assert one["spec"]["local"] == two["spec"]["local"]
