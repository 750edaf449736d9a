"""Watch events that only repeat what this process has just written: they need no reconcile. Pure bookkeeping."""

from __future__ import annotations

from sunfleet_operator.types import Json, Key, metadata


class Echoes:
    """Versions of objects after a status of ours that leaves nothing to do, until their event comes.

    The event may be faster than the answer to the write; then the object is looked at once more, which does no harm.
    """

    def __init__(self) -> None:
        self._expected: dict[Key, str] = {}

    def expect(self, key: Key, live: Json) -> None:
        """The object as our write left it."""
        self._expected[key] = str(metadata(live).get("resourceVersion"))

    def heard(self, key: Key, live: Json, *, gone: bool) -> bool:
        """Whether an event is such an echo. Any other one forgets it: somebody else wrote meanwhile."""
        expected = self._expected.pop(key, None)
        return not gone and expected is not None and expected == metadata(live).get("resourceVersion")
