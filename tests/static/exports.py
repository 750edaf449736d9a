"""What router, operator, pods and engine export, read from their sources: by the names that Prometheus sees."""

from __future__ import annotations

import re

from checkout import ROOT


def _series(kind: str, name: str) -> set[str]:
    """What Prometheus sees of one metric of the client library."""
    if kind == "counter":
        return {f"{name.removesuffix('_total')}_total"}
    return {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}


def exported() -> set[str]:
    router = (ROOT / "router/sunfleet_router/telemetry/metrics.py").read_text()
    found: set[str] = set()
    for kind, name in re.findall(r'_(counter|histogram|gauge)\(\s*"(\w+)"', router):
        found |= _series(kind, f"sunfleet_router_{name}")
    found |= {f"sunfleet_router_{name}" for name in re.findall(r'^\s+\("(\w+)", "[A-Z]', router, re.MULTILINE)}
    for path in ("operator/sunfleet_operator/metrics.py", "worker_images/vllm/sunfleet_worker/frontend/metrics.py"):
        for kind, name in re.findall(r'(Counter|Gauge|Histogram)\(\s*"(\w+)"', (ROOT / path).read_text()):
            found |= _series(kind.lower(), name)
    engine = (ROOT / "tests/support/sunfleet_fakes/engine/metrics.py").read_text()
    return found | set(re.findall(r'"(vllm:\w+)"', engine))
