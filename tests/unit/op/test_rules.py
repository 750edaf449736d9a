"""Rules of the room that a reader of one file could not see: thin handlers, least rights, kopf's settings."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import kopf
import yaml

import sunfleet_operator
from sunfleet_operator.kinds import ALL
from sunfleet_operator.kopf_settings import configure
from sunfleet_operator.settings import Settings

ROOM = Path(sunfleet_operator.__file__).parent
MANIFESTS = ROOM.parents[1] / "manifests" / "base" / "operator"
LONGEST_HANDLER = 15  # lines


def _decorators(tree: ast.AST) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(f, ast.unparse(d)) for f in functions for d in f.decorator_list if ast.unparse(d).startswith("kopf.")]


def test_kopf_decorates_functions_in_handlers_only_and_they_are_short() -> None:
    found = 0
    for path in ROOM.rglob("*.py"):
        for function, _ in _decorators(ast.parse(path.read_text())):
            assert path.parent.name == "handlers", f"{path}: {function.name}"
            assert (function.end_lineno or 0) - function.lineno < LONGEST_HANDLER, function.name
            found += 1
    assert found >= 8


def test_kopf_writes_nothing_since_only_events_are_handled() -> None:
    for path in (ROOM / "handlers").glob("*.py"):
        for function, decorator in _decorators(ast.parse(path.read_text())):
            kind = decorator.split("(")[0]
            assert kind in {"kopf.on.event", "kopf.on.startup", "kopf.on.cleanup", "kopf.on.login"}, function.name


def _granted() -> dict[tuple[str, str], set[str]]:
    rights: dict[tuple[str, str], set[str]] = {}
    for document in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text()):
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def test_the_rights_are_exactly_the_verbs_in_use() -> None:
    used = {(kind.group, kind.plural): set(kind.verbs) for kind in ALL}
    used |= {(kind.group, f"{kind.plural}/{sub}"): {"patch"} for kind in ALL for sub in kind.subresources}
    assert _granted() == used


def test_every_rule_says_what_it_is_for() -> None:
    lines = (MANIFESTS / "rbac.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("- apiGroups") and "leases" not in lines[number + 1]:
            assert lines[number - 1].startswith("# "), line


def test_kopf_differs_from_its_defaults_where_that_matters() -> None:
    defaults, ours = kopf.OperatorSettings(), kopf.OperatorSettings()
    configure(ours, Settings(watch_silence_seconds=17))
    changed = {
        "persistence": ("finalizer", "progress_storage", "diffbase_storage"),
        "posting": ("enabled",),
        "watching": (
            "server_timeout",
            "client_timeout",
            "connect_timeout",
            "inactivity_timeout",
            "reconnect_backoff",
            "chunk_size",
        ),
        "networking": ("request_timeout", "connect_timeout"),
        "scanning": ("disabled",),
    }
    for group, fields in changed.items():
        for field in fields:
            # An unknown name would be set without a word, and do nothing.
            assert field in {known.name for known in dataclasses.fields(getattr(defaults, group))}
            assert _field(ours, group, field) != _field(defaults, group, field), f"{group}.{field}"
    assert {str(s.any_name) for s in ours.watching.label_selectors} == {
        "pods",
        "deployments",
        "jobs",
        "networkpolicies",
    }
    assert {str(s.any_name) for s in ours.watching.field_selectors} == {"namespaces"}
    assert "kopf.zalando.org" not in str(vars(ours.persistence.progress_storage))


def _field(settings: kopf.OperatorSettings, group: str, field: str) -> Any:
    return getattr(getattr(settings, group), field)


def test_the_deployment_runs_restricted_and_is_one_writer() -> None:
    deployment = yaml.safe_load((MANIFESTS / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    env = {entry["name"] for entry in container["env"]}
    assert "SUNFLEET_OPERATOR_LEADER_ELECTION_NAMESPACE" in env
    known = {f"SUNFLEET_OPERATOR_{name.upper()}" for name in Settings.model_fields}
    assert env <= known
