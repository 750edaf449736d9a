"""Ask a component whether it works."""

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

from sunfleet_cluster import processes
from sunfleet_cluster.errors import StartError
from sunfleet_cluster.processes import Component

_PROBE_TIMEOUT = 2.0  # seconds
_POLL = 0.15  # seconds between probes while waiting
# Seconds out of sight that mean death: while a process becomes another program, which may have to be read from a cold
# disk, it has no environment to know it by.
_GONE = 3.0
# Health endpoints serve self-signed certificates; nothing secret passes, and a wrong answer only misinforms the one
# who asks.
_UNVERIFIED = ssl._create_unverified_context()  # noqa: S323
# Never through the proxy of the environment: the addresses are this machine's own.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_UNVERIFIED))


def probe(url: str, timeout: float = _PROBE_TIMEOUT) -> str | None:
    """None when `url` (`http`, `https` or `unix:PATH`) answers well, else what is wrong."""
    try:
        if url.startswith("unix:"):
            _probe_socket(Path(url.removeprefix("unix:")), timeout)
            return None
        with _OPENER.open(url, timeout=timeout):
            return None
    except urllib.error.HTTPError as error:
        return f"answers {error.code}"
    except (OSError, HTTPException) as error:
        return f"does not answer ({getattr(error, 'reason', error)})"


def _probe_socket(path: Path, timeout: float) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(str(path))


def wait_healthy(
    components: Sequence[Component], logs: Path, timeout: float, alive: Callable[[Component], bool]
) -> None:
    """Wait until every component works; StartError with the log's end when one is not `alive` any more, or `timeout`
    seconds have passed.
    """
    deadline = time.monotonic() + timeout
    waiting = list(components)
    seen = dict.fromkeys((component.name for component in components), time.monotonic())
    while waiting := [component for component in waiting if probe(component.health) is not None]:
        seen |= {component.name: time.monotonic() for component in waiting if alive(component)}
        for component in waiting:
            if time.monotonic() - seen[component.name] > _GONE:
                raise StartError(f"{component.name} died while starting; {processes.log_end(logs, component.name)}")
        if time.monotonic() > deadline:
            first = waiting[0]
            what = probe(first.health) or "works now"
            raise StartError(
                f"{first.name} is not ready after {timeout:.0f} s: {what}; {processes.log_end(logs, first.name)}"
            )
        time.sleep(_POLL)
