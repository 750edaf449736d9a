"""Files that a person gives to ``simulate`` and ``plan``; what is wrong is said by file, field and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml
from pydantic import BaseModel, ValidationError

from sunfleet_api.explained import explained
from sunfleet_api.scaling import Autoscaling
from sunfleet_cli.sim.costs import DEFAULT, Costs
from sunfleet_operator.autoscale import behavior

M = TypeVar("M", bound=BaseModel)
_TASKS: Final = "SunModel"
_POOLS: Final = "SharedDecoder"


@dataclass(frozen=True)
class Scaling:
    """Who decides the counts of every task's prefill pods, and of every decode pool's."""

    tasks: Autoscaling
    pools: Autoscaling


def costs(path: Path | None) -> Costs:
    """The figures of ``--costs``; without a file the built-in ones."""
    if path is None:
        return DEFAULT
    documents = _documents(path)
    if len(documents) != 1:
        raise click.ClickException(
            f"{path}: {len(documents)} YAML documents; --costs takes one, with the figures of a pod"
        )
    return _read(path, Costs, documents[0], "")


def scaling(path: Path | None) -> Scaling:
    """What ``--autoscaling`` says: a ``spec.autoscaling`` by itself, or manifests that have one."""
    if path is None:
        return _for_both(Autoscaling(max_replicas=64))
    documents = [one for document in _documents(path) for one in _items(document)]
    if not any(isinstance(one, Mapping) and "kind" in one for one in documents):
        if len(documents) != 1:
            raise click.ClickException(
                f"{path}: {len(documents)} YAML documents without a kind; --autoscaling takes one spec.autoscaling, or "
                "manifests"
            )
        return _for_both(_autoscaling(path, documents[0], ""))
    return _of_manifests(path, documents)


def _of_manifests(path: Path, documents: list[Any]) -> Scaling:
    found: dict[str, dict[str, Autoscaling]] = {_TASKS: {}, _POOLS: {}}
    for document in documents:
        kind, name = (str(document.get("kind")), _name(document)) if isinstance(document, Mapping) else ("?", "?")
        if kind not in found:
            continue  # a file of manifests has others too
        spec = document.get("spec")
        given = spec.get("autoscaling") if isinstance(spec, Mapping) else None
        if given is not None:
            found[kind][f"{kind} {name}"] = _autoscaling(
                path, given, f"{kind} {name}: spec.autoscaling.", pool=kind == _POOLS
            )
    tasks, pools = _one(path, found[_TASKS]), _one(path, found[_POOLS])
    if tasks is None and pools is None:
        raise click.ClickException(
            f"{path}: no {_TASKS} or {_POOLS} with a spec.autoscaling is in it; add one, or give the content of "
            "spec.autoscaling by itself (maxReplicas: 8)"
        )
    both = _for_both(tasks or Autoscaling(max_replicas=64))
    return Scaling(both.tasks, pools or both.pools)


def _one(path: Path, named: Mapping[str, Autoscaling]) -> Autoscaling | None:
    """All that are given must say the same: the simulator scales every task, and every pool, by one."""
    if len(set(map(Autoscaling.model_dump_json, named.values()))) > 1:
        raise click.ClickException(
            f"{path}: {', '.join(named)} differ in spec.autoscaling, and a replay takes one for all; leave one in"
        )
    return next(iter(named.values()), None)


def _for_both(tasks: Autoscaling) -> Scaling:
    """A decode pool is scaled as the tasks are, but never to zero."""
    return Scaling(tasks, tasks.model_copy(update={"min_replicas": 1, "scale_to_zero": None}))


def _autoscaling(path: Path, document: object, prefix: str, *, pool: bool = False) -> Autoscaling:
    auto = _read(path, Autoscaling, document, prefix)
    fault = _broken_rule(auto, pool=pool)
    if fault:
        raise click.ClickException(f"{path}: {prefix}{fault}")
    return auto


def _broken_rule(auto: Autoscaling, *, pool: bool) -> str:
    """The API server's rules for several fields at once (``RULES``, in CEL) and for quantities; empty when all hold."""
    if auto.min_replicas > auto.max_replicas:
        return (
            f"minReplicas: {auto.min_replicas} must not be greater than maxReplicas, {auto.max_replicas}: lower the "
            "one or raise the other"
        )
    if auto.scale_to_zero is not None and (pool or auto.min_replicas != 0):
        what = (
            "a decode pool is never scaled to zero: remove it"
            if pool
            else "needs minReplicas: 0: add that, or remove it"
        )
        return f"scaleToZero: {what}"
    if pool and auto.min_replicas < 1:
        return "minReplicas: a decode pool keeps at least 1"
    for direction, rules in (("scaleUp", behavior.up_rules), ("scaleDown", behavior.down_rules)):
        try:
            rules(auto.behavior)
        except ValueError:
            return f"behavior.{direction}.tolerance: must be a quantity such as 0.1 or 100m"
    return ""


def _read(path: Path, model: type[M], document: object, prefix: str) -> M:
    try:
        return model.model_validate(document, extra="forbid")
    except ValidationError as error:
        faults = explained(error, document, model).splitlines()
        raise click.ClickException("\n".join(f"{path}: {prefix}{fault}" for fault in faults)) from None


def _documents(path: Path) -> list[Any]:
    try:
        return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None] or [None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise click.ClickException(f"{path}{where}: this is no YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise click.ClickException(f"{path}: this is no YAML text: {error}") from None
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None


def _items(document: Any) -> list[Any]:
    """A list as `kubectl get -o yaml` writes it is its objects."""
    if isinstance(document, Mapping) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "?")) if isinstance(metadata, Mapping) else "?"
