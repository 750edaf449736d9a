"""Requests over time: read from a file, or made from a popularity law with bursts. Times are seconds from the start."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

# Names of the columns in the files that people have; the last ones are those of the Azure LLM inference traces.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "at": ("at", "time", "timestamp", "TIMESTAMP"),
    "task": ("task", "model", "Model"),
    "prompt": ("prompt_tokens", "input_tokens", "ContextTokens"),
    "output": ("output_tokens", "completion_tokens", "GeneratedTokens"),
}

_LONGEST_SECONDS: Final = 366 * 86400  # more would be replayed for hours


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it comes, for which task, how long its prompt and its answer are (tokens)."""

    at: float
    task: str
    prompt: int
    output: int


class TraceError(ValueError):
    """The trace cannot be read; the message names the line and what was expected."""


def read(lines: Iterable[str], *, name: str = "trace") -> list[Request]:
    """JSON lines, or CSV with a header; in the order of time, the first request at 0."""
    try:
        kept = [line for line in lines if line.strip()]
    except UnicodeDecodeError as error:
        raise TraceError(f"{name}: this is no text: {error}") from None
    if not kept:
        raise TraceError(f"{name} is empty")
    kept[0] = kept[0].removeprefix("\ufeff")  # spreadsheets begin their files with a byte order mark
    rows = _json(kept, name) if kept[0].lstrip().startswith("{") else _csv(kept, name)
    found = sorted((_request(row, f"{name}, request {number}") for number, row in enumerate(rows, 1)), key=_time)
    if not found:
        raise TraceError(f"{name} holds no request")
    start = found[0].at
    if found[-1].at - start > _LONGEST_SECONDS:
        raise TraceError(f"{name}: more than a year from the first request to the last: are its times in seconds?")
    return [Request(one.at - start, one.task, one.prompt, one.output) for one in found]


def _time(request: Request) -> float:
    return request.at


def _json(lines: Iterable[str], name: str) -> Iterator[Mapping[str, object]]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{name}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise TraceError(f"{name}, line {number}: expected an object")
        yield row


def _csv(lines: Iterable[str], name: str) -> Iterator[Mapping[str, object]]:
    rows = csv.DictReader(lines)
    try:
        yield from rows
    except csv.Error as error:
        raise TraceError(f"{name}, line {rows.line_num + 1}: {error}") from None


def _request(row: Mapping[str, object], where: str) -> Request:
    def field(which: str, default: str | None = None) -> str:
        found = next((row[name] for name in _COLUMNS[which] if row.get(name) not in (None, "")), default)
        if found is None:
            raise TraceError(f"{where}: no {' or '.join(_COLUMNS[which])}")
        if isinstance(found, list | dict):
            raise TraceError(f"{where}: {' or '.join(_COLUMNS[which])} is a list or an object")
        return str(found)

    try:
        prompt, output = int(float(field("prompt"))), int(float(field("output")))
        made = Request(_seconds(field("at")), field("task", "default"), prompt, max(1, output))
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, TraceError) else TraceError(f"{where}: {error}") from None
    if made.prompt < 1 or output < 0 or not math.isfinite(made.at):
        raise TraceError(
            f"{where}: a prompt has at least one token, an answer not less than none, and a time is a number"
        )
    return made


def _seconds(text: str) -> float:
    """A number, or a date and time."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


Pattern = Literal["bursts", "waves", "clusters"]


@dataclass(frozen=True)
class Shape:
    """Made-up traffic. ``rate``: requests a second of all tasks on average; task number r gets a share of
    ``1 / r**zipf``. Patterns, each task by itself: ``bursts`` jump to ``burst`` times the quiet rate for
    ``burst_seconds`` on average, ``calm_seconds`` apart; ``waves`` swing by ``depth`` of the mean within
    ``wave_seconds``; ``clusters`` come with Gamma-distributed gaps, whose variation is ``variation`` (1 is Poisson)."""

    pattern: Pattern = "bursts"
    tasks: int = 8
    zipf: float = 1.0
    rate: float = 4.0
    seconds: float = 3600.0
    prompt_tokens: int = 1200
    output_tokens: int = 200
    burst: float = 6.0
    burst_seconds: float = 120.0
    calm_seconds: float = 480.0
    wave_seconds: float = 1800.0
    depth: float = 0.8
    variation: float = 2.0


def made(shape: Shape, seed: int) -> list[Request]:
    """The same requests for the same shape and seed."""
    weights = [1 / rank**shape.zipf for rank in range(1, shape.tasks + 1)]
    found: list[Request] = []
    for number, weight in enumerate(weights, 1):
        stream = random.Random(f"{seed}/{number}")  # noqa: S311 - traffic, not secrets
        for at in _TIMES[shape.pattern](shape, shape.rate * weight / sum(weights), stream):
            prompt, output = _length(shape.prompt_tokens, stream), _length(shape.output_tokens, stream)
            found.append(Request(at, f"task-{number:02}", prompt, output))
    return sorted(found, key=_time)


def _bursts(shape: Shape, mean_rate: float, stream: random.Random) -> Iterator[float]:
    """Poisson arrivals whose rate jumps between quiet and burst."""
    share = shape.burst_seconds / (shape.burst_seconds + shape.calm_seconds)
    quiet = mean_rate / (1 + share * (shape.burst - 1))
    now, bursting, until = 0.0, stream.random() < share, 0.0
    while now < shape.seconds:
        if now >= until:
            bursting = not bursting
            until = now + stream.expovariate(1 / (shape.burst_seconds if bursting else shape.calm_seconds))
        gap = stream.expovariate(quiet * (shape.burst if bursting else 1))
        if now + gap > until:
            now = until
            continue
        now += gap
        if now < shape.seconds:
            yield now


def _waves(shape: Shape, mean_rate: float, stream: random.Random) -> Iterator[float]:
    """Poisson arrivals whose rate swings; each task begins somewhere in its wave."""
    now, begin, most = 0.0, stream.random(), 1 + shape.depth
    while True:
        now += stream.expovariate(mean_rate * most)
        if now >= shape.seconds:
            return
        height = 1 + shape.depth * math.sin(2 * math.pi * (now / shape.wave_seconds + begin))
        if stream.random() < height / most:
            yield now


def _clusters(shape: Shape, mean_rate: float, stream: random.Random) -> Iterator[float]:
    """Many at once, then none for a while, as published traces of LLM services have it."""
    alpha, now = 1 / shape.variation**2, 0.0
    while True:
        now += stream.gammavariate(alpha, 1 / (mean_rate * alpha))
        if now >= shape.seconds:
            return
        yield now


_TIMES: Final[Mapping[Pattern, Callable[[Shape, float, random.Random], Iterator[float]]]] = {
    "bursts": _bursts,
    "waves": _waves,
    "clusters": _clusters,
}


def _length(mean: int, stream: random.Random) -> int:
    """Log-normal with a coefficient of variation of about 0.8, as lengths of real requests are."""
    sigma = 0.7
    return max(1, round(stream.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))
