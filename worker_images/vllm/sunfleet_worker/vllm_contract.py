"""What this room holds on to inside vLLM, so that a new version that moves it fails a test, not an answer.

Prefill and decode run one pinned version. Moving the pin: change :data:`ENGINE_VERSION` and the extras in
``pyproject.toml``, run the contract test, then the engine suite; deploy as a new pool and new prefill revisions.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_worker.errors import StartupError

ENGINE_VERSION: Final = "0.32.0"


def check_version(installed: str) -> None:
    """Refuse to run hooks against an engine that they were not written for.

    Raises:
        StartupError: another version is installed.
    """
    if installed.split("+", maxsplit=1)[0] != ENGINE_VERSION:
        raise StartupError(
            f"vLLM {installed} is installed, but this worker's hooks are made for {ENGINE_VERSION}. "
            "Use the worker image that belongs to this version of Sunfleet."
        )


@dataclass(frozen=True)
class Held:
    """A function in vLLM and the parameters (beside ``self``) that our override or our call relies on, in order."""

    module: str
    name: str
    parameters: tuple[str, ...]

    def complaint(self) -> str | None:
        """Why the installed engine does not fit; ``None`` when it does."""
        where = f"{self.module}.{self.name}"
        try:
            target: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                target = inspect.getattr_static(target, part) if inspect.isclass(target) else getattr(target, part)
        except (ImportError, AttributeError) as error:
            return f"{where} is gone: {error}"
        function = target.__func__ if isinstance(target, staticmethod | classmethod) else target
        found = tuple(name for name in inspect.signature(function).parameters if name not in {"self", "cls"})
        if found[: len(self.parameters)] != self.parameters:
            return f"{where} takes {found}, expected to begin with {self.parameters}"
        return None


@dataclass(frozen=True)
class HeldField:
    """A field that a class's constructor in vLLM sets and that we read or write."""

    module: str
    owner: str
    name: str

    def complaint(self) -> str | None:
        """Why the installed engine does not fit; ``None`` when it does."""
        where = f"{self.module}.{self.owner}.{self.name}"
        try:
            source = inspect.getsource(getattr(importlib.import_module(self.module), self.owner).__init__)
        except (ImportError, AttributeError, TypeError, OSError) as error:
            return f"{where} is gone: {error}"
        if re.search(rf"\bself\.{self.name}\b\s*[:=]", source) is None:
            return f"{where} is gone: {self.owner}.__init__ does not set it"
        return None


_SCHEDULER = "vllm.v1.core.sched.scheduler"
_NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
_OUTPUTS = "vllm.v1.engine.output_processor"
_CHAT = "vllm.entrypoints.openai.chat_completion.serving"
_COMPLETION = "vllm.entrypoints.openai.completion.serving"
_MODELS = "vllm.entrypoints.openai.models.serving"
_LAUNCHERS = "vllm.entrypoints.launchers"
_HANDSHAKE_FIELDS = (
    "engine_id", "agent_metadata", "kv_caches_base_addr", "device_id", "num_blocks", "block_lens", "block_strides",
    "kv_cache_layout", "block_size", "ssm_sizes", "attn_backend_name", "physical_blocks_per_logical_kv_block",
    "region_num_blocks", "region_group_ids", "region_names", "region_mem_types",
)  # fmt: skip

HELD: Final[tuple[Held | HeldField, ...]] = (
    Held(_SCHEDULER, "Scheduler.add_request", ("request",)),
    Held(_SCHEDULER, "Scheduler.schedule", ()),
    Held(_SCHEDULER, "Scheduler.get_request_counts", ()),
    Held(_SCHEDULER, "Scheduler.finish_requests", ("request_ids", "finished_status")),
    Held(_SCHEDULER, "Scheduler.update_from_output", ("scheduler_output", "model_runner_output")),
    Held(_SCHEDULER, "Scheduler._preempt_request", ("request", "timestamp", "drop_stale_output")),
    Held(_SCHEDULER, "Scheduler._handle_blocked_waiting_request", ("request",)),
    Held(_SCHEDULER, "Scheduler._handle_failed_recving", ("failed_req_ids",)),
    Held(_SCHEDULER, "Scheduler._handle_invalid_blocks", ("invalid_block_ids", "num_scheduled_tokens")),
    Held(
        "vllm.distributed.device_communicators.shm_broadcast",
        "SpinCondition.__init__",
        ("is_reader", "context", "notify_address", "busy_loop_s"),
    ),
    Held("vllm.distributed.device_communicators.shm_broadcast", "SpinCondition.wait", ("timeout_ms",)),
    Held("vllm.v1.core.sched.utils", "check_stop", ("request", "max_model_len")),
    Held(
        "vllm.v1.core.kv_cache_manager",
        "KVCacheManager.allocate_slots",
        (
            "request",
            "num_new_tokens",
            "num_new_computed_tokens",
            "new_computed_blocks",
            "num_lookahead_tokens",
            "num_external_computed_tokens",
        ),
    ),
    Held("vllm.v1.core.kv_cache_manager", "KVCacheManager.estimate_cached_tokens", ("request",)),
    Held("vllm.v1.structured_output", "StructuredOutputManager.accept_tokens", ("request", "new_token_ids")),
    Held("vllm.v1.request", "Request.append_output_token_ids", ("token_ids",)),
    Held("vllm.v1.request", "Request.take_prefill_stats", ()),
    Held("vllm.v1.worker.gpu_input_batch", "InputBatch.add_request", ("request",)),
    Held(f"{_NIXL}.connector", "NixlPullConnector.__init__", ("vllm_config", "role", "kv_cache_config")),
    Held(f"{_NIXL}.connector", "NixlPullConnector.start_load_kv", ("forward_context",)),
    Held(f"{_NIXL}.connector", "NixlBaseConnector.build_connector_meta", ("scheduler_output",)),
    Held(f"{_NIXL}.connector", "NixlBaseConnector.request_finished_all_groups", ("request", "block_ids")),
    Held(f"{_NIXL}.connector", "NixlBaseConnector.get_transfer_results", ("finished_req_ids",)),
    Held(f"{_NIXL}.metadata", "NixlHandshakePayload.__init__", ("compatibility_hash", "agent_metadata_bytes")),
    Held(f"{_NIXL}.metadata", "NixlAgentMetadata.__init__", _HANDSHAKE_FIELDS),
    Held("vllm.utils.network_utils", "make_zmq_socket", ("ctx", "path", "socket_type", "bind", "identity", "linger")),
    Held("vllm.inputs.engine", "tokens_input", ("prompt_token_ids",)),
    HeldField(f"{_NIXL}.base_scheduler", "NixlBaseConnectorScheduler", "_reqs_need_send"),
    HeldField(f"{_NIXL}.base_worker", "NixlBaseConnectorWorker", "_reqs_to_send"),
    HeldField(f"{_NIXL}.base_worker", "NixlBaseConnectorWorker", "_reqs_to_process"),
    HeldField(f"{_NIXL}.base_worker", "NixlBaseConnectorWorker", "_engine_clock_offset"),
    HeldField(f"{_NIXL}.base_worker", "NixlBaseConnectorWorker", "consumer_notification_counts_by_req"),
    HeldField(f"{_NIXL}.base_worker", "NixlBaseConnectorWorker", "expected_consumer_notifications_by_req"),
    HeldField(_SCHEDULER, "Scheduler", "finished_recving_kv_req_ids"),
    HeldField("vllm.v1.engine.async_llm", "AsyncLLM", "output_processor"),
    Held("vllm.v1.outputs", "LogprobsLists.slice_request", ("req_idx", "num_positions")),
    Held(_OUTPUTS, "RequestOutputCollector.put", ("output",)),
    Held(_OUTPUTS, "RequestOutputCollector.get", ()),
    Held(_OUTPUTS, "RequestOutputCollector.get_nowait", ()),
    Held(_OUTPUTS, "OutputProcessor.add_request", ("request", "prompt", "parent_req", "request_index", "queue")),
    HeldField(_OUTPUTS, "OutputProcessor", "external_req_ids"),
    HeldField(_OUTPUTS, "OutputProcessor", "request_states"),
    HeldField(_OUTPUTS, "RequestState", "detokenizer"),
    Held("vllm.v1.engine.detokenizer", "IncrementalDetokenizer.num_output_tokens", ()),
    Held(
        _OUTPUTS,
        "OutputProcessor.process_outputs",
        ("engine_core_outputs", "engine_core_timestamp", "iteration_stats", "weight_version"),
    ),
    Held("vllm.v1.engine.async_llm", "AsyncLLM.generate", ("prompt", "sampling_params", "request_id")),
    Held(
        "vllm.v1.engine.async_llm", "AsyncLLM.notify_kv_transfer_request_rejected", ("request_id", "kv_transfer_params")
    ),
    Held("vllm.v1.engine.async_llm", "AsyncLLM.abort", ("request_id", "internal")),
    Held(_CHAT, "OpenAIServingChat.create_chat_completion", ("request", "raw_request")),
    Held(_CHAT, "OpenAIServingChat._create_chat_completion", ("request", "raw_request")),
    Held(_CHAT, "OpenAIServingChat.render_chat_request", ("request",)),
    Held(
        _CHAT,
        "OpenAIServingChat.chat_completion_full_generator",
        ("request", "result_generator", "request_id", "model_name"),
    ),
    Held(
        _CHAT,
        "OpenAIServingChat.chat_completion_stream_generator",
        ("request", "result_generator", "request_id", "model_name"),
    ),
    Held(_COMPLETION, "OpenAIServingCompletion.create_completion", ("request", "raw_request")),
    Held(_COMPLETION, "OpenAIServingCompletion._create_completion", ("request", "raw_request")),
    Held(_COMPLETION, "OpenAIServingCompletion.render_completion_request", ("request",)),
    Held(
        _COMPLETION,
        "OpenAIServingCompletion.completion_stream_generator",
        ("request", "engine_inputs", "result_generator", "request_id", "created_time", "model_name"),
    ),
    Held(
        _COMPLETION,
        "OpenAIServingCompletion.request_output_to_completion_response",
        ("final_res_batch", "request", "request_id", "created_time", "model_name"),
    ),
    Held(_MODELS, "OpenAIServingModels.load_lora_adapter", ("request",)),
    HeldField(_MODELS, "OpenAIServingModels", "lora_requests"),
    Held("vllm.v1.engine.async_llm", "AsyncLLM.remove_lora", ("lora_id",)),
    Held(f"{_LAUNCHERS}.app", "build_app", ("args", "supported_tasks", "model_config")),
    Held(f"{_LAUNCHERS}.api_server.app_state", "init_app_state", ("engine_client", "state", "args", "supported_tasks")),
    Held(f"{_LAUNCHERS}.launcher", "setup_server", ("args", "reuse_port")),
    Held(f"{_LAUNCHERS}.launcher", "serve_http", ("app", "sock")),
)


def complaints() -> list[str]:
    """What of :data:`HELD` the installed engine no longer offers; empty when all is in place."""
    return [complaint for held in HELD if (complaint := held.complaint()) is not None]
