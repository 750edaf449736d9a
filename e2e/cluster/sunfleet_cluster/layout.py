"""Names, paths and addresses of one embedded cluster, all derived from its folder and its subnet."""

import hashlib
import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

NODE_NAME = "sunfleet-node"
BRIDGE = "pods0"
API_PORT = 6443
CLUSTER_DOMAIN = "cluster.local"


def identity(root: Path) -> str:
    """Eight hexadecimal digits that identify the folder of a cluster on this machine."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:8]


@dataclass(frozen=True)
class Addresses:
    """How the subnet is divided.

    | pods | first quarter | its first address is the bridge, the node and the API server |
    | Services | third quarter | .1 the API server's Service, .10 cluster DNS |
    | link | last /30 | this machine's end and the node's end of the cable between them |
    """

    subnet: IPv4Network

    @property
    def pods(self) -> IPv4Network:
        """Range of pod addresses."""
        return next(self.subnet.subnets(2))

    @property
    def services(self) -> IPv4Network:
        """Range of Service addresses; at most a /20, the API server allocates a bitmap over it."""
        quarter = list(self.subnet.subnets(2))[2]
        return quarter if quarter.prefixlen >= 20 else next(quarter.subnets(new_prefix=20))

    @property
    def link(self) -> IPv4Network:
        """The /30 between this machine and the node's network namespace."""
        return IPv4Network((int(self.subnet.broadcast_address) - 3, 30))

    @property
    def node(self) -> IPv4Address:
        """Address of the node, of the pods' bridge and of the API server."""
        return self.pods[1]

    @property
    def first_pod(self) -> IPv4Address:
        """First address given to a pod; the ones below are kept for the node."""
        return self.pods[10]

    @property
    def api_service(self) -> IPv4Address:
        """`kubernetes.default`."""
        return self.services[1]

    @property
    def dns(self) -> IPv4Address:
        """`kube-dns.kube-system`."""
        return self.services[10]

    @property
    def host_end(self) -> IPv4Address:
        """This machine's end of the link."""
        return self.link[1]

    @property
    def node_end(self) -> IPv4Address:
        """The node's end of the link."""
        return self.link[2]


@dataclass(frozen=True)
class Layout:
    """Paths and names of the embedded cluster that lives in `root`.

    Names that the kernel shares between all programs (network namespace, link, cgroup) carry `ident`, a hash of the
    folder's path: two state folders never meet, and what carries the name is ours.
    """

    root: Path
    bin: Path
    addresses: Addresses

    @property
    def ident(self) -> str:
        """Eight hexadecimal digits that identify this folder on this machine."""
        return identity(self.root)

    @property
    def netns(self) -> str:
        """Name of the node's network namespace."""
        return f"sunfleet-{self.ident}"

    @property
    def netns_file(self) -> Path:
        """Where the kernel's handle of the network namespace is mounted."""
        return Path("/run/netns") / self.netns

    @property
    def link(self) -> str:
        """This machine's network interface to the node; at most 15 characters."""
        return f"sf-{self.ident}"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup that holds every pod."""
        return f"sunfleet-{self.ident}"

    @property
    def api_url(self) -> str:
        """URL of the API server for this machine and for the node."""
        return f"https://{self.addresses.node}:{API_PORT}"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def config(self) -> Path:
        """Configuration files of the components."""
        return self.root / "config"

    @property
    def cni(self) -> Path:
        """CNI configuration; address leases lie in `leases` beside it."""
        return self.config / "cni"

    @property
    def leases(self) -> Path:
        """Pod addresses in use."""
        return self.root / "leases"

    @property
    def logs(self) -> Path:
        """One log file per component."""
        return self.root / "logs"

    @property
    def pod_logs(self) -> Path:
        """Container logs, by pod."""
        return self.root / "pod-logs"

    @property
    def etcd(self) -> Path:
        """The API server's data."""
        return self.root / "etcd"

    @property
    def kubelet(self) -> Path:
        """kubelet's root: volumes of pods."""
        return self.root / "kubelet"

    @property
    def containerd_root(self) -> Path:
        """Images and snapshots; kept by a plain `down`."""
        return self.root / "containerd" / "root"

    @property
    def containerd_state(self) -> Path:
        """Running containers; meaningless when none runs."""
        return self.root / "containerd" / "state"

    @property
    def containerd_socket(self) -> Path:
        """containerd's gRPC socket."""
        return self.root / "containerd" / "containerd.sock"

    @property
    def subnet_file(self) -> Path:
        """The subnet that the cluster's objects were made with."""
        return self.root / "subnet"

    @property
    def stopping(self) -> Path:
        """There while a `down` is under way, and after one was killed: what still runs may have been told to end."""
        return self.root / "stopping"

    @property
    def admin(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.root / "admin.kubeconfig"

    def kubeconfig(self, identity: str) -> Path:
        """Kubeconfig of a component."""
        return self.config / f"{identity}.kubeconfig"
