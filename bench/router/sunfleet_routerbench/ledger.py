"""What a soak must find: every request accounted for, the same by clients, router and engines. Pure."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# What no client may ever see: an answer that is not the right one, or one that ends without saying so.
LOST: Final = ("cut without an error", "stuck", "wrong text", "wrong length", "a line that is no data",
               "something after the end", "error without a code", "error event without a code")  # fmt: skip
_ERROR: Final = re.compile(r"error (?:event )?(?P<code>\w+)")
_SAMPLE: Final = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_GROWTH_MB: Final = 8.0  # of memory between a run's second and last quarter: more is a leak
_EMPTY: Final = ("in_flight_requests", "queue_depth", "queued_prompt_tokens", "decode_kv_reserved_tokens")


@dataclass(frozen=True)
class Soaked:
    """A run's counts. ``outcomes``: the clients'; ``metrics``: the router's page; ``engines``: sums over them."""

    outcomes: Mapping[str, int]
    metrics: str
    prefills: Mapping[str, int]
    decodes: Mapping[str, int]
    memory: Sequence[float] = ()  # MB, one sample after the other
    files: tuple[int, int] = (0, 0)  # open ones of the router before and after
    most_files: int = 0
    exit_code: int = 0
    problems: list[str] = field(default_factory=list)


def values(page: str, name: str) -> dict[str, float]:
    """Samples of one metric by their labels' text."""
    return {found["labels"] or "": float(found["value"]) for found in _SAMPLE.finditer(page) if found["name"] == name}


def requests_by_code(page: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for labels, value in values(page, "sunfleet_router_requests_total").items():
        code = re.search(r'code="(\w*)"', labels)
        found[code[1] if code else ""] += int(value)
    return found


def errors_by_code(outcomes: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for outcome, count in outcomes.items():
        if said := _ERROR.fullmatch(outcome):
            found[said["code"]] += count
    return found


def problems(run: Soaked) -> list[str]:
    """What does not add up; empty for a good run."""
    return [*_lost(run), *_clients(run), *_engines(run), *_left_behind(run)]


def _lost(run: Soaked) -> Iterable[str]:
    for outcome in LOST:
        if count := run.outcomes.get(outcome, 0):
            yield f"{count} requests: {outcome}"


def _clients(run: Soaked) -> Iterable[str]:
    """Whoever leaves at the last moment may be counted as served: hence the room for those."""
    codes, errors = requests_by_code(run.metrics), errors_by_code(run.outcomes)
    answered, left = run.outcomes.get("ok", 0), run.outcomes.get("left", 0)
    if not answered <= codes["ok"] <= answered + left:
        yield f"clients have {answered} whole answers (and {left} left), the router counts {codes['ok']}"
    if codes["client_gone"] > left:
        yield f"the router saw {codes['client_gone']} clients leave, and only {left} did"
    for code in sorted(errors.keys() | codes.keys() - {"ok", "client_gone"}):
        if not errors[code] <= codes[code] <= errors[code] + left:
            yield f"error {code}: {errors[code]} at the clients, {codes[code]} at the router"
    total = sum(run.outcomes.values())
    if not total - left <= sum(codes.values()) <= total:
        yield f"clients asked {total} times, the router counts {sum(codes.values())}"


def _engines(run: Soaked) -> Iterable[str]:
    answered, left = run.outcomes.get("ok", 0), run.outcomes.get("left", 0)
    if not answered <= run.decodes["complete"] <= answered + left:
        yield f"decode engines completed {run.decodes['complete']} answers, clients have {answered} and {left} left"
    for name, engines in (("prefill", run.prefills), ("decode", run.decodes)):
        if engines["running"]:
            yield f"{engines['running']} requests still run on {name} engines"
        if engines["plain"]:
            yield f"{engines['plain']} requests reached {name} engines without a hand-over"


def _left_behind(run: Soaked) -> Iterable[str]:
    for name in _EMPTY:
        left = {labels: value for labels, value in values(run.metrics, f"sunfleet_router_{name}").items() if value}
        if left:
            yield f"{name} did not go back to 0: {left}"
    quarter = len(run.memory) // 4
    if quarter:
        before, after = (statistics.median(part) for part in (run.memory[quarter : 2 * quarter], run.memory[-quarter:]))
        if after - before > _GROWTH_MB:
            yield f"memory grew from {before:.1f} to {after:.1f} MB"
    if run.files[1] > run.files[0] + run.most_files:
        yield f"{run.files[1]} open files at the end, {run.files[0]} at the start"
    if run.exit_code:
        yield f"the router ended with {run.exit_code}"
