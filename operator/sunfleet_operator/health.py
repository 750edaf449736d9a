"""``/healthz`` and ``/readyz`` for kubelet. A process that works but makes no progress is not healthy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Health:
    """What the process knows of itself; the handlers and the queue keep it up to date. Times are monotonic seconds."""

    stalled_for: Callable[[], float]
    stuck_after: float
    leading: bool = False
    started: float = field(default_factory=time.monotonic)
    last_event: float = field(default_factory=time.monotonic)

    def saw_event(self) -> None:
        self.last_event = time.monotonic()

    def report(self) -> tuple[bool, dict[str, object]]:
        """Healthy or not, and the figures behind it.

        The age of the last event is told but not judged: a quiet cluster sends none, and kopf itself reconnects
        silent watches.
        """
        stalled = self.stalled_for()
        ok = stalled < self.stuck_after
        now = time.monotonic()
        return ok, {
            "ok": ok,
            "leading": self.leading,
            "secondsStalled": round(stalled, 1),
            "secondsSinceLastEvent": round(now - self.last_event, 1),
            "secondsUp": round(now - self.started, 1),
        }


async def serve(health: Health, port: int) -> web.AppRunner:
    """Start the server; the standby is ready too, so that a Deployment's roll-out does not wait for the Lease."""

    async def healthz(_request: web.Request) -> web.Response:
        ok, figures = health.report()
        return web.json_response(figures, status=200 if ok else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", healthz)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
