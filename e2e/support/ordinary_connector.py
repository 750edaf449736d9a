"""NIXL's pull connector with a polling delay and free cores, and nothing else: the ordinary flow on SUN's terms.

Without them engines on two cores starve each other, and a comparison would only show that. The setting
``progress_delay_us`` in ``kv_connector_extra_config`` gives another one than engine pods have.
"""

from __future__ import annotations

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.v1.kv_cache_interface import KVCacheConfig

from sunfleet_worker.hooks.cores import cores_kept
from sunfleet_worker.hooks.nixl_progress import PROGRESS_DELAY_US, delay_progress_thread


class OrdinaryConnector(NixlPullConnector):  # type: ignore[misc]
    """Transport of vLLM's own prefill/decode disaggregation."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        if role is KVConnectorRole.WORKER:
            extra = vllm_config.kv_transfer_config.kv_connector_extra_config
            delay_progress_thread(extra.get("progress_delay_us", PROGRESS_DELAY_US))
        with cores_kept():
            super().__init__(vllm_config, role, kv_cache_config)
