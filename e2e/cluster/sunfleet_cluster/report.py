"""The state of an embedded cluster, part by part, found without changing anything."""

from sunfleet_cluster import addons, components, health, network, processes
from sunfleet_cluster.api import ApiClient
from sunfleet_cluster.cluster import Part, Status
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.layout import Layout
from sunfleet_cluster.processes import Component, Process
from sunfleet_cluster.progress import elapsed


def examine(layout: Layout) -> tuple[Part, ...]:
    """Every component, the network, the node and DNS of the cluster `layout`."""
    alive = processes.find(layout.root)
    parts = [
        _network(layout),
        *(_component(layout, component, alive) for component in components.all_components(layout)),
    ]
    return (*parts, *_inside(layout, reachable=all(part.ok for part in parts if part.name == "kube-apiserver")))


def _network(layout: Layout) -> Part:
    there = network.exists(layout)
    return Part(
        "network",
        there,
        "present" if there else "absent",
        note=f"{layout.addresses.subnet} through {layout.link}" if there else "",
    )


def _component(layout: Layout, component: Component, alive: dict[str, Process]) -> Part:
    process = alive.get(component.name)
    if process is None:
        return Part(component.name, False, "stopped")
    problem = health.probe(component.health)
    if problem is not None:
        note = f"{problem}; log: {processes.log_file(layout.logs, component.name)}"
        return Part(component.name, False, "unhealthy", process.pid, process.age(), note)
    try:
        outdated = component.key() != process.mark.key
    except ClusterError:  # its program was removed while it runs
        outdated = True
    note = "runs with other settings than it should; `up` restarts it" if outdated else ""
    return Part(component.name, True, "outdated" if outdated else "running", process.pid, process.age(), note)


def _inside(layout: Layout, *, reachable: bool) -> tuple[Part, ...]:
    if not reachable:
        unknown = "the API server does not answer"
        return Part("node", False, "unknown", note=unknown), Part("dns", False, "unknown", note=unknown)
    api = ApiClient(layout.api_url, layout.pki, timeout=5.0)
    try:
        problems = {"node": addons.node_problem(api), "dns": addons.dns_problem(api)}
    except ClusterError as error:
        problems = {"node": str(error), "dns": str(error)}
    return tuple(
        Part(name, problem is None, "ready" if problem is None else "not ready", note=problem or "")
        for name, problem in problems.items()
    )


def table(status: Status) -> str:
    """The status for a person."""
    rows = [("COMPONENT", "PID", "STATE", "AGE", "NOTE")]
    for part in status.parts:
        age = "" if part.age is None else elapsed(part.age)
        rows.append((part.name, "" if part.pid is None else str(part.pid), part.state, age, part.note))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    ]
    verdict = "healthy" if status.healthy else "not healthy"
    return "\n".join([*lines, "", f"{status.flavour} cluster: {verdict}; KUBECONFIG={status.kubeconfig}"])
