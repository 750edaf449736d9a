"""Which routers are there, for which namespaces, and how long some namespace has had none. No I/O; clocks are given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from sunfleet_api.routes import Routes
from sunfleet_operator.heard import Answer

# A single router that is replaced is away for a moment: no reason to tell everybody that there is none.
_AWAY: Final = 30.0

Scope = tuple[str, ...]  # of namespaces; empty: all

# Of a namespace. "unjudged": who might serve it does not say what it has. "away": nobody serves it, for a moment, or
# nobody has looked yet; "elsewhere": for longer, and there are routers of other namespaces; "nobody": there are none.
State = Literal["served", "unjudged", "away", "elsewhere", "nobody"]


@dataclass
class Attended:
    """A clock that stands still while nobody can look for routers: such time is held against none. ``clock``: s."""

    clock: Callable[[], float]
    _worked: float = field(init=False)  # of the last look that did
    _blind: bool = False
    _lost: float = 0.0

    def __post_init__(self) -> None:
        self._worked = self.clock()

    def now(self) -> float:
        """Seconds."""
        return (self._worked if self._blind else self.clock()) - self._lost

    def looked(self, *, works: bool) -> None:
        """A look has just ended."""
        if works:
            at = self.clock()
            self._lost += at - self._worked if self._blind else 0
            self._worked = at
        self._blind = not works


@dataclass
class Presence:
    """What the Ready routers answered last, by pod name. One that is silent serves what it served when it last spoke,
    or, while it has never spoken, any namespace."""

    now: Callable[[], float]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    _scopes: Mapping[str, Scope] = field(default_factory=dict)  # by pod name, also of routers that are not Ready
    _seen: dict[Scope, float] = field(default_factory=dict)  # when a Ready router with it went, or was last there
    _began: float | None = None

    def looked(self, answers: Mapping[str, Answer], pods: Collection[str]) -> None:
        """``answers`` of the Ready ones among ``pods``."""
        at = self.now()
        self._began = at if self._began is None else self._began
        before = {self._scope(name) for name in self.answers}
        told = {name: answer.namespaces for name, answer in answers.items() if isinstance(answer, Routes)}
        self._scopes = {name: scope for name, scope in {**self._scopes, **told}.items() if name in pods}
        self.answers = answers
        for scope in before | {self._scope(name) for name in answers}:
            self._seen[scope] = at
        self._seen = {scope: seen for scope, seen in self._seen.items() if at - seen <= _AWAY}

    def of(self, namespace: str) -> State:
        """Who serves it."""
        if self._began is None:
            return "away"
        if any(True for _ in self.serving(namespace)):
            return "served"
        if "old" in self.answers.values():
            return "unjudged"
        seen = (at for scope, at in self._seen.items() if _serves(scope, namespace))
        if self.now() - max(seen, default=self._began) <= _AWAY:
            return "away"
        return "elsewhere" if self.answers else "nobody"

    def serving(self, namespace: str) -> Iterator[tuple[str, Routes | None]]:
        """Names and answers of those that can say what they have; None of one that does not answer."""
        for name, answer in self.answers.items():
            if answer != "old" and _serves(self._scope(name), namespace):
                yield name, answer

    def elsewhere(self, namespace: str) -> int:
        """How many are Ready and serve others alone."""
        return sum(not _serves(self._scope(name), namespace) for name in self.answers)

    def _scope(self, name: str) -> Scope:
        return self._scopes.get(name, ())


def _serves(scope: Scope, namespace: str) -> bool:
    return not scope or namespace in scope
