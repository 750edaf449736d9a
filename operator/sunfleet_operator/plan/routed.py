"""``RouterSynced``: do routers act on what the status says? Pure.

True once every Ready router has taken over what is published. A change of what was synced before leaves it True for as
long as routers commonly need: else ``Ready`` would flap at each step of a canary or roll-out, for less than a second.
A False that names routers likewise stays until all have taken what is published, whoever decides meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_operator.heard import KNOWN, Heard, digest_of
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.types import Json, namespace_of, status_of

_TYPE = ConditionType.ROUTER_SYNCED
_ALARMS = frozenset({Reason.ROUTERS_BEHIND, Reason.ROUTER_UNREACHABLE})


def of_task(live: Json, traffic: object, heard: Heard | None) -> list[Verdict]:
    """About the ``traffic`` that the status is going to have; none where routers are not asked."""
    if heard is None:
        return []
    wanted = digest_of(traffic)
    if not wanted:
        return [Verdict(_TYPE, "Unknown", Reason.PENDING, "no traffic is published yet")]
    return [_verdict(live, heard, wanted, published=wanted == digest_of(status_of(live).get("traffic") or ()))]


def of_decoder(live: Json, heard: Heard | None) -> list[Verdict]:
    """Whether routers know the pool; none where they are not asked."""
    return [] if heard is None else [_verdict(live, heard, KNOWN, published=True)]


def _verdict(live: Json, heard: Heard, wanted: str, *, published: bool) -> Verdict:
    before = _before(live)
    if not heard.asked:
        return before or Verdict(_TYPE, "Unknown", Reason.PENDING, heard.problem or "routers have not been asked yet")
    if not heard.said:
        return Verdict(_TYPE, "False", Reason.NO_ROUTER, _nobody(live, heard))
    if published and heard.taken(wanted):
        return Verdict(_TYPE, "True", Reason.ROUTES_TAKEN)
    if published and heard.late:
        return _late(heard, wanted)
    if before is not None and (before.status == "True" or before.reason in _ALARMS):
        return before
    return Verdict(_TYPE, "False", Reason.ROUTES_PENDING, "routers are taking over what was published")


def _before(live: Json) -> Verdict | None:
    """As the live status has it."""
    conditions: Sequence[Json] = status_of(live).get("conditions") or ()
    found = next((c for c in conditions if c.get("type") == str(_TYPE)), None)
    if found is None:
        return None
    return Verdict(_TYPE, found["status"], str(found["reason"]), str(found.get("message") or ""))


def _nobody(live: Json, heard: Heard) -> str:
    if heard.elsewhere:
        return (
            f"no Ready router serves namespace {namespace_of(live)} ({heard.elsewhere} serve others): add it to "
            "SUNFLEET_ROUTER_NAMESPACES of one"
        )
    return (
        f"no Ready router was found ({heard.problem}): nobody can ask for this model before one runs; for routers "
        "elsewhere set SUNFLEET_OPERATOR_ROUTERS__NAMESPACE, for none at all SUNFLEET_OPERATOR_ROUTERS__ASKED=false"
    )


def _late(heard: Heard, wanted: str) -> Verdict:
    if behind := heard.behind(wanted):
        message = f"routers act on something older: {', '.join(behind)}; their logs say why"
        return Verdict(_TYPE, "False", Reason.ROUTERS_BEHIND, message)
    message = (
        f"routers do not answer on their admin port: {', '.join(heard.silent)}; let the operator's pods reach it "
        "(NetworkPolicy sunfleet-router)"
    )
    return Verdict(_TYPE, "False", Reason.ROUTER_UNREACHABLE, message)
