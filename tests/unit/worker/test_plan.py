"""From role and settings to the engine's command line and environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet_api.engine import ExtraArg
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.errors import StartupError
from sunfleet_worker.plan import EnginePlan, plan_engine


def settings(**changes: Any) -> WorkerSettings:
    return WorkerSettings(**{"role": "decode", "block_size": 32, "dtype": "float32", **changes})


def value(plan: EnginePlan, flag: str) -> str:
    """The word after ``flag``, which must be there once."""
    assert plan.args.count(flag) == 1, f"{flag} in {plan.args}"
    return plan.args[plan.args.index(flag) + 1]


@pytest.mark.parametrize(("role", "kv_role"), [("decode", "kv_consumer"), ("prefill", "kv_producer")])
def test_the_role_decides_who_gives_kv_and_who_takes_it(role: str, kv_role: str) -> None:
    transfer = json.loads(value(plan_engine(settings(role=role), "cpu"), "--kv-transfer-config"))
    assert transfer["kv_role"] == kv_role
    assert transfer["kv_load_failure_policy"] == "fail"
    assert transfer["kv_buffer_device"] == "cpu"
    assert transfer["kv_connector_extra_config"]["enforce_handshake_compat"] is True


def test_both_roles_agree_on_everything_but_the_direction_of_kv() -> None:
    prefill, decode = (plan_engine(settings(role=role), "cpu") for role in ("prefill", "decode"))
    differing = [(p, d) for p, d in zip(prefill.args, decode.args, strict=True) if p != d]
    assert [json.loads(p)["kv_role"] for p, _ in differing] == ["kv_producer"]
    assert prefill.env == decode.env


def test_full_weights_answer_to_the_engines_one_name() -> None:
    plan = plan_engine(settings(), "cpu")
    assert value(plan, "--served-model-name") == "sunfleet"
    assert "--enable-lora" not in plan.args


@pytest.mark.parametrize(("rank", "allocated"), [(1, "1"), (9, "16"), (64, "64"), (300, "320")])
def test_an_adapter_answers_to_that_name_above_its_base(rank: int, allocated: str) -> None:
    adapter = settings(role="prefill", adapter_path="/weights/adapter", max_lora_rank=512)
    plan = plan_engine(adapter, "cpu", adapter_rank=rank)
    assert value(plan, "--served-model-name") == "sunfleet-base"
    assert value(plan, "--lora-modules") == "sunfleet=/weights/adapter"
    assert value(plan, "--max-lora-rank") == allocated
    assert value(plan, "--max-loras") == "1"


def test_checkpoints_do_not_bring_sampling_defaults_of_their_own() -> None:
    override = json.loads(value(plan_engine(settings(), "cpu"), "--override-generation-config"))
    assert override["temperature"] == 1.0
    assert override["repetition_penalty"] == 1.0


def test_a_cpu_engine_is_eager_and_has_a_small_pool() -> None:
    plan = plan_engine(settings(), "cpu")
    assert "--enforce-eager" in plan.args
    assert value(plan, "--kv-cache-memory-bytes") == str(1 << 30)
    assert value(plan, "--scheduler-cls").endswith(".SunScheduler")


def test_a_cuda_engine_compiles_sizes_its_own_pool_and_overlaps_steps() -> None:
    plan = plan_engine(settings(block_size=16), "cuda")
    assert "--enforce-eager" not in plan.args
    assert "--kv-cache-memory-bytes" not in plan.args
    assert value(plan, "--scheduler-cls").endswith(".SunAsyncScheduler")
    assert "--async-scheduling" in plan.args
    assert not [name for name in plan.env_defaults if name.startswith(("OMP_", "VLLM_CPU_", "UCX_TLS"))]


def test_steps_of_a_cuda_engine_can_be_kept_apart() -> None:
    plan = plan_engine(settings(block_size=16, overlap_steps=False), "cuda")
    assert value(plan, "--scheduler-cls").endswith(".SunScheduler")
    assert "--no-async-scheduling" in plan.args
    assert "--async-scheduling" not in plan.args


def test_extra_arguments_replace_the_flavours_own() -> None:
    extra = (ExtraArg(name="kv-cache-memory-bytes", value="4096"), ExtraArg(name="enforce-eager"))
    plan = plan_engine(settings(extra_args=extra), "cpu")
    assert [word for word in plan.args if "kv-cache-memory-bytes" in word] == ["--kv-cache-memory-bytes=4096"]
    assert plan.args.count("--enforce-eager") == 1


@pytest.mark.parametrize("smuggled", ["--block-size=64", "--dtype float16", "-tp=2"])
def test_a_value_of_an_extra_argument_is_never_an_argument_of_its_own(smuggled: str) -> None:
    """Some of the engine's arguments take any number of words, and would leave one with dashes to the parser."""
    plan = plan_engine(settings(extra_args=(ExtraArg(name="chat-template", value=smuggled),)), "cpu")
    assert plan.args[-1] == f"--chat-template={smuggled}"


@pytest.mark.parametrize(
    ("limit", "tensor_parallel", "threads"), [(None, 1, "1"), (1, 1, "1"), (8, 1, "8"), (8, 2, "4"), (2, 4, "1")]
)
def test_threads_follow_the_containers_cpu_limit(limit: int | None, tensor_parallel: int, threads: str) -> None:
    plan = plan_engine(settings(tensor_parallel_size=tensor_parallel), "cpu", cpu_limit=limit)
    assert plan.env_defaults["OMP_NUM_THREADS"] == threads


def test_a_w4a16_decoder_in_float32_is_refused_before_it_dies_of_its_first_request() -> None:
    with pytest.raises(StartupError, match="float16 or bfloat16"):
        plan_engine(settings(), "cpu", weight_bits=4)
    plan_engine(settings(dtype="float16"), "cpu", weight_bits=4)
    plan_engine(settings(), "cpu", weight_bits=8)
    plan_engine(settings(), "cuda", weight_bits=4)


def test_a_w4a16_decoder_keeps_activations_of_16_bits_on_every_processor() -> None:
    assert plan_engine(settings(), "cpu").env_defaults["VLLM_CPU_INT4_W4A8"] == "0"


def test_nothing_is_compiled_at_a_request_where_no_compiler_is() -> None:
    assert plan_engine(settings(), "cpu").env_defaults["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in plan_engine(settings(), "cuda").env_defaults


def test_other_pods_reach_the_engine_at_its_pod_address_and_ports() -> None:
    env = plan_engine(settings(pod_ip="10.1.2.3", side_channel_port=7, kv_port_first=8, kv_port_last=9), "cpu").env
    assert env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.1.2.3"
    assert env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "7"
    assert env["UCX_TCP_PORT_RANGE"] == "8-9"


def test_doors_of_the_engine_stay_closed_whatever_the_environment_says() -> None:
    env = plan_engine(settings(), "cpu").env
    assert (env["VLLM_SERVER_DEV_MODE"], env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"], env["VLLM_PLUGINS"]) == ("0", "0", "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"adapter_path": "/weights/adapter"}, "frozen decoder"),
        ({"block_size": 16}, "multiple of 32"),
        ({"extra_args": (ExtraArg(name="enforce-eager", value="yes"),)}, "takes no value"),
        ({"extra_args": (ExtraArg(name="max-num-seqs"),)}, "needs a value"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_mend(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StartupError, match=words):
        plan_engine(settings(**changes), "cpu")


@pytest.mark.parametrize(("allowed", "rank"), [(64, 65), (1024, 513)])
def test_an_adapter_that_is_too_large_is_refused(allowed: int, rank: int) -> None:
    adapter = settings(role="prefill", adapter_path="/weights/adapter", max_lora_rank=allowed)
    with pytest.raises(StartupError, match=f"rank {rank}"):
        plan_engine(adapter, "cpu", adapter_rank=rank)


def test_tls_is_of_the_files_that_its_secret_has_and_off_without_one() -> None:
    plan = plan_engine(settings(tls_path="/tls"), "cpu")
    assert (value(plan, "--ssl-certfile"), value(plan, "--ssl-keyfile")) == ("/tls/tls.crt", "/tls/tls.key")
    assert "--ssl-certfile" not in plan_engine(settings(), "cpu").args
