"""The KV connector of SUN pods: NIXL's pull connector with an end to every hand-over.

Which tokens are remote is decided by the stock code: the prompt, all of it. Added are, on prefill pods, the release of
KV that no decoder will read, and on decode pods the refusal of KV that was read too late.

The engine builds it in the scheduler's process and in every model worker, before any of them creates a NIXL agent or
takes a request; no other of our modules is loaded in all of these, so it also applies the patches they need.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata
from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request, RequestStatus

from sunfleet_worker.hooks.cores import cores_kept
from sunfleet_worker.hooks.input_batch import patch_input_batch
from sunfleet_worker.hooks.nixl_progress import delay_progress_thread
from sunfleet_worker.lease import MARGIN_SECONDS, read_in_time

logger = init_logger(f"vllm.{__name__}")  # the engine configures the loggers below this name


class SunConnector(NixlPullConnector):
    """Transport of the hand-over, in the scheduler's process and in the model workers'."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        if role is KVConnectorRole.WORKER:
            delay_progress_thread()
            patch_input_batch()
        with cores_kept():
            super().__init__(vllm_config, role, kv_cache_config)
        self._prefills = bool(vllm_config.kv_transfer_config.is_kv_producer)
        # Scheduler: requests whose KV the workers shall let go of in the next step.
        self._releases: set[str] = set()
        # Worker: requests whose KV it has let go of, to be reported like KV that was read.
        self._released: set[str] = set()
        # Worker: prefill engine and end of the lease of KV that is being read.
        self._leases: dict[str, tuple[str, float]] = {}

    # --- scheduler

    def release(self, request_ids: Iterable[str]) -> None:
        """Free the KV that a prefill pod holds for these finished requests. Safe to repeat and after a read."""
        self._releases.update(request_ids)

    def request_finished_all_groups(self, request: Request, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        held, params = super().request_finished_all_groups(request, block_ids)
        if not (self._prefills and held and params):
            return held, params
        if request.status is RequestStatus.FINISHED_STOPPED:
            # The first token is the whole answer: there is nothing to hand over.
            self.release([request.request_id])
            return held, None
        # The engine gives its clock's time only with KV that decoders lend to prefills.
        params["remote_blocks_expiry_time"] = self.connector_scheduler._reqs_need_send[request.request_id]
        return held, params

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> NixlConnectorMetadata:
        metadata = super().build_connector_meta(scheduler_output)
        metadata.sun_releases, self._releases = self._releases, set()
        return metadata

    # --- model worker

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        super().start_load_kv(forward_context, **kwargs)
        metadata = self._connector_metadata
        for request_id in metadata.sun_releases:
            self._let_go(request_id)
        for request_id, recv in metadata.reqs_to_recv.items():
            if recv.awaiting_kvs and recv.remote.blocks_expiry_time is not None:
                self._leases[request_id] = (recv.remote.engine_id, recv.remote.blocks_expiry_time)

    def _let_go(self, request_id: str) -> None:
        worker = self.connector_worker
        if worker._reqs_to_send.pop(request_id, None) is None:
            return  # read, expired or unknown
        worker._reqs_to_process.discard(request_id)
        worker.consumer_notification_counts_by_req.pop(request_id, None)
        worker.expected_consumer_notifications_by_req.pop(request_id, None)
        self._released.add(request_id)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        results = super().get_transfer_results(finished_req_ids)
        if self._released:
            results.finished_sending.update(self._released)
            self._released.clear()
        for request_id in results.finished_recving:
            if (lease := self._leases.pop(request_id, None)) is not None and not self._was_read_in_time(lease):
                logger.error(
                    "The KV of request %s was read later than %d s before its lease ended: it may be another prompt's.",
                    request_id, MARGIN_SECONDS,
                )  # fmt: skip
                results.failed_recving.add(request_id)
        return results

    def _was_read_in_time(self, lease: tuple[str, float]) -> bool:
        engine_id, lease_end = lease
        offset = self.connector_worker._engine_clock_offset.get(engine_id)
        # Without an offset the engines never met, and the engine itself reports the failure.
        return offset is None or read_in_time(time.perf_counter(), offset, lease_end)
