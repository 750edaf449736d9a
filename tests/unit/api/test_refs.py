"""Who may attach to a decoder."""

from typing import Any

import pytest

from sunfleet_api.refs import AllowedModels, LabelSelector

LABELS = {"tier": "prod", "team": "a"}


@pytest.mark.parametrize(
    ("namespaces", "namespace", "allowed"),
    [
        ({}, "own", True),
        ({}, "other", False),
        ({"from": "Same"}, "other", False),
        ({"from": "All"}, "other", True),
        ({"from": "Selector", "selector": {"matchLabels": {"tier": "prod"}}}, "other", True),
        ({"from": "Selector", "selector": {"matchLabels": {"tier": "test"}}}, "own", False),
        ({"from": "Selector", "selector": {}}, "other", True),
        ({"from": "Selector"}, "own", False),
    ],
)
def test_namespaces_are_allowed_as_gateway_api_allows_routes(
    namespaces: dict[str, Any], namespace: str, allowed: bool
) -> None:
    policy = AllowedModels.model_validate({"namespaces": namespaces})
    assert policy.allows(own_namespace="own", namespace=namespace, namespace_labels=LABELS) is allowed


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        ({"key": "tier", "operator": "In", "values": ["prod", "test"]}, True),
        ({"key": "tier", "operator": "In", "values": ["test"]}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["test"]}, True),
        ({"key": "absent", "operator": "NotIn", "values": ["test"]}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "absent", "operator": "Exists"}, False),
        ({"key": "absent", "operator": "DoesNotExist"}, True),
        ({"key": "team", "operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_match_as_in_kubernetes(requirement: dict[str, Any], matches: bool) -> None:
    assert LabelSelector.model_validate({"matchExpressions": [requirement]}).matches(LABELS) is matches
