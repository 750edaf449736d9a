"""Command lines of the components. Pure: what runs, not how it is run."""

from dataclasses import dataclass
from pathlib import Path

from sunfleet_cluster.layout import API_PORT, NODE_NAME, Layout
from sunfleet_cluster.processes import Component


@dataclass(frozen=True)
class ControlPlane:
    """Where a control plane listens and keeps its files; the same for a whole node and for a test's bare API server.

    `host`: address of the API server and of health endpoints. `etcd_host`: address of etcd's client and peer ports.
    """

    bin: Path
    pki: Path
    config: Path
    etcd_data: Path
    host: str
    services: str
    api_port: int = API_PORT
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    etcd_metrics_port: int = 2381
    controller_port: int = 10257
    scheduler_port: int = 10259

    @property
    def api_url(self) -> str:
        """URL of the API server."""
        return f"https://{self.host}:{self.api_port}"

    def etcd(self, *extra: str) -> Component:
        """etcd, with one member, for clients with a certificate of its own authority."""
        client, peer = f"https://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.etcd_peer_port}"
        argv = (
            str(self.bin / "etcd"),
            "--name=sunfleet",
            f"--data-dir={self.etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=sunfleet={peer}",
            f"--listen-metrics-urls=http://{self.host}:{self.etcd_metrics_port}",
            f"--cert-file={self.pki}/etcd.crt",
            f"--key-file={self.pki}/etcd.key",
            "--client-cert-auth=true",
            f"--trusted-ca-file={self.pki}/etcd-ca.crt",
            "--quota-backend-bytes=4294967296",
            "--logger=zap",
            *extra,
        )
        return Component("etcd", argv, f"http://{self.host}:{self.etcd_metrics_port}/health", (self.pki / "etcd.crt",))

    def api_server(self, *extra: str) -> Component:
        """kube-apiserver with node and RBAC authorization and the aggregation layer."""
        pki = self.pki
        argv = (
            str(self.bin / "kube-apiserver"),
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.api_port}",
            f"--service-cluster-ip-range={self.services}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--etcd-servers=https://127.0.0.1:{self.etcd_port}",
            f"--etcd-cafile={pki}/etcd-ca.crt",
            f"--etcd-certfile={pki}/etcd-client.crt",
            f"--etcd-keyfile={pki}/etcd-client.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
            # The node's name has no address in any DNS: exec and logs must go by address.
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/service-account.pub",
            f"--service-account-signing-key-file={pki}/service-account.key",
            f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
            f"--proxy-client-key-file={pki}/front-proxy-client.key",
            "--enable-aggregator-routing=true",
            *extra,
        )
        return Component(
            "kube-apiserver", argv, f"{self.api_url}/readyz", (pki / "apiserver.crt", pki / "service-account.pub")
        )

    def controller_manager(self, *extra: str) -> Component:
        """kube-controller-manager; its default of 20 requests a second would make five pods a second."""
        kubeconfig = self.config / "controller-manager.kubeconfig"
        argv = (
            str(self.bin / "kube-controller-manager"),
            *_delegating(kubeconfig),
            f"--bind-address={self.host}",
            f"--secure-port={self.controller_port}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.pki}/service-account.key",
            f"--root-ca-file={self.pki}/ca.crt",
            f"--cluster-signing-cert-file={self.pki}/ca.crt",
            f"--cluster-signing-key-file={self.pki}/ca.key",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-deployment-syncs=20",
            "--concurrent-replicaset-syncs=20",
            "--concurrent-gc-syncs=20",
            *extra,
        )
        health = f"https://{self.host}:{self.controller_port}/healthz"
        return Component("kube-controller-manager", argv, health, (kubeconfig,))

    def scheduler(self) -> Component:
        """kube-scheduler."""
        kubeconfig = self.config / "scheduler.kubeconfig"
        argv = (
            str(self.bin / "kube-scheduler"),
            *_delegating(kubeconfig),
            f"--bind-address={self.host}",
            f"--secure-port={self.scheduler_port}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        )
        return Component("kube-scheduler", argv, f"https://{self.host}:{self.scheduler_port}/healthz", (kubeconfig,))


def _delegating(kubeconfig: Path) -> tuple[str, ...]:
    """The identity of a controller, and that it asks the API server who may read its metrics."""
    return tuple(
        f"--{flag}={kubeconfig}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    )


def control_plane(layout: Layout) -> ControlPlane:
    """The control plane of an embedded cluster. It has a network namespace of its own, so every port is free."""
    return ControlPlane(
        bin=layout.bin,
        pki=layout.pki,
        config=layout.config,
        etcd_data=layout.etcd,
        host=str(layout.addresses.node),
        services=str(layout.addresses.services),
    )


def control_plane_components(layout: Layout) -> tuple[Component, ...]:
    """etcd and the API server, in the order of starting."""
    plane = control_plane(layout)
    return plane.etcd(), plane.api_server()


def node_components(layout: Layout) -> tuple[Component, ...]:
    """What needs an API server that is ready."""
    plane = control_plane(layout)
    return plane.controller_manager(), plane.scheduler(), _kubelet(layout), _proxy(layout)


def containerd(layout: Layout) -> Component:
    """Runs the containers."""
    config = layout.config / "containerd.toml"
    return Component("containerd", ("containerd", f"--config={config}"), f"unix:{layout.containerd_socket}", (config,))


def policy(layout: Layout) -> Component:
    """kube-router as a firewall and nothing else: it enforces NetworkPolicy. It crashes when the node does not exist
    yet.
    """
    kubeconfig = layout.kubeconfig("policy")
    argv = (
        str(layout.bin / "kube-router"),
        f"--kubeconfig={kubeconfig}",
        f"--master={layout.api_url}",
        f"--hostname-override={NODE_NAME}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--enable-cni=false",
        "--enable-ipv6=false",
        f"--service-cluster-ip-range={layout.addresses.services}",
        "--health-port=20244",
    )
    return Component("kube-router", argv, f"http://{layout.addresses.node}:20244/healthz", (kubeconfig,))


def all_components(layout: Layout) -> tuple[Component, ...]:
    """Every component, in the order of starting."""
    return (*control_plane_components(layout), containerd(layout), *node_components(layout), policy(layout))


def _kubelet(layout: Layout) -> Component:
    config, kubeconfig = layout.config / "kubelet.yaml", layout.kubeconfig("kubelet")
    argv = (
        str(layout.bin / "kubelet"),
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={layout.kubelet}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={layout.addresses.node}",
    )
    return Component("kubelet", argv, f"http://{layout.addresses.node}:10248/healthz", (config, kubeconfig))


def _proxy(layout: Layout) -> Component:
    kubeconfig = layout.kubeconfig("proxy")
    argv = (
        str(layout.bin / "kube-proxy"),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE_NAME}",
        f"--cluster-cidr={layout.addresses.pods}",
        "--proxy-mode=iptables",
        f"--healthz-bind-address={layout.addresses.node}:10256",
        f"--metrics-bind-address={layout.addresses.node}:10249",
        # The connection table is the machine's and not the network namespace's: leave its size alone.
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
    )
    return Component("kube-proxy", argv, f"http://{layout.addresses.node}:10256/healthz", (kubeconfig,))
