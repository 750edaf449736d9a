"""The installed engine is the one that our hooks were made for."""

from __future__ import annotations

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from sunfleet_api.engine import ALLOWED_EXTRA_ARGS, ExtraArg
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.extra_args import SWITCHES
from sunfleet_worker.flavour import installed_engine
from sunfleet_worker.plan import plan_engine
from sunfleet_worker.vllm_contract import HELD, Held, HeldField, check_version, complaints


def test_everything_that_the_hooks_hold_on_to_is_in_place() -> None:
    assert complaints() == []


def test_the_pinned_version_is_installed() -> None:
    check_version(installed_engine()[1])


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (Held("vllm.no_such_module", "f", ()), "is gone"),
        (Held("vllm.v1.request", "Request.no_such_method", ()), "is gone"),
        (Held("vllm.v1.request", "Request.append_output_token_ids", ("tokens",)), "expected to begin with"),
        (HeldField("vllm.no_such_module", "Request", "name"), "is gone"),
        (HeldField("vllm.v1.request", "NoSuchClass", "name"), "is gone"),
        (HeldField("vllm.v1.request", "Request", "no_such_field"), "does not set it"),
    ],
)
def test_what_moved_is_named(held: Held | HeldField, words: str) -> None:
    complaint = held.complaint()
    assert complaint is not None
    assert held.name in complaint
    assert words in complaint


def test_the_contract_names_nothing_twice() -> None:
    assert len(set(HELD)) == len(HELD)


@pytest.mark.parametrize(
    "settings",
    [
        WorkerSettings(role="prefill", adapter_path="/weights/adapter"),
        WorkerSettings(role="decode", tensor_parallel_size=2, kv_cache_dtype="fp8"),
    ],
    ids=["an adapter", "a decoder"],
)
def test_the_engine_understands_every_word_of_a_plan(settings: WorkerSettings) -> None:
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(list(plan_engine(settings, "cuda").args))
    engine = AsyncEngineArgs.from_cli_args(parsed)
    assert engine.kv_transfer_config is not None
    assert engine.kv_transfer_config.is_kv_consumer == (settings.role == "decode")
    assert engine.override_generation_config["temperature"] == 1.0


@pytest.mark.parametrize("name", ALLOWED_EXTRA_ARGS)
def test_every_extra_argument_is_one_of_the_engines(name: str) -> None:
    value = "" if name in SWITCHES else _VALUES.get(name, "1")
    settings = WorkerSettings(role="decode", extra_args=(ExtraArg(name=name, value=value),))
    make_arg_parser(FlexibleArgumentParser()).parse_args(list(plan_engine(settings, "cuda").args))


_VALUES = {
    "attention-backend": "FLASH_ATTN",
    "chat-template-content-format": "string",
    "compilation-config": "{}",
    "safetensors-load-strategy": "lazy",
    "structured-outputs-config": "{}",
    "tokenizer-mode": "hf",
    "uvicorn-log-level": "info",
}
