"""The node's network: a namespace of its own, tied to this machine by one virtual cable.

Inside lie the pods' bridge, every port of the components and every packet filter rule that kube-proxy and
kube-router write. Nothing there can collide with this machine's ports, bridges and rules, and all of it goes when
the namespace goes. On this machine itself there are: one end of the cable, two routes through it, forwarding
switched on, and four packet filter rules that carry the cable's name.
"""

import json
import shlex
import shutil
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import pairwise
from pathlib import Path

from sunfleet_cluster.commands import run, succeeds
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.layout import BRIDGE, Layout

_UPLINK = "uplink"
_SHORTEST_PREFIX = 8  # of a route to somewhere in particular


def inside(layout: Layout) -> tuple[str, ...]:
    """Command prefix that runs a program in the node's network."""
    # Not `ip netns exec`: that also gives each program its own mounts, and containerd would not see kubelet's volumes.
    return ("nsenter", f"--net={layout.netns_file}", "--")


def exists(layout: Layout) -> bool:
    """Whether the namespace is there and tied to this machine."""
    return _is_mounted(layout.netns_file) and Path(f"/sys/class/net/{layout.link}").exists()


def ensure(layout: Layout) -> None:
    """Make what is missing of the node's network; ClusterError when the subnet is taken."""
    refuse_overlap(layout)
    if not exists(layout):
        _make_namespace(layout)
    _configure_inside(layout)
    _configure_machine(layout)


def remove(layout: Layout) -> None:
    """Remove everything that `ensure` made, now or in an earlier version, except that forwarding stays on."""
    if shutil.which("iptables-save"):
        _remove_rules(_marked_rules(layout))
    if Path(f"/sys/class/net/{layout.link}").exists():
        run("ip", "link", "delete", layout.link)
    if _is_mounted(layout.netns_file):
        run("ip", "netns", "delete", layout.netns)
    layout.netns_file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Rule:
    """One packet filter rule of this machine."""

    table: str
    chain: str
    match: tuple[str, ...]


def machine_rules(layout: Layout) -> tuple[Rule, ...]:
    """Pods reach the world with this machine's address, and a strict FORWARD policy (Docker's) does not stop them.

    The way back is for answers alone: forwarding is on, and without that rule whoever routes through this machine would
    reach the pods. No packet matches two of the rules, so their order does not matter.
    """
    mark = ("-m", "comment", "--comment", layout.link)
    answers = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    others = ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED")
    subnet = str(layout.addresses.subnet)
    return (
        Rule("nat", "POSTROUTING", ("-s", subnet, "!", "-d", subnet, *mark, "-j", "MASQUERADE")),
        Rule("filter", "FORWARD", ("-i", layout.link, *mark, "-j", "ACCEPT")),
        Rule("filter", "FORWARD", ("-o", layout.link, *answers, *mark, "-j", "ACCEPT")),
        Rule("filter", "FORWARD", ("-o", layout.link, *others, *mark, "-j", "DROP")),
    )


def deletions(saved: str, link: str) -> list[list[str]]:
    """Arguments of iptables that delete each rule of `saved` (from `iptables-save`) whose comment is `link`."""
    rules = [shlex.split(line) for line in saved.splitlines() if line.startswith("-A ")]
    return [["-D", *rule[1:]] for rule in rules if ("--comment", link) in pairwise(rule)]


def overlapping(subnet: IPv4Network, routes_json: str, own_link: str) -> list[str]:
    """Routes (from `ip -json route`) that share addresses with `subnet` and do not lead through `own_link`.

    The halves of the Internet that a VPN's client routes (0.0.0.0/1, 128.0.0.0/1) are default routes by another name.
    """
    routes = [route for route in json.loads(routes_json) if route["dst"] != "default" and route.get("dev") != own_link]
    networks = [(route, IPv4Network(route["dst"], strict=False)) for route in routes]
    return [
        f"{route['dst']} dev {route.get('dev', '?')}"
        for route, network in networks
        if network.prefixlen >= _SHORTEST_PREFIX and network.overlaps(subnet)
    ]


def refuse_overlap(layout: Layout) -> None:
    """ClusterError when this machine already has a route into our subnet that is not ours."""
    subnet = layout.addresses.subnet
    if taken := overlapping(subnet, run("ip", "-json", "-4", "route", "show"), layout.link):
        raise ClusterError(
            f"the cluster's range {subnet} overlaps a route of this machine ({'; '.join(taken)}): "
            "set SUNFLEET_SUBNET to a free range of at least a /18, for example SUNFLEET_SUBNET=10.211.0.0/16"
        )


def _make_namespace(layout: Layout) -> None:
    if not _is_mounted(layout.netns_file):
        layout.netns_file.unlink(missing_ok=True)  # left by a reboot, or an interrupted `ip netns add`
        run("ip", "netns", "add", layout.netns)
    if not Path(f"/sys/class/net/{layout.link}").exists():
        run("ip", "link", "add", layout.link, "type", "veth", "peer", "name", _UPLINK, "netns", layout.netns)


def _configure_inside(layout: Layout) -> None:
    addresses = layout.addresses
    if not succeeds("ip", "-netns", layout.netns, "link", "show", BRIDGE):
        # An address of its own: a bridge without one takes a port's, and changes it as pods come and go.
        hardware = "02:" + ":".join(layout.ident[i : i + 2] for i in range(0, 8, 2)) + ":01"
        run("ip", "-netns", layout.netns, "link", "add", BRIDGE, "address", hardware, "type", "bridge")
    commands = [
        "link set lo up",
        f"address replace {addresses.node_end}/30 dev {_UPLINK}",
        f"link set {_UPLINK} up",
        f"address replace {addresses.node}/{addresses.pods.prefixlen} dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"route replace default via {addresses.host_end}",
    ]
    run("ip", "-netns", layout.netns, "-batch", "-", stdin="\n".join(commands))
    # Packets between two pods of the bridge must pass the packet filter, or no NetworkPolicy would hold between them.
    run(*inside(layout), "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


def _configure_machine(layout: Layout) -> None:
    addresses = layout.addresses
    commands = [
        f"address replace {addresses.host_end}/30 dev {layout.link}",
        f"link set {layout.link} up",
        f"route replace {addresses.pods} via {addresses.node_end} dev {layout.link}",
        f"route replace {addresses.services} via {addresses.node_end} dev {layout.link}",
    ]
    run("ip", "-batch", "-", stdin="\n".join(commands))
    run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    _ensure_rules(layout)


def _ensure_rules(layout: Layout) -> None:
    """Make the rules with our mark exactly `machine_rules`: an earlier version, or another subnet, had others."""
    wanted, marked = machine_rules(layout), _marked_rules(layout)
    there = [succeeds("iptables", "-w", "-t", rule.table, "-C", rule.chain, *rule.match) for rule in wanted]
    if all(there) and len(marked) == len(wanted):
        return
    _remove_rules(marked)
    for rule in wanted:
        run("iptables", "-w", "-t", rule.table, "-I", rule.chain, *rule.match)


def _marked_rules(layout: Layout) -> list[tuple[str, list[str]]]:
    """Each rule of this machine with our mark: its table, and the arguments that delete it."""
    tables = ("nat", "filter")
    return [(table, rule) for table in tables for rule in deletions(run("iptables-save", "-t", table), layout.link)]


def _remove_rules(marked: list[tuple[str, list[str]]]) -> None:
    for table, deletion in marked:
        run("iptables", "-w", "-t", table, *deletion)


def _is_mounted(path: Path) -> bool:
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())
