"""The installed operator with other settings for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.fleet import ROUTER_NAMESPACE
from support.kubectl import Kubectl

_OPERATOR = "deployment/sunfleet-operator"


@contextmanager
def operator_with(kubectl: Kubectl, variables: Mapping[str, str]) -> Iterator[None]:
    """The operator has these variables for the time of the block; it starts anew at both ends."""
    _set(kubectl, [f"{name}={value}" for name, value in variables.items()])
    try:
        yield
    finally:
        _set(kubectl, [f"{name}-" for name in variables])


def _set(kubectl: Kubectl, changes: list[str]) -> None:
    where = ("--namespace", ROUTER_NAMESPACE)
    kubectl.run("set", "env", _OPERATOR, *where, *changes)
    kubectl.run("rollout", "status", _OPERATOR, *where, "--timeout=90s", timeout=100)


@contextmanager
def operator_as(kubectl: Kubectl, account: str) -> Iterator[None]:
    """The operator runs as this service account of its namespace for the time of the block."""
    where = ("--namespace", ROUTER_NAMESPACE)
    usual = str(kubectl.get(_OPERATOR, *where)["spec"]["template"]["spec"]["serviceAccountName"])
    _become(kubectl, account)
    try:
        yield
    finally:
        _become(kubectl, usual)


def _become(kubectl: Kubectl, account: str) -> None:
    where = ("--namespace", ROUTER_NAMESPACE)
    kubectl.run("set", "serviceaccount", _OPERATOR, account, *where)
    kubectl.run("rollout", "status", _OPERATOR, *where, "--timeout=90s", timeout=100)
