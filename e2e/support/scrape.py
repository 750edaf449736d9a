"""Scrape configurations from PodMonitors, as the Prometheus Operator makes them: so the shipped monitors themselves are
what is tested, also where nobody runs that operator. Pure.

Only the fields that our monitors use are known; another one is an error, so that none is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]
_POD = "__meta_kubernetes_pod"
_SPEC_FIELDS = {"selector", "podMetricsEndpoints", "namespaceSelector"}
_ENDPOINT_FIELDS = {"port", "interval", "honorLabels"}


def configuration(monitors: Iterable[Json], interval: str) -> Json:
    """``prometheus.yml`` for these PodMonitors; ``interval`` takes the place of theirs, for tests that cannot wait."""
    jobs = [job for monitor in monitors for job in _jobs(monitor)]
    return {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}


def _jobs(monitor: Json) -> Iterator[Json]:
    metadata, spec = monitor["metadata"], monitor["spec"]
    _only_known(spec, _SPEC_FIELDS)
    name = f"{metadata['namespace']}/{metadata['name']}"
    everywhere = spec.get("namespaceSelector", {}).get("any", False)
    discovery: Json = {"role": "pod"} | ({} if everywhere else {"namespaces": {"names": [metadata["namespace"]]}})
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        _only_known(endpoint, _ENDPOINT_FIELDS)
        yield {
            "job_name": f"podMonitor/{name}/{number}",
            "honor_labels": endpoint.get("honorLabels", False),
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": [*_kept(spec["selector"], endpoint["port"]), *_named(name)],
        }


def _kept(selector: Json, port: str) -> Iterator[Json]:
    """Which containers' ports are scraped: running pods that match the selector, by the port's name."""
    yield _rule("drop", f"{_POD}_phase", "Failed|Succeeded")
    for label, value in selector.get("matchLabels", {}).items():
        yield _rule("keep", _label(label), re.escape(value))
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "In":
            raise ValueError(f"operator {expression['operator']} of a PodMonitor's selector: only In is known here")
        yield _rule("keep", _label(expression["key"]), "|".join(map(re.escape, expression["values"])))
    yield _rule("keep", f"{_POD}_container_port_name", re.escape(port))


def _named(job: str) -> Iterator[Json]:
    """The labels that tell whose series these are."""
    yield {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}
    yield {"source_labels": [f"{_POD}_name"], "target_label": "pod"}
    yield {"source_labels": [f"{_POD}_container_name"], "target_label": "container"}
    yield {"target_label": "job", "replacement": job}


def _rule(action: str, source: str, regex: str) -> Json:
    return {"action": action, "source_labels": [source], "regex": regex}


def _label(name: str) -> str:
    """Prometheus' name for a pod's label: what is no letter, digit or underscore becomes an underscore."""
    return f"{_POD}_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"


def _only_known(fields: Json, known: set[str]) -> None:
    if unknown := sorted(fields.keys() - known):
        raise ValueError(f"unknown here: {', '.join(unknown)} of a PodMonitor; known are {', '.join(sorted(known))}")


def with_discovery_over_http(settings: Json, address: str, interval: str) -> Json:
    """The same for a Prometheus without Kubernetes' discovery, which asks ``sunfleet_fakes.discovery`` instead."""
    jobs = []
    for job in settings["scrape_configs"]:
        (discovery,) = job["kubernetes_sd_configs"]
        spaces = discovery.get("namespaces", {}).get("names", [""])
        found = [{"url": f"http://{address}/?namespace={name}", "refresh_interval": interval} for name in spaces]
        jobs.append({name: value for name, value in job.items() if name != "kubernetes_sd_configs"})
        jobs[-1]["http_sd_configs"] = found
    return {**settings, "scrape_configs": jobs}
