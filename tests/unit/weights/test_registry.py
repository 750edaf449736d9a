"""``oci://``: artifacts and images, pinned by digest, with the logins that registries want."""

from __future__ import annotations

import base64
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.checkpoints import adapter_files, model_files, tensors, write
from sunfleet_fakes.registry import FakeRegistry, Json
from sunfleet_weights.hold import MARKER
from sunfleet_weights.registry import Login, docker_login

Run = Callable[..., tuple[int, ResolverReport]]
FORMS: dict[str, Callable[[FakeRegistry], list[Json]]] = {
    "artifact": lambda registry: registry.files(model_files(1)),
    "image": lambda registry: [registry.archive(model_files(1))],
    "image with a folder": lambda registry: [registry.archive(model_files(1), folder="./models")],
    "uncompressed image": lambda registry: [registry.archive(model_files(1), packed=False)],
    "image of two layers": lambda registry: [
        registry.archive({**model_files(2), "readme": b"x"}),
        registry.archive(model_files(1)),
    ],
    "both": lambda registry: [
        registry.archive({name: raw for name, raw in model_files(1).items() if name.endswith(".json")}),
        *registry.files({name: raw for name, raw in model_files(1).items() if not name.endswith(".json")}),
    ],
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    with FakeRegistry() as server:
        monkeypatch.setenv("OCI_PLAIN_HTTP", "true")
        yield server


@pytest.fixture(params=sorted(FORMS))
def pushed(request: pytest.FixtureRequest, registry: FakeRegistry) -> str:
    registry.push("acme/maths", FORMS[request.param](registry))
    return f"oci://{registry.host}/acme/maths:v1"


def test_every_form_is_the_same_checkpoint(registry: FakeRegistry, pushed: str, run: Run, tmp_path: Path) -> None:
    in_folder = run("resolve", f"file://{write(tmp_path / 'maths', model_files(1))}")[1]
    code, report = run("resolve", pushed)
    assert code == 0
    assert report.resolved_uri == f"oci://{registry.host}/acme/maths@{registry.state.tags['acme/maths:v1']}"
    same = {"resolved_uri": "", "folder": ""}
    assert report.model_copy(update=same) == in_folder.model_copy(update=same)


def test_every_form_arrives_whole_and_once(registry: FakeRegistry, pushed: str, run: Run, tmp_path: Path) -> None:
    report, target = run("resolve", pushed)[1], tmp_path / "model"
    registry.state.requests.clear()
    for _ in range(2):
        assert run("fetch", report.resolved_uri, "--to", str(target), "--digest", report.digest)[0] == 0
    expected = {name: raw for name, raw in model_files(1).items() if name != "README.md"}
    assert {path.name: path.read_bytes() for path in target.iterdir() if path.name != MARKER} == expected
    loaded = [url for _, url, _ in registry.state.requests if url.startswith("/storage/")]
    assert len(loaded) == len(set(loaded))


def test_of_an_artifact_no_tensors_are_loaded_to_resolve_it(registry: FakeRegistry, run: Run) -> None:
    layers = registry.files(model_files(1))
    registry.push("acme/maths", layers)
    assert run("resolve", f"oci://{registry.host}/acme/maths:v1")[0] == 0
    tensor = next(layer["digest"] for layer in layers if "safetensors" in layer["annotations"].popitem()[1])
    assert registry.loads(tensor) == []


def test_the_folder_of_an_image_is_told(registry: FakeRegistry, run: Run) -> None:
    registry.push("acme/maths", [registry.archive(adapter_files(1), folder="models")])
    assert run("resolve", f"oci://{registry.host}/acme/maths:v1")[1].folder == "models"


def test_an_index_is_pinned_itself_and_read_for_this_machine(registry: FakeRegistry, run: Run) -> None:
    own = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    other = registry.push("acme/maths", registry.files(model_files(2)), "other")
    here = registry.push("acme/maths", registry.files(model_files(1)), "here")
    index = registry.push_index("acme/maths", {"riscv64": other, own: here})
    report = run("resolve", f"oci://{registry.host}/acme/maths:v1")[1]
    assert report.resolved_uri.endswith(f"@{index}")
    assert report.digest == run("resolve", f"oci://{registry.host}/acme/maths:here")[1].digest


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_connection_is_taken_up_where_it_broke(
    registry: FakeRegistry, run: Run, tmp_path: Path, packed: bool
) -> None:
    files = {**model_files(1), "model.safetensors": tensors(1, 1 << 20)}
    layers = [registry.archive(files, packed=False)] if packed else registry.files(files)
    registry.push("acme/maths", layers)
    large = max(layers, key=lambda layer: int(layer["size"]))["digest"]
    registry.state.cut[large] = 2
    assert run("fetch", f"oci://{registry.host}/acme/maths:v1", "--to", str(tmp_path / "model"))[0] == 0
    assert (tmp_path / "model/model.safetensors").read_bytes() == tensors(1, 1 << 20)
    assert [bool(span) for span in registry.loads(large)] == [False, True, True]


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_layer_is_loaded_again_and_a_layer_that_stays_so_is_refused(
    registry: FakeRegistry, run: Run, tmp_path: Path, packed: bool
) -> None:
    files = model_files(1)
    layers = [registry.archive(files, packed=False)] if packed else registry.files(files)
    registry.push("acme/maths", layers)
    large = max(layers, key=lambda layer: int(layer["size"]))["digest"]
    for times, reason in ((1, ""), (99, "ChecksumMismatch")):
        registry.state.damage[large] = times
        said = run("fetch", f"oci://{registry.host}/acme/maths:v1", "--to", str(tmp_path / f"model{times}"))[1]
        assert said.error_reason == reason


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_login_comes_from_two_keys_or_from_a_pull_secret(
    registry: FakeRegistry, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    registry.push("acme/maths", registry.files(model_files(1)))
    registry.state.auth = "basic" if auth == "basic" else "bearer"
    uri = f"oci://{registry.host}/acme/maths:v1"
    said = run("resolve", uri)[1]
    assert said.error_reason == "AuthenticationFailed"
    assert "kubernetes.io/dockerconfigjson" in said.error_message
    with monkeypatch.context() as keys:
        keys.setenv("OCI_USERNAME", "robot")
        keys.setenv("OCI_PASSWORD", "secret")
        assert run("resolve", uri)[0] == 0
    login = {"auths": {registry.host: {"auth": base64.b64encode(b"robot:secret").decode()}}}
    (tmp_path / ".dockerconfigjson").write_text(json.dumps(login))
    monkeypatch.setenv("SUNFLEET_WEIGHTS_SECRET", str(tmp_path))
    assert run("resolve", uri)[0] == 0
    (tmp_path / ".dockerconfigjson").write_text("[]")
    assert run("resolve", uri)[1].error_reason == "InvalidCredentials"


def test_a_wrong_password_is_not_told(registry: FakeRegistry, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.push("acme/maths", registry.files(model_files(1)))
    registry.state.auth = "bearer"
    monkeypatch.setenv("OCI_USERNAME", "robot")
    monkeypatch.setenv("OCI_PASSWORD", "hunter2")
    said = run("resolve", f"oci://{registry.host}/acme/maths:v1")[1]
    assert said.error_reason == "AuthenticationFailed"
    assert "hunter2" not in said.error_message


def test_a_missing_tag_and_a_strange_layer_say_so(registry: FakeRegistry, run: Run) -> None:
    registry.push("acme/maths", [{"mediaType": "application/x.tar+zstd", "digest": "sha256:0", "size": 1}], "zstd")
    registry.push("acme/maths", registry.files({"notes.txt": b"x"}), "none")
    uri = f"oci://{registry.host}/acme/maths"
    assert run("resolve", f"{uri}:v9")[1].error_reason == "RevisionNotFound"
    assert "gzip" in run("resolve", f"{uri}:zstd")[1].error_message
    assert run("resolve", f"{uri}:none")[1].error_reason == "NotACheckpoint"
    registry.state.status = 503
    assert run("resolve", f"{uri}:none")[1].error_reason == "SourceError"


@pytest.mark.parametrize(
    ("name", "registry_name"),
    [("ghcr.io", "ghcr.io"), ("https://index.docker.io/v1/", "docker.io"), ("https://reg:5000", "reg:5000")],
)
def test_a_login_is_found_under_the_names_that_docker_writes(name: str, registry_name: str) -> None:
    config = json.dumps({"auths": {"other.io": {}, name: {"username": "a", "password": "b"}}}).encode()
    assert docker_login(config, registry_name) == Login("a", "b")
