"""NIXL's pull connector with our polling delay and nothing else: the ordinary flow on the same terms.

Without the delay two idle engines on two cores starve each other, and the comparison would only show that.
"""

from __future__ import annotations

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.v1.kv_cache_interface import KVCacheConfig

from sunfleet_worker.hooks.nixl_progress import delay_progress_thread


class OrdinaryConnector(NixlPullConnector):  # type: ignore[misc]
    """Transport of vLLM's own prefill/decode disaggregation."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        if role is KVConnectorRole.WORKER:
            delay_progress_thread()
        super().__init__(vllm_config, role, kv_cache_config)
