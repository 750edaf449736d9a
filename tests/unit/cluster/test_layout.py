"""Addresses and names of an embedded cluster."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sunfleet_cluster.layout import Addresses, Layout
from sunfleet_cluster.settings import ClusterSettings

SUBNETS = st.builds(
    lambda address, prefix: IPv4Network((address, prefix), strict=False),
    st.integers(0x0A000000, 0x0AFFFFFF),
    st.integers(8, 18),
)


@given(SUBNETS)
def test_pods_services_and_link_share_no_address_and_lie_in_the_subnet(subnet: IPv4Network) -> None:
    addresses = Addresses(subnet)
    ranges = [addresses.pods, addresses.services, addresses.link]
    assert all(each.subnet_of(subnet) for each in ranges)
    assert not any(a.overlaps(b) for a in ranges for b in ranges if a is not b)


@given(SUBNETS)
def test_every_fixed_address_lies_in_its_range(subnet: IPv4Network) -> None:
    addresses = Addresses(subnet)
    assert addresses.node in addresses.pods
    assert addresses.first_pod > addresses.node
    assert {addresses.api_service, addresses.dns} <= set(list(addresses.services)[:16])
    assert {addresses.host_end, addresses.node_end} == set(addresses.link.hosts())


@given(SUBNETS)
def test_the_range_of_services_is_one_the_api_server_accepts(subnet: IPv4Network) -> None:
    assert 12 <= Addresses(subnet).services.prefixlen <= 20


def test_two_folders_have_different_names_in_the_kernel() -> None:
    first, second = (
        Layout(Path(folder), Path("/bin"), Addresses(IPv4Network("10.0.0.0/16"))) for folder in ["/a", "/b"]
    )
    assert first.netns != second.netns
    assert first.link != second.link
    assert first.cgroup != second.cgroup


def test_the_links_name_fits_a_network_interface() -> None:
    layout = Layout(Path("/a/long/path" * 20), Path("/bin"), Addresses(IPv4Network("10.0.0.0/16")))
    assert len(layout.link) <= 15


def test_a_subnet_that_is_too_small_is_refused_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_SUBNET", "10.0.0.0/24")
    with pytest.raises(ValidationError, match=r"needs? a /18 or larger, for example"):
        ClusterSettings()


def test_using_a_kubeconfig_without_naming_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_USE_KUBECONFIG", "1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ValidationError, match="needs KUBECONFIG"):
        ClusterSettings()
