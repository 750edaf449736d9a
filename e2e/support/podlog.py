"""Every state that a namespace's engine pods went through, from a watch: nothing between two looks can be missed."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sunfleet_api import names
from support.kubectl import Json

GPU = "nvidia.com/gpu"
_ENDED = frozenset({"Succeeded", "Failed"})
_WATCH_SECONDS = 3600


@dataclass(frozen=True)
class Engine:
    """One engine pod at a moment. ``gpus``: what the scheduler counts for it until it has ended."""

    name: str
    role: str
    task: str  # empty for decode pods
    gpus: int
    going: bool = False
    ready: bool = False

    @classmethod
    def of(cls, pod: Json) -> Engine:
        labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
        limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
        ended = status.get("phase") in _ENDED
        return cls(
            name=pod["metadata"]["name"],
            role=labels.get(names.LABEL_ROLE, ""),
            task=labels.get(names.LABEL_MODEL, ""),
            gpus=0 if ended else sum(int(limit.get(GPU, 0)) for limit in limits),
            going="deletionTimestamp" in pod["metadata"],
            ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", [])),
        )


@dataclass(frozen=True)
class Moment:
    """All engine pods after one event; ``at`` on the monotonic clock."""

    at: float
    pods: dict[str, Engine] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """What all of them hold, those that terminate included."""
        return sum(pod.gpus for pod in self.pods.values())

    def wanted(self, role: str, task: str = "") -> list[str]:
        """Names of the pods that are to stay."""
        return [pod.name for pod in self.of(role, task) if not pod.going]

    def ready(self, role: str, task: str = "") -> list[str]:
        """Names of those that serve."""
        return [pod.name for pod in self.of(role, task) if pod.ready and not pod.going]

    def of(self, role: str, task: str = "") -> list[Engine]:
        return [pod for pod in self.pods.values() if pod.role == role and pod.task == task]


class PodLog:
    """The moments so far. ``fault`` says why the watch ended, if it did: then the log proves nothing."""

    def __init__(self) -> None:
        self.moments: list[Moment] = [Moment(time.monotonic())]
        self.fault = ""
        self._news = threading.Condition()

    @property
    def now(self) -> Moment:
        assert not self.fault, self.fault
        return self.moments[-1]

    def since(self, start: float) -> list[Moment]:
        """The state at ``start`` and every later one."""
        assert not self.fault, self.fault
        before = [moment for moment in self.moments if moment.at <= start][-1:]
        return before + [moment for moment in self.moments if moment.at > start]

    def wait(self, what: str, holds: Callable[[Moment], object], seconds: float) -> Moment:
        """The first moment from now on of which ``holds`` is true; TimeoutError says what was there instead."""
        with self._news:
            if not self._news.wait_for(lambda: self.fault or holds(self.moments[-1]), seconds):
                raise TimeoutError(f"{what}: not within {seconds:.0f} s; pods: {_shown(self.moments[-1])}")
        return self.now

    def add(self, event: Json) -> None:
        """Take in one event of a watch."""
        if event["type"] in {"BOOKMARK", "ERROR"}:
            raise ValueError(f"the watch of pods broke: {event['object']}")
        engine = Engine.of(event["object"])
        pods = {name: pod for name, pod in self.moments[-1].pods.items() if name != engine.name}
        if event["type"] != "DELETED":
            pods[engine.name] = engine
        with self._news:
            self.moments.append(replace(self.moments[-1], at=time.monotonic(), pods=pods))
            self._news.notify_all()

    def broke(self, fault: str) -> None:
        """No more moments will come."""
        with self._news:
            self.fault = fault
            self._news.notify_all()


@contextmanager
def watched(api: str, namespace: str) -> Iterator[PodLog]:
    """Follow the engine pods of a namespace through the API server at ``api`` (``kubectl proxy``)."""
    log, ended = PodLog(), threading.Event()
    query = {"watch": "1", "labelSelector": f"{names.LABEL_ROLE} in ({names.ROLE_DECODE},{names.ROLE_PREFILL})"}
    query["timeoutSeconds"] = str(_WATCH_SECONDS)
    connection = http.client.HTTPConnection(api.removeprefix("http://"), timeout=_WATCH_SECONDS)
    connection.request("GET", f"/api/v1/namespaces/{namespace}/pods?{urllib.parse.urlencode(query)}")
    stream = connection.getresponse()
    thread = threading.Thread(target=_follow, args=(stream, log, ended), name="pod log", daemon=True)
    thread.start()
    try:
        yield log
    finally:
        ended.set()
        connection.sock.shutdown(socket.SHUT_RDWR)  # nothing else ends a read that waits
        thread.join(5)
        connection.close()


def _follow(stream: Iterable[bytes], log: PodLog, ended: threading.Event) -> None:
    try:
        for line in stream:
            log.add(json.loads(line))
        log.broke("the watch of pods ended")
    except Exception as error:  # noqa: BLE001 - whatever it is, the test that asks the log must say it
        if not ended.is_set():
            log.broke(f"the watch of pods failed: {error!r}")


def _shown(moment: Moment) -> str:
    return ", ".join(
        f"{pod.name}{' (going)' if pod.going else '' if pod.ready else ' (not ready)'}" for pod in moment.pods.values()
    )
