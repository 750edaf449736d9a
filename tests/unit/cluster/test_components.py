"""Command lines and configuration files of the components."""

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from sunfleet_cluster import addons, components, configs
from sunfleet_cluster.layout import Addresses, Layout

LAYOUT = Layout(Path("/state/cluster"), Path("/state/bin"), Addresses(IPv4Network("10.203.0.0/16")))


def flags(name: str) -> dict[str, str]:
    (found,) = (each for each in components.all_components(LAYOUT) if each.name == name)
    return dict(word.removeprefix("--").split("=", 1) for word in found.argv[1:])


def test_components_start_in_the_order_of_what_they_need() -> None:
    names = [component.name for component in components.all_components(LAYOUT)]
    assert names.index("etcd") < names.index("kube-apiserver") < names.index("kubelet") < names.index("kube-router")
    assert len(set(names)) == len(names)


def test_the_aggregation_layer_has_all_its_flags() -> None:
    api = flags("kube-apiserver")
    wanted = {
        "requestheader-client-ca-file",
        "requestheader-allowed-names",
        "proxy-client-cert-file",
        "proxy-client-key-file",
    }
    assert wanted <= set(api)
    assert api["enable-aggregator-routing"] == "true"


def test_controllers_are_not_slowed_down() -> None:
    assert int(flags("kube-controller-manager")["kube-api-qps"]) >= 500


def test_the_connection_table_of_the_machine_is_left_alone() -> None:
    assert flags("kube-proxy")["conntrack-max-per-core"] == "0"


def test_etcd_and_the_api_server_agree() -> None:
    assert flags("kube-apiserver")["etcd-servers"] == flags("etcd")["advertise-client-urls"]


def test_everything_is_kept_in_the_state_folder() -> None:
    paths = [
        word.partition("=")[2]
        for component in components.all_components(LAYOUT)
        for word in component.argv
        if word.partition("=")[2].startswith("/")
    ]
    assert paths
    assert all(path.startswith("/state/") for path in paths)


def test_kubelet_gives_pods_the_clusters_dns_and_never_deletes_an_image() -> None:
    document = yaml.safe_load(configs.kubelet(LAYOUT))
    assert document["clusterDNS"] == ["10.203.128.10"]
    assert document["imageGCHighThresholdPercent"] == 100
    assert document["failCgroupV1"] is False


def test_pods_get_addresses_behind_the_nodes_own() -> None:
    bridge = json.loads(configs.cni(LAYOUT))["plugins"][0]
    (range_,) = bridge["ipam"]["ranges"][0]
    assert range_["gateway"] == "10.203.0.1"
    assert range_["rangeStart"] == "10.203.0.10"


@pytest.mark.parametrize(
    ("machine", "servers"),
    [
        ("nameserver 10.0.0.2\n", ["10.0.0.2"]),
        (
            "# nameserver 1.1.1.1\nsearch example.org\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n",
            ["10.0.0.2", "10.0.0.3"],
        ),
        ("nameserver 127.0.0.53\n", []),
        ("nameserver ::1\nnameserver fe80::1%eth0\n", ["fe80::1%eth0"]),
        ("", []),
    ],
)
def test_pods_never_ask_a_server_on_their_own_loopback(machine: str, servers: list[str]) -> None:
    assert configs.resolv_conf(machine) == "".join(f"nameserver {server}\n" for server in servers)
    forwards = [
        line.split()[2:] for line in configs.corefile(machine).splitlines() if line.strip().startswith("forward")
    ]
    assert forwards == ([servers] if servers else [])


def test_the_addons_are_complete_manifests() -> None:
    documents = list(yaml.safe_load_all(addons.render(LAYOUT, "localhost/coredns:1", "nameserver 10.0.0.2\n")))
    kinds = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert kinds["Service", "kube-dns"]["spec"]["clusterIP"] == "10.203.128.10"
    assert "forward . 10.0.0.2" in kinds["ConfigMap", "coredns"]["data"]["Corefile"]
    assert kinds["StorageClass", "local-storage"]["provisioner"] == "kubernetes.io/no-provisioner"
    (container,) = kinds["Deployment", "coredns"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "localhost/coredns:1"
    assert container["resources"]["requests"]
