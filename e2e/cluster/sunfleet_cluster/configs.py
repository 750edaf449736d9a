"""Configuration files of the node's components. Pure: text from a layout."""

import json
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import yaml

from sunfleet_cluster.layout import BRIDGE, CLUSTER_DOMAIN, Layout

CNI_PROGRAMS = Path("/usr/lib/cni")
MAX_PODS = 500


def containerd(layout: Layout, pause_image: str) -> str:
    """containerd's configuration (TOML)."""
    return f"""\
version = 2
root = "{layout.containerd_root}"
state = "{layout.containerd_state}"

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  # Where the kernel grants no CAP_SYS_RESOURCE, a lower score than our own cannot be set and every sandbox would fail.
  restrict_oom_score_adj = true
  # Pods' network namespaces are mounted below our own folder, so that `down` finds them all.
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{layout.cni}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.root}/containerd/opt"
"""


def kubelet(layout: Layout) -> str:
    """kubelet's configuration (YAML)."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(layout.addresses.node),
        "healthzBindAddress": str(layout.addresses.node),
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [str(layout.addresses.dns)],
        "resolvConf": str(layout.config / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        # Kernels with only the old cgroups still work; the pinned kubelet merely warns.
        "failCgroupV1": False,
        "failSwapOn": False,
        "maxPods": MAX_PODS,
        "podPidsLimit": 4096,
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": str(layout.root / "volume-plugins"),
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        # A developer's disk is often nearly full, and images here came from no registry: never delete one, evict
        # only at the brink.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    return yaml.safe_dump(document, sort_keys=False)


def cni(layout: Layout) -> str:
    """The pods' network: one bridge, addresses from a range on this node."""
    addresses = layout.addresses
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.leases),
            "ranges": [
                [
                    {
                        "subnet": str(addresses.pods),
                        "rangeStart": str(addresses.first_pod),
                        "gateway": str(addresses.node),
                    }
                ]
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}, indent=2)


def resolv_conf(machine: str) -> str:
    """The part of this machine's `resolv.conf` that works inside a pod: no loopback servers, which are the machine's
    own.
    """
    return "".join(f"nameserver {server}\n" for server in _reachable(machine.splitlines()))


def _reachable(lines: Iterable[str]) -> list[str]:
    servers = [words[1] for words in map(str.split, lines) if len(words) > 1 and words[0] == "nameserver"]
    return [server for server in servers if not ip_address(server.partition("%")[0]).is_loopback]


def corefile(machine: str) -> str:
    """CoreDNS' configuration: the cluster's names here, all others to the servers of this machine's `resolv.conf`,
    if it names any.
    """
    servers = _reachable(machine.splitlines())
    forward = f"    forward . {' '.join(servers)}\n" if servers else ""
    return f"""\
.:1053 {{
    errors
    health
    ready
    reload
    loadbalance
    cache 30
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        ttl 30
    }}
{forward}}}
"""
