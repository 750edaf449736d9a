"""What a shell offers for a word that only the cluster, or the kubeconfig, knows; and ``kubectl sunfleet``'s own way to
ask for completions.

A shell waits for the answer and shows no error: whatever goes wrong is no offer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from sunfleet_api.base import Kind
from sunfleet_api.prefill_pool import PREFILL_POOL
from sunfleet_api.shared_decoder import SHARED_DECODER
from sunfleet_api.sun_model import SUN_MODEL
from sunfleet_cli import cluster
from sunfleet_cli.cluster import Cluster, current_namespace

Completer = Callable[[click.Context, click.Parameter, str], list[str]]
_WAIT_SECONDS: Final = 2.0  # for all kinds together: a person has pressed a key
# What cobra, kubectl's library, reads in the last line: offer files where nothing fits, or do not.
_FILES: Final = ":0"
_NO_FILES: Final = ":4"


def kinds_by_name(kinds: Iterable[Kind]) -> dict[str, Kind]:
    """Every word that kubectl takes for one of them."""
    return {name: kind for kind in kinds for name in (kind.kind.lower(), kind.plural, kind.singular, *kind.short_names)}


def objects(*kinds: Kind) -> Completer:
    """KIND/NAME of live objects, the kind by its short name, or as it was begun."""

    def offered(ctx: click.Context, _: click.Parameter, begun: str) -> list[str]:
        word, slash, _name = begun.partition("/")
        known = kinds_by_name(kinds)
        asked = {word: known[word]} if slash and word in known else {kind.short_names[0]: kind for kind in kinds}
        with _silence():
            return [one for one in _live(ctx, asked) if one.startswith(begun)]

    return offered


def _live(ctx: click.Context, asked: Mapping[str, Kind]) -> Iterator[str]:
    """What is answered within the time for all of them: of a kind that is refused none."""
    context, until = ctx.params.get("context"), time.monotonic() + _WAIT_SECONDS
    try:
        namespace = ctx.params.get("namespace") or current_namespace(context)
        fleet = Cluster(context, retries=0)
    except click.ClickException:
        return
    for word, kind in asked.items():
        if (wait := until - time.monotonic()) <= 0:
            return
        try:
            found = fleet.every(kind.plural, namespace, newer=True, wait=wait)
        except click.ClickException:
            continue
        yield from (f"{word}/{live['metadata']['name']}" for live in found)


def contexts(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Of the kubeconfig."""
    with _silence():
        try:
            return [name for name in cluster.contexts() if name.startswith(begun)]
        except click.ClickException:
            return []


@contextmanager
def _silence() -> Iterator[None]:
    """What the Kubernetes client logs would stand in the middle of the line that a person types."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


any_object: Final = objects(SUN_MODEL, SHARED_DECODER, PREFILL_POOL)
task: Final = objects(SUN_MODEL)


def for_kubectl(command: click.Command, words: Sequence[str]) -> list[str]:
    """What ``kubectl_complete-sunfleet`` prints: an offer a line, the words before it left out, and what to do beyond
    them."""
    *before, begun = words or ("",)
    items = ShellComplete(command, {}, "sunfleet", "_SUNFLEET_COMPLETE").get_completions(list(before), begun)
    files = any(item.type in {"file", "dir"} for item in items)
    return [*(_line(item) for item in items if item.type == "plain"), _FILES if files else _NO_FILES]


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)
