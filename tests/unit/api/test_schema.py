"""From models to CRDs: structural, complete, and the committed files are what the models say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from pydantic import Field

from sunfleet_api import generate
from sunfleet_api.base import ApiModel
from sunfleet_api.crd import crd
from sunfleet_api.inactive import INACTIVE
from sunfleet_api.kinds import KINDS
from sunfleet_api.markers import IMMUTABLE, SERVER_DEFAULTED, VALIDATIONS, Cel, list_map, present_before_and_after
from sunfleet_api.schema import structural

REPOSITORY = Path(__file__).resolve().parents[3]


class Inner(ApiModel):
    """An inner object."""

    RULES: ClassVar = (Cel("self.a > 0", "a is positive", ".a"),)
    a: int = Field(ge=0)


class Outer(ApiModel):
    plain: Inner
    described: Annotated[Inner, Cel("true", "outer rule")]
    """Another description."""
    optional: Inner | None = None
    told: int = 5
    """How many."""
    stored: Annotated[int, SERVER_DEFAULTED] = 5
    stored_object: Annotated[Inner | None, SERVER_DEFAULTED] = Field(default_factory=lambda: Inner(a=1))
    choice: Literal["One"] = "One"
    entries: Annotated[tuple[Inner, ...], Field(max_length=3), list_map("a")] = ()
    words: dict[str, Annotated[str, Field(max_length=9)]] = Field(default_factory=dict)


@pytest.fixture(scope="module")
def properties() -> dict[str, Any]:
    properties: dict[str, Any] = structural(Outer)["properties"]
    return properties


def test_references_are_inlined_with_their_rules(properties: dict[str, Any]) -> None:
    assert properties["plain"] == {
        "description": "An inner object.",
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer", "minimum": 0}},
        VALIDATIONS: [{"rule": "self.a > 0", "message": "a is positive", "fieldPath": ".a"}],
    }


def test_a_fields_own_description_replaces_and_its_rules_add(properties: dict[str, Any]) -> None:
    assert properties["described"]["description"] == "Another description."
    assert [rule["message"] for rule in properties["described"][VALIDATIONS]] == ["a is positive", "outer rule"]


def test_an_optional_object_is_the_object(properties: dict[str, Any]) -> None:
    assert properties["optional"] == properties["plain"]


def test_a_default_is_told_unless_the_server_is_to_store_it(properties: dict[str, Any]) -> None:
    assert properties["told"] == {"description": "How many. Default: 5.", "type": "integer"}
    assert properties["stored"] == {"type": "integer", "default": 5}
    assert properties["storedObject"]["default"] == {}


def test_a_single_choice_is_an_enum(properties: dict[str, Any]) -> None:
    assert properties["choice"]["enum"] == ["One"]


def test_lists_and_maps_are_bounded_and_keyed(properties: dict[str, Any]) -> None:
    assert properties["entries"]["maxItems"] == 3
    assert properties["entries"]["x-kubernetes-list-map-keys"] == ["a"]
    assert properties["words"]["additionalProperties"] == {"type": "string", "maxLength": 9}


def test_what_a_structural_schema_cannot_hold_is_refused_with_its_path() -> None:
    class Wrong(ApiModel):
        either: int | str = 1

    with pytest.raises(ValueError, match=r"Wrong\.either: a structural schema cannot hold anyOf"):
        structural(Wrong)


def test_a_field_of_any_type_is_refused() -> None:
    class Wrong(ApiModel):
        anything: Any = None

    with pytest.raises(ValueError, match=r"Wrong\.anything: a structural schema needs one type"):
        structural(Wrong)


def test_presence_is_checked_step_by_step() -> None:
    rule = present_before_and_after("engine.dtype")
    assert rule.rule == (
        "(has(self.engine) && has(self.engine.dtype)) == (has(oldSelf.engine) && has(oldSelf.engine.dtype))"
    )
    assert rule.field_path == ".engine"


def _nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}[]")


NODES = [
    (kind + path, node)
    for kind in KINDS
    for path, node in _nodes(crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")
]


def test_every_list_of_objects_is_merged_by_key_or_says_that_it_is_not() -> None:
    silent = [path for path, node in NODES if node.get("type") == "array" and "x-kubernetes-list-type" not in node]
    assert silent == []


def test_every_list_map_and_text_is_bounded() -> None:
    limit = {"array": "maxItems", "string": "maxLength"}
    unbounded = [
        path
        for path, node in NODES
        if (keyword := limit.get(node.get("type", ""))) and keyword not in node and "enum" not in node
        if not path.endswith((".apiVersion", ".kind"))
    ]
    assert unbounded == []
    assert [path for path, node in NODES if "additionalProperties" in node and "maxProperties" not in node] == []


def test_only_fields_that_no_profile_can_set_are_defaulted_by_the_server() -> None:
    profiled = ("engine", "template", "rollout", "autoscaling", "traffic", "verification")
    defaulted = [path for path, node in NODES if "default" in node]
    assert [path for path in defaulted if path.split(".")[2] in profiled] == []
    assert "SunModel.spec.replicas" in defaulted


def test_an_immutable_field_that_may_be_absent_is_also_guarded_against_being_set_and_unset() -> None:
    entry = IMMUTABLE.entry()
    optional = [
        path
        for path, node in NODES
        for name, child in node.get("properties", {}).items()
        if entry in child.get(VALIDATIONS, ()) and name not in node.get("required", ())
        if not _presence_guarded(path, name)
    ]
    assert optional == []


def _presence_guarded(parent: str, name: str) -> bool:
    rules = " ".join(
        rule["rule"] for path, node in NODES if parent.startswith(path) for rule in node.get(VALIDATIONS, ())
    )
    return f"{name})) == (has(oldSelf." in rules


def test_every_field_without_effect_exists() -> None:
    paths = {path for path, _ in NODES}
    assert [path for kind, fields in INACTIVE.items() for path in fields if f"{kind}.spec.{path}" not in paths] == []


def test_the_committed_files_are_what_the_models_say() -> None:
    assert generate.stale(REPOSITORY, generate.outputs()) == [], "run `python -m sunfleet_api.generate`"


def test_the_output_is_the_same_every_time() -> None:
    assert generate.outputs() == generate.outputs()


def test_yaml_says_the_same_as_the_document() -> None:
    for kind in KINDS:
        assert yaml.safe_load(generate.to_yaml(crd(kind))) == crd(kind)


def test_check_fails_on_missing_and_changed_files_and_writing_mends_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--root", str(tmp_path)]
    assert generate.main([*arguments, "--check"]) == 1
    assert generate.main(arguments) == 0
    assert generate.main([*arguments, "--check"]) == 0
    (tmp_path / "docs/api.md").write_text("by hand")
    capsys.readouterr()
    assert generate.main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err == "docs/api.md is stale: run `python -m sunfleet_api.generate`\n"


def test_kubectl_explain_has_something_to_say_about_every_field() -> None:
    silent = [
        path
        for path, node in NODES
        if node.get("description", "Default:").startswith("Default:")
        if not path.endswith(("[]", ".apiVersion", ".kind", ".metadata", ".metadata.name"))
    ]
    assert silent == []
