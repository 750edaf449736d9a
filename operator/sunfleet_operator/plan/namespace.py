"""A namespace that is being deleted takes our pods along at once, without their drain. Pure.

Kubernetes' namespace controller deletes the pods five seconds after the namespace. Those that are still there when it
looks keep it from coming back before half of their longest ``terminationGracePeriodSeconds`` has passed, however soon
they end: minutes, since ours have time to drain. Nobody can be served from a namespace that is going away, so they go
before it looks.
"""

from __future__ import annotations

from sunfleet_operator.observed import ObservedNamespace
from sunfleet_operator.plan.actions import Delete, Plan
from sunfleet_operator.types import Json, Ref, is_terminating, metadata

# The least with which kubelet still ends the containers before the pod vanishes (0 would only forget them). It cuts
# preStop short after so long and leaves two more seconds between SIGTERM and SIGKILL: together less than the five.
GRACE_SECONDS = 1
# A pod may have been let in after ours were listed: not every API server knows of the deletion at once.
_AGAIN_SECONDS = 1.0


def plan(observed: ObservedNamespace) -> Plan:
    """Delete what is not on its way out as fast already, and look again until there is no such pod."""
    if not is_terminating(observed.live):
        return Plan()
    slow = tuple(Delete(Ref.of("Pod", pod), GRACE_SECONDS) for pod in observed.pods if not _goes_fast(pod))
    return Plan(before=slow, requeue_after=_AGAIN_SECONDS if slow else None)


def _goes_fast(pod: Json) -> bool:
    """Whether it is being deleted with no more time than ours; one that drains already may have minutes left."""
    return is_terminating(pod) and int(metadata(pod).get("deletionGracePeriodSeconds") or 0) <= GRACE_SECONDS
