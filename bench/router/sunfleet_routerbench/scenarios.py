"""What is measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """One way of asking. ``pace``: milliseconds between an engine's tokens; ``warm``, ``seconds``: before and in the
    window.
    """

    name: str
    what: str
    clients: int
    tokens: int
    stream: bool = False
    pace: int = 0
    prompt_bytes: int = 64
    warm: float = 1.5
    seconds: float = 6.0

    def load_flags(self, scale: float) -> list[str]:
        """Flags of the load generator; ``scale`` shortens the window."""
        flags = ["-clients", str(self.clients), "-tokens", str(self.tokens), "-prompt-bytes", str(self.prompt_bytes)]
        stagger = self.tokens * self.pace / 1000  # paced streams begin evenly, not in one wave
        flags += ["-warm", f"{max(self.warm, stagger + 1) if stagger else self.warm:g}", "-stagger", f"{stagger:g}"]
        flags += ["-seconds", f"{self.seconds * scale:g}"]
        return [*flags, "-stream"] if self.stream else flags


SCENARIOS = (
    Scenario("a", "whole answers of 16 tokens, 16 clients", clients=16, tokens=16),
    Scenario("b", "streams of 128 tokens without a pause, 32 clients", clients=32, tokens=128, stream=True),
    Scenario("c", "streams of 64 tokens, one each 20 ms, 200 clients", clients=200, tokens=64, stream=True, pace=20,
             seconds=8.0),
    Scenario("c50", "as c, 50 clients", clients=50, tokens=64, stream=True, pace=20, seconds=5.0),
    Scenario("d", "as a with prompts of 32 KB", clients=16, tokens=16, prompt_bytes=32768),
)  # fmt: skip
