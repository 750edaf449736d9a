"""Who is measured: how each is started in front of the same engines. Pure, but for the files that it writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sunfleet_routerbench.machine import HOST, KEY
from sunfleet_routerbench.programs import Programs, router_variables

MODEL = "mock"
_CAPACITY = 1_000_000_000  # KV tokens: admission must work, not wait


@dataclass(frozen=True)
class Engines:
    """Ports."""

    prefill: tuple[int, ...]
    decode: tuple[int, ...]

    def urls(self, ports: Sequence[int]) -> list[str]:
        return [f"http://{HOST}:{port}" for port in ports]


@dataclass(frozen=True)
class Contender:
    """``command``: none for a client that goes to the engines itself, with ``flags`` for the load generator."""

    name: str
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def direct(engines: Engines) -> list[Contender]:
    """The floors: both legs by the client, and one."""
    decode = ("-url", ",".join(engines.urls(engines.decode)))
    return [
        Contender("direct", flags=(*decode, "-prefill", ",".join(engines.urls(engines.prefill)))),
        Contender("direct-plain", flags=decode),
    ]


def ours(
    engines: Engines, folder: Path, python: str, port: int, metrics_port: int, *,
    timeouts: Mapping[str, float] | None = None,
) -> Contender:  # fmt: skip
    """This project's router with a static fleet; ``timeouts`` as in ``SunModel.spec.traffic``."""
    config = folder / "fleet.json"  # JSON is YAML
    config.write_text(json.dumps(fleet(engines, timeouts or {})), encoding="utf-8")
    command = (python, "-m", "sunfleet_router", "--config", str(config), "--host", HOST, "--port", str(port),
               "--metrics-port", str(metrics_port))  # fmt: skip
    return Contender("ours", command, {"SUNFLEET_ROUTER_LOG_LEVEL": "warning", **router_variables()}, _at(port))


def fleet(engines: Engines, timeouts: Mapping[str, float]) -> dict[str, object]:
    """One task on all engines, and one key that may use it."""

    def endpoints(ports: Sequence[int], role: str) -> list[dict[str, object]]:
        info = {"role": role, "kv_capacity_tokens": _CAPACITY, "block_size": 16, "max_model_len": 131_072,
                "kv_fingerprint": "bench"}  # fmt: skip
        return [{"url": url, "info": info} for url in engines.urls(ports)]

    task = {"name": MODEL, "decoder": "bench/base", "prefill": endpoints(engines.prefill, "prefill"),
            "traffic": {"maxInFlight": 10_000, "timeouts": dict(timeouts)}}  # fmt: skip
    return {
        "decoders": [{"name": "bench/base", "endpoints": endpoints(engines.decode, "decode")}], "tasks": [task],
        "keys": [{"name": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "tasks": "*"}],
    }  # fmt: skip


def haproxy(engines: Engines, folder: Path, programs: Programs, port: int) -> Contender:
    """A plain HTTP proxy that knows nothing of legs."""
    config = folder / "haproxy.cfg"
    servers = "".join(f"    server e{number} {HOST}:{one}\n" for number, one in enumerate(engines.decode))
    config.write_text(
        "global\n    nbthread 2\n    maxconn 8192\n"
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 300s\n    timeout server 300s\n"
        "    http-reuse always\n    option http-no-delay\n"
        f"listen front\n    bind {HOST}:{port}\n    balance roundrobin\n{servers}",
        encoding="utf-8",
    )
    program, variables = programs.haproxy()
    return Contender("haproxy", (str(program), "-db", "-f", str(config)), variables, _at(port))


def vllm_router(engines: Engines, programs: Programs, port: int, metrics_port: int) -> Contender:
    """vLLM's own router, in its two-leg mode."""
    command = [str(programs.vllm_router()), "--host", HOST, "--port", str(port), "--vllm-pd-disaggregation"]
    for url in engines.urls(engines.prefill):
        command += ["--prefill", url]
    for url in engines.urls(engines.decode):
        command += ["--decode", url]
    command += ["--policy", "round_robin", "--prometheus-host", HOST, "--prometheus-port", str(metrics_port)]
    command += ["--log-level", "warning", "--worker-startup-check-interval", "1"]
    return Contender("vllm-router", tuple(command), flags=_at(port))


def _at(port: int) -> tuple[str, str]:
    return "-url", f"http://{HOST}:{port}"
