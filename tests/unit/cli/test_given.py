"""Files for a replay: what is wrong is said by file, field and how to mend it; manifests are understood."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sunfleet_cli import given
from sunfleet_cli.sim.costs import DEFAULT

COSTS = "source: here\nprefill_tokens_per_second: 100\ndecode_seconds: 0.01\nkv_tokens: 1000\n"
MODEL = (
    "kind: SunModel\nmetadata: {name: maths, managedFields: []}\nspec: {decoderRef: {name: base}, autoscaling: %s}\n"
)
DECODER = "kind: SharedDecoder\nmetadata: {name: base}\nspec: {autoscaling: %s}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given.yaml"


def costs_refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(click.ClickException) as refused:
        given.costs(file)
    return refused.value.message


def scaling_refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(click.ClickException) as refused:
        given.scaling(file)
    return refused.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COSTS + "kv_token: 1\n", "kv_token: is no field here: did you mean kv_tokens?"),
        (COSTS + "zzz: 1\n", "zzz: is no field here: remove it; there are decode_seconds, decode_startup_seconds,"),
        (COSTS.replace("0.01", "-1"), "decode_seconds: must be greater than 0, not -1"),
        (COSTS.replace("0.01", ".inf"), "decode_seconds: must be a finite number, not inf"),
        (COSTS.replace("kv_tokens: 1000\n", ""), "kv_tokens: is missing: add it"),
        ("", "the whole: must be a mapping of fields, `name: value`, not nothing"),
        ("- 1\n", "the whole: must be a mapping of fields, `name: value`, not [1]"),
    ],
)
def test_what_is_wrong_with_costs_is_said_by_field(file: Path, text: str, said: str) -> None:
    message = costs_refused(file, text)
    assert message.startswith(f"{file}: {said}")
    assert "pydantic" not in message
    assert "\n" not in message


def test_every_wrong_field_has_a_line_with_the_files_name(file: Path) -> None:
    message = costs_refused(file, "source: 3\nkv_tokens: x\nprefill_tokens_per_second: 1\n")
    assert [line.split(": ")[1] for line in message.splitlines()] == ["source", "decode_seconds", "kv_tokens"]
    assert all(line.startswith(f"{file}: ") for line in message.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("maxReplicas: 3\nminReplica: 1\n", "minReplica: is no field here: did you mean minReplicas?"),
        ("maxReplicas: 3\nbehavior: {scaleUp: {policy: 1}}\n", "behavior.scaleUp.policy: is no field here: did"),
        ("maxReplicas: 3\nbehavior: {scaleUp: {policies: [{type: Pods, value: 0, periodSeconds: 1}]}}\n",
         "behavior.scaleUp.policies[0].value: must be greater than or equal to 1, not 0"),
        ("maxReplicas: 3\nfallback: never\n", "fallback: "),
        ("maxReplicas: 2\nminReplicas: 5\n", "minReplicas: 5 must not be greater than maxReplicas, 2"),
        ("maxReplicas: 2\nscaleToZero: {}\n", "scaleToZero: needs minReplicas: 0: add that"),
        ("maxReplicas: 2\nbehavior: {scaleDown: {tolerance: some}}\n", "behavior.scaleDown.tolerance: must be a quant"),
        (MODEL % "{maxReplicas: 0}", "SunModel maths: spec.autoscaling.maxReplicas: must be greater than"),
        (DECODER % "{maxReplicas: 2, minReplicas: 0}", "SharedDecoder base: spec.autoscaling.minReplicas: a decode"),
        (DECODER % "{maxReplicas: 2, minReplicas: 0, scaleToZero: {}}",
         "SharedDecoder base: spec.autoscaling.scaleToZero: a decode pool is never scaled to zero"),
        (MODEL % "null", "no SunModel or SharedDecoder with a spec.autoscaling is in it"),
        ("kind: Deployment\n", "no SunModel or SharedDecoder with a spec.autoscaling is in it"),
        (f"{MODEL % '{maxReplicas: 2}'}---\n{(MODEL % '{maxReplicas: 3}').replace('maths', 'code')}",
         "SunModel maths, SunModel code differ in spec.autoscaling"),
        ("maxReplicas: 2\n---\nmaxReplicas: 3\n", "2 YAML documents without a kind"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_autoscaling_is_said_by_field(file: Path, text: str, said: str) -> None:
    message = scaling_refused(file, text)
    assert message.startswith(f"{file}: {said}")
    assert len(message.splitlines()) == 1


def test_a_file_that_is_no_yaml_names_the_line(file: Path) -> None:
    assert costs_refused(file, "source: here\n  kv: [\n").startswith(f"{file}, line 2, column ")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(click.ClickException, match="no YAML text"):
        given.scaling(file)


def test_a_file_that_is_nested_without_end_is_refused(file: Path) -> None:
    file.write_text("[" * 100_000)
    with pytest.raises(click.ClickException, match="no YAML text"):
        given.costs(file)


def test_a_decode_pool_is_scaled_as_the_tasks_but_never_to_zero(file: Path) -> None:
    file.write_text("maxReplicas: 3\nminReplicas: 0\nscaleToZero: {idleSeconds: 60}\n")
    found = given.scaling(file)
    assert (found.tasks.max_replicas, found.tasks.min_replicas, found.tasks.scale_to_zero is None) == (3, 0, False)
    assert (found.pools.max_replicas, found.pools.min_replicas, found.pools.scale_to_zero) == (3, 1, None)


@pytest.mark.parametrize("listed", [False, True])
def test_manifests_say_it_for_tasks_and_for_pools(file: Path, *, listed: bool) -> None:
    documents = [DECODER % "{maxReplicas: 5}", MODEL % "{maxReplicas: 2}", "kind: Secret\nmetadata: {name: s}\n"]
    as_items = "".join("- " + text.rstrip().replace("\n", "\n  ") + "\n" for text in documents)
    file.write_text(f"kind: List\nitems:\n{as_items}" if listed else "---\n".join(documents))
    found = given.scaling(file)
    assert (found.tasks.max_replicas, found.pools.max_replicas) == (2, 5)


def test_a_decoder_alone_leaves_the_tasks_as_they_are_by_default(file: Path) -> None:
    file.write_text(DECODER % "{maxReplicas: 5}")
    assert given.scaling(file).tasks == given.scaling(None).tasks
    assert given.scaling(file).pools.max_replicas == 5
    assert given.costs(None) is DEFAULT
