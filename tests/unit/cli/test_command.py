"""The command line: every form of output, and errors that say how to go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kubernetes.client import CoreV1Api, CustomObjectsApi
from kubernetes.client.exceptions import ApiException

from sunfleet_cli import fleet, plot
from sunfleet_cli.cluster import Cluster
from sunfleet_cli.commands import look
from sunfleet_cli.main import cli
from sunfleet_cli.sim.replay import Moment, Outcome

SMALL = ["--zipf", "1", "--minutes", "3", "--rate", "1", "--tasks", "2"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    return result.output


@pytest.mark.parametrize("policy", ["sunfleet", "hpa", "keda", "oracle"])
def test_a_simulation_speaks_to_people_and_to_programs(policy: str) -> None:
    said = run("simulate", *SMALL, "--policy", policy)
    assert "GPU hours" in said
    assert "\x1b" not in said  # no colour in a pipe
    data = json.loads(run("simulate", *SMALL, "--policy", policy, "-o", "json"))
    assert data == yaml.safe_load(run("simulate", *SMALL, "--policy", policy, "-o", "yaml"))
    assert data["requests"] == data["finished"] > 50
    assert data["moments"][0]["replicas"]["decode"] == 1


def test_a_plan_compares_one_pool_with_a_pool_for_each_model() -> None:
    data = json.loads(run("plan", *SMALL, "-o", "json"))["topologies"]
    assert data["one shared pool"]["peak_gpus"] < data["a pool each"]["peak_gpus"]
    assert "assumed" in run("plan", *SMALL)


def test_a_trace_costs_and_the_tasks_autoscaling_come_from_files(tmp_path: Path) -> None:
    trace, costs, auto = tmp_path / "trace.csv", tmp_path / "costs.yaml", tmp_path / "auto.yaml"
    trace.write_text("time,task,prompt_tokens,output_tokens\n0,a,100,5\n1,a,100,5\n")
    costs.write_text("source: here\nprefill_tokens_per_second: 100\ndecode_seconds: 0.01\nkv_tokens: 1000\n")
    auto.write_text("maxReplicas: 3\n")
    given = ["simulate", "--trace", str(trace), "--costs", str(costs), "--autoscaling", str(auto), "-o", "json"]
    data = json.loads(run(*given))
    assert (data["requests"], data["costs"]) == (2, "here")
    auto.write_text("maxReplica: 3\n")
    assert "maxReplica" in refused(*given)
    costs.write_text("source: here\n")
    assert "prefill_tokens_per_second" in refused(*given)
    trace.write_text("time\n1\n")
    assert "prompt_tokens" in refused(*given)


def test_a_budget_holds_from_the_first_moment_on_and_one_that_is_too_small_is_said() -> None:
    asked = ["simulate", "--zipf", "1", "--tasks", "5", "--minutes", "5", "-o", "json", "--budget"]
    small = CliRunner().invoke(cli, [*asked, "3"])
    assert small.exit_code == 0, small.output
    assert json.loads(small.stdout)["peak_gpus"] <= 3
    assert "would take 6 GPUs" in small.stderr
    enough = CliRunner().invoke(cli, [*asked, "6"])
    assert (enough.stderr, json.loads(enough.stdout)["peak_gpus"]) == ("", 6)
    assert "hold no prefill pod beside a decode pod" in CliRunner().invoke(cli, [*asked, "1"]).stderr


@pytest.mark.parametrize("policy", ["hpa", "keda", "oracle"])
def test_a_policy_that_knows_no_budget_is_given_none(policy: str) -> None:
    assert f"{policy} knows none" in refused("simulate", "--zipf", "1", "--budget", "4", "--policy", policy)


def test_a_popularity_that_no_number_holds_is_refused() -> None:
    assert "0<=x<=10" in refused("simulate", "--zipf", "800")


def test_a_stream_of_another_encoding_gets_what_it_has_letters_for() -> None:
    """A redirected stream of Windows, a terminal without UTF-8: the bars are lost, the figures are not."""
    program = Path(sys.executable).with_name("sunfleet")
    done = subprocess.run(
        [program, "simulate", "--zipf", "1", "--minutes", "2"], env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GPU hours" in done.stdout
    assert "?" in done.stdout


def test_traffic_must_be_said() -> None:
    assert "--trace FILE or --zipf" in refused("simulate")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell: str) -> None:
    assert "_SUNFLEET_COMPLETE" in run("completion", shell)


# Looking at a fleet ------------------------------------------------------------------------------------------------


def live(kind: str, name: str, *, ready: str = "True", reason: str = "Ready", **more: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "message": f"of {name}"}]
    spec = {"decoderRef": {"name": "base"}} if kind == "SunModel" else {}
    return {
        "metadata": {"name": name, "namespace": "team", "generation": 2, "uid": name},
        "spec": spec | more.pop("spec", {}),
        "status": {"observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "conditions": conditions, **more},
    }


SCALING = {"mode": "BuiltIn", "replicas": 1, "desiredReplicas": 4, "reason": "BudgetExceeded: 1 fits",
           "lastDecisionTime": "2026-01-01T00:00:00Z", "inputs": {"need": "3.2"}}  # fmt: skip
FLEET = (
    [live("SharedDecoder", "base")],
    [live("PrefillPool", "adapters", spec={"decoderRef": {"name": "base"}})],
    [live("SunModel", "maths", scaling=SCALING), live("SunModel", "code", ready="False", reason="Unschedulable"),
     live("SunModel", "lost", spec={"decoderRef": {"name": "none", "namespace": "far"}})],
)  # fmt: skip


POOLED = live("SunModel", "lean", spec={
    "decoderRef": {"name": "base"}, "prefill": {"adapter": {"uri": "hf://x/y", "poolRef": {"name": "adapters"}}},
})  # fmt: skip


def test_rows_show_each_decoder_with_its_pools_and_tasks_and_orphans_last() -> None:
    rows = fleet.rows(*FLEET)
    assert [row.name for row in rows] == ["base", "adapters", "maths", "code", "lost"]
    assert (rows[2].scaler, rows[2].wants, rows[2].pods, rows[2].decoder) == ("BuiltIn", "4", "1/1", "base")
    assert (rows[3].ready, rows[3].message) == ("False", "of code")
    assert (rows[4].decoder, rows[0].message) == ("far/none", "")
    assert {row.pool for row in rows} == {""}


def test_a_task_on_a_pool_names_it_and_has_no_scaler_of_its_own() -> None:
    pools = [live("PrefillPool", "adapters", scaling=SCALING, spec={"decoderRef": {"name": "base"}})]
    _, pool, task = fleet.rows(FLEET[0], pools, [POOLED])
    assert (pool.kind, pool.decoder, pool.scaler, pool.wants) == ("PrefillPool", "base", "BuiltIn", "4")
    assert (task.pool, task.scaler, task.decoder) == ("adapters", "", "base")
    assert "1 pods of PrefillPool team/adapters hold its adapter" in fleet.explain("SunModel", POOLED).count


def test_a_cluster_whose_crds_have_no_pools_yet_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = {"prefillpools": 404}

    def listed(_: object, group: str, version: str, plural: str, **__: object) -> dict[str, object]:
        if plural in refusals:
            raise ApiException(status=refusals[plural], reason="no")
        return {"items": FLEET[0] if plural == "shareddecoders" else FLEET[2]}

    monkeypatch.setattr("sunfleet_cli.cluster.connected", lambda *_: None)
    monkeypatch.setattr(CustomObjectsApi, "list_cluster_custom_object", listed)
    assert [row["kind"] for row in json.loads(run("status", "-o", "json"))] == ["SharedDecoder", *["SunModel"] * 3]
    refusals["prefillpools"] = 403
    assert "prefillpools: 403" in refused("status")
    refusals["shareddecoders"] = 404
    assert "are the CRDs installed?" in refused("status")


def test_an_explanation_names_every_problem_and_the_reason_of_the_count() -> None:
    task = live("SunModel", "maths", ready="False", reason="Unschedulable", scaling=SCALING)
    task["status"]["conditions"] += [
        {"type": "PrefillReady", "status": "False", "reason": "Unschedulable", "message": "no GPU"},
        {"type": "Accepted", "status": "True", "reason": "Accepted"},
        {"type": "BudgetExceeded", "status": "True", "reason": "BudgetExceeded", "message": "4 of 1"},
    ]
    made = fleet.explain("SunModel", task, [{"type": "Normal", "reason": "Scaled", "message": "1 -> 2"}])
    assert made.problems == (
        "PrefillReady=False (Unschedulable): no GPU", "BudgetExceeded=True (BudgetExceeded): 4 of 1",
    )  # fmt: skip
    assert "4 wanted: BudgetExceeded: 1 fits" in made.count
    assert (made.figures, len(made.events)) == ({"need": "3.2"}, 1)
    task["metadata"]["generation"] = 3
    assert "older spec" in fleet.explain("SunModel", task).verdict


def test_a_fixed_count_is_explained_too() -> None:
    assert fleet.explain("SunModel", live("SunModel", "code")).count == "1 pods: spec.replicas says 1"


class FakeCluster:
    def __init__(self, context: str | None = None) -> None: ...

    def every(self, plural: str, namespace: str | None, *, newer: bool = False) -> Sequence[dict[str, Any]]:
        return FLEET[("shareddecoders", "prefillpools", "sunmodels").index(plural)]

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        return FLEET[2][0]

    def has_namespace(self, name: str) -> bool | None:
        return {"team": True, "hidden": None}.get(name, False)

    def events(self, namespace: str, uid: str) -> Sequence[dict[str, Any]]:
        return []


def test_the_fleet_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "Cluster", FakeCluster)
    said = run("status").splitlines()
    assert said[0].split()[:3] == ["KIND", "NAMESPACE", "NAME"]
    assert len(said) == 6
    found = [row["name"] for row in json.loads(run("status", "-o", "json"))]
    assert found == ["base", "adapters", "maths", "code", "lost"]


def test_a_fleet_of_nothing_is_said_and_a_namespace_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "every", lambda *_, **__: [])
    for space in ("team", "hidden"):
        assert run("status", "-n", space).startswith(f"No SharedDecoder, PrefillPool or SunModel in namespace {space};")
    assert run("status") == "No SharedDecoder, PrefillPool or SunModel in any namespace.\n"
    assert json.loads(CliRunner().invoke(cli, ["status", "-o", "json"]).stdout) == []
    for more in ("-otable", "-ojson", "--watch"):
        assert "namespace nope does not exist" in refused("status", "-n", "nope", more)


@pytest.mark.parametrize(("answer", "known"), [(None, True), (404, False), (403, None)])
def test_a_namespace_is_missing_only_where_the_api_server_says_so(
    monkeypatch: pytest.MonkeyPatch, *, answer: int | None, known: bool | None
) -> None:
    def read(_: object, name: str, **__: object) -> str:
        if answer is not None:
            raise ApiException(status=answer, reason="no")
        return name

    monkeypatch.setattr("sunfleet_cli.cluster.connected", lambda *_: None)
    monkeypatch.setattr(CoreV1Api, "read_namespace", read)
    assert Cluster().has_namespace("team") is known


def test_the_fleet_is_looked_at_again_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, pauses = [live("SunModel", "maths")], list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        shown.append(live("SunModel", f"task-{len(pauses)}"))
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(look, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "every", lambda _, plural, __, **___: shown if plural == "sunmodels" else [])
    monkeypatch.setattr("time.sleep", pause)
    looks = [json.loads(line) for line in run("status", "--watch", "-o", "json").splitlines()]
    assert [len(rows) for rows in looks] == [1, 2, 3]
    assert pauses == [2.0] * 3


def test_an_object_is_named_by_kind_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "Cluster", FakeCluster)
    for what in ("sun/maths", "sunmodel/maths", "SunModels/maths", "spool/maths"):
        assert "need = 3.2" in run("explain", what, "-n", "team")
    for what in ("maths", "pod/x", "sun/"):
        assert "KIND/NAME" in refused("explain", what, "-n", "team")


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_simulation_is_also_a_picture(tmp_path: Path, ending: str, begins: bytes) -> None:
    picture = tmp_path / f"replay.{ending}"
    data = json.loads(run("simulate", *SMALL, "--tasks", "9", "--plot", str(picture), "-o", "json"))
    assert picture.read_bytes().startswith(begins)
    assert any(moment["ttft"] for moment in data["moments"])
    if ending == "svg":
        text = picture.read_text()
        assert all(word in text for word in ("GPU hours", "TTFT p90", "requests waiting", "4 others", "task-01"))


def test_a_picture_shows_the_decode_pool_whatever_tasks_have() -> None:
    counts = {**{f"task-{number}": 9 - number for number in range(9)}, "decode": 1}
    moments = tuple(Moment(15.0 * at, counts, sum(counts.values()), 0) for at in range(3))
    outcome = Outcome(0, 0, 0.0, 0, 1.0, {}, {}, moments, pools=("decode",))
    found = plot.groups(outcome)
    assert [name for name, _ in found] == ["decode", *(f"task-{number}" for number in range(5)), "4 others"]
    assert found[-1][1] == [4 + 3 + 2 + 1] * 3


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    assert "doc" in refused("simulate", *SMALL, "--plot", str(tmp_path / "replay.doc"))
