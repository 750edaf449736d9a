"""The operator's process says which setting it cannot use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet_operator.main import main
from sunfleet_operator.settings import Settings


def test_a_variable_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__POLICIES", "perhaps")
    with pytest.raises(SystemExit, match=r"SUNFLEET_OPERATOR_NETWORK__POLICIES: must be a valid boolean"):
        main()


@pytest.mark.parametrize(
    ("peers", "said"),
    [
        ('[{"podSelecter": {}}]', r"ROUTERS\[0\]\.podSelecter: is no field here"),
        ("[{}]", r"ROUTERS\[0\]: name podSelector, namespaceSelector or both, or else ipBlock"),
        ('[{"podSelector": {"matchLabels": {"app": "a b"}}}]', r"matchLabels\.app: 'a b' is no label value"),
        ('[{"podSelector": {"matchLabels": {"/app": "a"}}}]', r"'/app' is no label key"),
        ('[{"podSelector": {"matchLabels": {"app": 7}}}]', r"matchLabels\.app: must be a valid string"),
        ('[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}]', r"operator: must be 'In'"),
        ('[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]', r"values go with"),
        ('[{"ipBlock": {"cidr": "10.0.0.1"}}]', r"cidr: '10\.0\.0\.1' is no network"),
        ('[{"ipBlock": {"cidr": "10.0.0.0/33"}}]', r"cidr: '10\.0\.0\.0/33' does not appear to be"),
        ('[{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]', r"does not lie within 10\.0\.0\.0/8"),
        ('[{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]', r"or else ipBlock"),
        ('[{"podSelector": {}', r"NETWORK, or a variable .*: must be JSON"),
        ('{"podSelector": {}}', r"ROUTERS: must be a valid tuple"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_peer_is_told_at_the_start_by_its_place(
    monkeypatch: pytest.MonkeyPatch, peers: str, said: str
) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__ROUTERS", peers)
    with pytest.raises(SystemExit, match=said):
        main()


def test_a_misspelt_setting_of_the_policies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__ROUTER", "[]")
    with pytest.raises(SystemExit, match="SUNFLEET_OPERATOR_NETWORK__ROUTER: is no field here"):
        main()


@pytest.mark.parametrize(
    "peer",
    [
        {"podSelector": {}},
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway", "x": ""}}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a", "b"]}]}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"ipBlock": {"cidr": "fd00::/8"}},
    ],
)
def test_a_peer_stands_in_the_policy_as_it_was_written(monkeypatch: pytest.MonkeyPatch, peer: dict[str, Any]) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__ROUTERS", json.dumps([peer]))
    visitors = Settings().visitors
    assert visitors is not None
    assert visitors.routers == (peer,)


@pytest.mark.parametrize(
    ("written", "stands"),
    [
        ({"cidr": "10.0.0.5/8"}, {"cidr": "10.0.0.0/8"}),
        ({"cidr": "010.0.0.0/08"}, {"cidr": "10.0.0.0/8"}),
        ({"cidr": "10.0.0.5/8", "except": ["10.001.0.7/16"]}, {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}),
        ({"cidr": "fd00::1/8"}, {"cidr": "fd00::/8"}),
        ({"cidr": "0.0.0.0/0"}, {"cidr": "0.0.0.0/0"}),
    ],
)
def test_a_network_that_older_api_servers_take_stands_as_the_one_that_it_means(
    monkeypatch: pytest.MonkeyPatch, written: dict[str, Any], stands: dict[str, Any]
) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__ROUTERS", json.dumps([{"ipBlock": written}]))
    visitors = Settings().visitors
    assert visitors is not None
    assert visitors.routers == ({"ipBlock": stands},)
