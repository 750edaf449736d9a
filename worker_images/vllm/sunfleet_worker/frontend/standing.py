"""What a pod has proven of itself. Until its self-check has passed it takes no requests and tells no facts."""

from __future__ import annotations

from typing import Final

# In the ASGI scope of the self-check's own requests, which never cross a network: no client can set it.
SELF_CHECK: Final = "sunfleet.self_check"


class Standing:
    """``reason``: why the pod may not serve yet, empty once it may. ``kv_contract``: see ``wire.EngineInfo``."""

    def __init__(self) -> None:
        self.reason = "the self-check has not finished yet"
        self.kv_contract = ""

    @property
    def proven(self) -> bool:
        return not self.reason
