"""One client's request on its way through the flow: what it asked, where it may go, and which pods failed it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sunfleet_router.admission.gate import Visit
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.errors import LegFailedError
from sunfleet_router.fleet.snapshot import Endpoint, Route, Task
from sunfleet_router.serving.reply import ClientReply

PREFILL_POD_HEADER = b"x-sunfleet-prefill-pod"
DECODE_POD_HEADER = b"x-sunfleet-decode-pod"


@dataclass(slots=True)
class Call:
    """Times are the loop's, in seconds; pods are known by uid."""

    ask: Ask
    task: Task
    route: Route
    request_id: str
    headers: dict[str, str]  # for both engines
    reply: ClientReply
    started: float
    deadline: float
    named: bool  # whether the answer's headers name the pods
    visit: Visit
    prompt_tokens: int = 0  # as the prefill counted them; 0 until then
    tried: set[str] = field(default_factory=set)  # failed it
    avoided: set[str] = field(default_factory=set)  # had no room for it, or may be to blame: a last resort
    pods: dict[str, str] = field(default_factory=dict)  # worked on it: uid -> name
    failure: LegFailedError | None = None
    output: int = 0  # tokens that were made for it
    sampled: bool = False  # the answer shall be made again, see ``shadow``

    def name_pod(self, header: bytes, pod: Endpoint) -> None:
        """Headers are sent once: of a resumed stream they name the pods that began it."""
        self.pods[pod.uid] = pod.name
        if self.named and not self.reply.started:
            self.reply.set_header(header, pod.name)
