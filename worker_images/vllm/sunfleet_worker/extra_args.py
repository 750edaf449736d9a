"""``spec.engine.extraArgs`` as words of the engine's command line.

Which arguments may be set at all is :data:`sunfleet_api.engine.ALLOWED_EXTRA_ARGS`, which settings have been checked
against; here is only how the engine spells them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sunfleet_api.engine import ExtraArg
from sunfleet_worker.errors import StartupError

# The allowed arguments that take no value.
SWITCHES: Final = frozenset(
    {"disable-custom-all-reduce", "enable-auto-tool-choice", "enable-chunked-prefill", "enforce-eager"}
)


def engine_flags(extra: Iterable[ExtraArg]) -> tuple[str, ...]:
    """``--name=value`` words, in the order given.

    Raises:
        StartupError: an argument lacks its value, or has one that it does not take; names it and the mend.
    """
    words: list[str] = []
    for arg in extra:
        if arg.name in SWITCHES and arg.value:
            raise StartupError(f"extraArgs: {arg.name} takes no value, but has {arg.value!r}; leave value empty.")
        if arg.name not in SWITCHES and not arg.value:
            raise StartupError(f"extraArgs: {arg.name} needs a value.")
        # One word, so that a value can never be read as an argument of its own.
        words.append(f"--{arg.name}={arg.value}" if arg.value else f"--{arg.name}")
    return tuple(words)
