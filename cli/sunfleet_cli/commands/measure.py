"""``measure``: cost curves for ``simulate`` and ``plan``, from the engines of a fleet that runs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import click
from rich.text import Text

from sunfleet_cli.chatting import PATH, ChatError, Conversation, Reply, read, refusal
from sunfleet_cli.commands.routers import poster_of, router_options
from sunfleet_cli.options import Finite
from sunfleet_cli.output import show
from sunfleet_cli.reach import Post
from sunfleet_cli.sim.fit import Decode, FitError, Known, Prefill, fitted

_WORDS: Final = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll")
_SHORT: Final = 20  # words of the prompts of streams that are timed


@dataclass(frozen=True)
class Timing:
    """One answer; ``seconds_per_token`` of those after the first, 0 where there is none."""

    prompt_tokens: int
    first_token: float
    seconds_per_token: float


def _numbers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(one) for one in text.split(","))
    except ValueError:
        found = ()
    if len(set(found)) < 2 or min(found) < 1:
        raise click.BadParameter("at least two different numbers above 0, with commas between them")
    return found


@click.command()
@click.argument("task")
@click.option("--prompts", default="200,800,1600", show_default=True, callback=_numbers, help="Lengths, in words.")
@click.option("--streams", default="1,4,8", show_default=True, callback=_numbers, help="Requests at a time.")
@click.option("--tokens", type=click.IntRange(2), default=64, show_default=True, help="Of each answer.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often each is measured.")
@click.option("--kv-tokens", type=click.IntRange(1), required=True, help="KV tokens of one decode pod: sunfleet top.")
@click.option("--prefill-startup", type=Finite(0), default=60.0, show_default=True, help="Seconds to Ready.")
@click.option("--decode-startup", type=Finite(0), default=60.0, show_default=True, help="Seconds to Ready.")
@click.option("--gpus-per-pod", type=click.IntRange(1), default=1, show_default=True)
@router_options
@click.option("-o", "--output", type=click.Choice(("yaml", "json")), default="yaml", show_default=True)
def measure(task: str, output: str, **given: Any) -> None:
    """Measure the engines behind the model TASK, for --costs of simulate and plan. One prefill and one decode pod, and
    nobody else's requests, make it true."""
    source = f"measured through the router on {task}, {time.strftime('%Y-%m-%d')}"
    known = Known(source, given["kv_tokens"], given["prefill_startup"], given["decode_startup"], given["gpus_per_pod"])
    with poster_of(given) as post:
        try:
            _timed(post, task, _SHORT, 2)  # a first request of all pays for what later ones do not
            prefills = [
                Prefill(found.prompt_tokens, found.first_token)
                for _ in range(given["repeat"])
                for words in given["prompts"]
                for found in [_timed(post, task, words, 1)]
            ]
            decodes = [
                Decode(count, _side_by_side(post, task, count, given["tokens"]))
                for _ in range(given["repeat"])
                for count in given["streams"]
            ]
            costs = fitted(prefills, decodes, known)
        except (ChatError, FitError) as error:
            raise click.ClickException(str(error)) from None
    show(output, costs.model_dump(), lambda: Text(""))


def _side_by_side(post: Post, task: str, count: int, tokens: int) -> float:
    """Seconds per token of ``count`` streams at a time, on average."""
    with ThreadPoolExecutor(count) as threads:
        found: Sequence[Timing] = list(threads.map(lambda _: _timed(post, task, _SHORT, tokens), range(count)))
    paces = [one.seconds_per_token for one in found if one.seconds_per_token]
    if not paces:
        raise ChatError("no answer had a second token: the task ends its answers too soon to be measured")
    return fmean(paces)


def _timed(post: Post, task: str, words: int, tokens: int) -> Timing:
    """A prompt that no cache knows, and its answer against the clock."""
    text = " ".join(random.choices(_WORDS, k=words))  # noqa: S311 - text, not secrets
    begun, first, reply = time.monotonic(), 0.0, Reply()
    with post(PATH, Conversation(task, {"max_tokens": tokens}).ask(text)) as answer:
        if answer.status != 200:
            raise refusal(answer.status, b"".join(answer.chunks))
        for _ in read(answer.chunks, reply):
            first = first or time.monotonic()
    ended, made = time.monotonic(), int(reply.usage.get("completion_tokens", 0))
    first = first or ended
    pace = (ended - first) / (made - 1) if made > 1 else 0.0
    return Timing(int(reply.usage.get("prompt_tokens", 0)), first - begun, pace)
