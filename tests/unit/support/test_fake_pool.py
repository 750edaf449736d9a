"""A fake engine of a PrefillPool: adapters come and go by the admin port and the folder that the downloader fills."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sunfleet_api import pooling, wire
from sunfleet_api.pooling import Failure, Held, Request, Wanted, WantedAdapter, folder
from sunfleet_fakes.checkpoints import adapter_files, write
from sunfleet_fakes.engine.tokens import module_identity
from sunfleet_fakes.harness import EngineControl, FakeEngine, expected_tokens

PROMPT = (101, 102)
MATHS = WantedAdapter(name="n.maths-1", uri="hf://acme/maths-lora@1", digest="sha256:01")
CODE = WantedAdapter(name="n.code-1", uri="hf://acme/code-lora@1", digest="sha256:02")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "adapters"


@pytest.fixture
def engine(root: Path) -> Iterator[FakeEngine]:
    with FakeEngine("prefill", adapters_path=str(root), admin_port=0, model_path="base") as running:
        yield running


def tell(engine: FakeEngine, *adapters: WantedAdapter) -> Held:
    answer = admin(engine).request("PUT", pooling.PATH, Wanted(adapters=adapters).model_dump())
    return Held.model_validate(answer)


def admin(engine: FakeEngine) -> EngineControl:
    return EngineControl(f"http://{engine.host}:{engine.admin_port}")


def states(engine: FakeEngine) -> dict[str, str]:
    held = Held.model_validate(admin(engine).request("GET", pooling.PATH))
    return {one.name: one.state for one in held.adapters}


def prefill(engine: FakeEngine, model: str) -> Any:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 1, "return_token_ids": True}
    return engine.request("POST", "/v1/completions", {**body, "kv_transfer_params": wire.prefill_params(1)})


def refusal(engine: FakeEngine, model: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        prefill(engine, model)
    with caught.value as error:
        return error.code, json.loads(error.read())["error"]["code"]


def test_an_adapter_is_asked_for_and_loaded_once_its_files_are_there(engine: FakeEngine, root: Path) -> None:
    assert [one.state for one in tell(engine, MATHS).adapters] == ["Downloading"]
    request = root / pooling.REQUESTS / f"{folder(MATHS.digest)}.json"
    assert Request.model_validate_json(request.read_bytes()).uri == MATHS.uri
    assert refusal(engine, MATHS.name) == (503, "sun_adapter_not_loaded")
    files = write(root / folder(MATHS.digest), adapter_files(1))
    assert states(engine) == {MATHS.name: "Loaded"}
    (choice,) = prefill(engine, MATHS.name)["choices"]
    identity = module_identity("base", str(files))
    assert choice["token_ids"] == expected_tokens(identity, "any", PROMPT, answer_tokens=16, max_tokens=1)


def test_what_is_wanted_no_more_is_released_and_answers_nobody(engine: FakeEngine, root: Path) -> None:
    for adapter in (MATHS, CODE):
        write(root / folder(adapter.digest), adapter_files(1))
    tell(engine, MATHS, CODE)
    tell(engine, CODE)
    assert states(engine) == {CODE.name: "Loaded"}
    assert [path.stem for path in (root / pooling.REQUESTS).iterdir()] == [folder(CODE.digest)]
    assert refusal(engine, MATHS.name) == (503, "sun_adapter_not_loaded")


def test_a_failed_download_is_told_with_its_reason(engine: FakeEngine, root: Path) -> None:
    tell(engine, MATHS)
    failed = root / pooling.FAILURES / f"{folder(MATHS.digest)}.json"
    failed.parent.mkdir()
    failed.write_text(Failure(reason="WeightsNotFound", message="no such repository").model_dump_json())
    (told,) = Held.model_validate(admin(engine).request("GET", pooling.PATH)).adapters
    assert (told.state, told.reason) == ("Failed", "WeightsNotFound")


def test_the_base_beneath_the_adapters_answers_nobody(engine: FakeEngine) -> None:
    assert refusal(engine, wire.ENGINE_MODEL) == (503, "sun_adapter_not_loaded")


def test_only_the_admin_port_takes_adapters(engine: FakeEngine) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        engine.request("PUT", pooling.PATH, Wanted(adapters=(MATHS,)).model_dump())
