"""The KV connector of SUN pods: NIXL's pull connector, unchanged, after the patches that its process needs.

The engine builds it in the scheduler's process and in every model worker, before any of them creates a NIXL agent or
takes a request; no other of our modules is loaded in all of these.
"""

from __future__ import annotations

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.v1.kv_cache_interface import KVCacheConfig

from sunfleet_worker.hooks.input_batch import patch_input_batch
from sunfleet_worker.hooks.nixl_progress import delay_progress_thread


class SunConnector(NixlPullConnector):
    """Transport of the hand-over. Which tokens are remote is decided by the stock code: the prompt, all of it."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        if role is KVConnectorRole.WORKER:
            delay_progress_thread()
            patch_input_batch()
        super().__init__(vllm_config, role, kv_cache_config)
