"""The main process of a tuner pod, with a stand-in for the work: data, checkpoints, progress, reports, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from sunfleet_api.tuning import EXIT_HOPELESS, QuantizeJob, TuneJob, TuningReport, progress_of
from sunfleet_tuner import commands, job
from sunfleet_tuner.bucket import Bucket
from sunfleet_tuner.commands import typed
from sunfleet_tuner.errors import StoreFailed
from sunfleet_tuner.job_settings import JobSettings

# The work: leaves a module, or fails as its settings say.
WORK = """
import json, pathlib, sys, yaml
config = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
failure, output = pathlib.Path(sys.argv[2]), pathlib.Path(config["output"])
name = config.get("name", "")
if name == "killed":
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
if name.startswith("Out") or name.startswith("Store"):
    failure.write_text(json.dumps({"reason": name, "message": "step 3: try less"}))
    sys.exit(1)
work = pathlib.Path(config["work"])
seen = sorted(path.name for path in work.glob("step-*")) if work.exists() else []
(work / "step-2").mkdir(parents=True)
(work / "step-2" / "record.json").write_text("{}")
pathlib.Path(config["progress"]).write_text(json.dumps({"step": 2, "totalSteps": 2, "loss": "0.5"}))
output.mkdir(parents=True)
(output / "adapter_config.json").write_text(json.dumps({"seen": seen, "data": config["data"]}))
(output / "golden.json").write_text("{}")
if config.get("trackers"):
    runs = output.with_name(output.name + ".runs") / "sunfleet"
    runs.mkdir(parents=True, exist_ok=True)
    (runs / "events").write_text("")
meta = {"tuned_against": "sha256:d", "kv_fingerprint": {"version": 1, "digest": "k"}, "metrics": {"steps": 2.0}}
(output / "sunfleet.json").write_text(json.dumps(meta))
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(
        Bucket, "of", classmethod(lambda cls, uri, _: cls(uri, made, uri.partition("://")[2].partition("/")[2]))
    )
    return made


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        commands, "tune", lambda _, file, failure, __: [sys.executable, "-c", WORK, str(file), str(failure)]
    )
    monkeypatch.setattr(job, "_POLL_SECONDS", 0.05)


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, **fields: Any) -> tuple[int, TuningReport]:
    given = {
        "data": "hf://org/rows@main",
        "output": "pvc://modules/maths",
        "output_path": str(folder / "out"),
        **fields,
    }
    report = folder / "report"
    report.touch()
    monkeypatch.setenv("SUNFLEET_TUNER_JOB", TuneJob.model_validate(given).model_dump_json())
    monkeypatch.setenv("SUNFLEET_TUNER_SCRATCH", str(folder / "scratch"))
    monkeypatch.setenv("SUNFLEET_TUNER_REPORT", str(report))
    code = job.main()
    return code, TuningReport.model_validate_json(report.read_text() or "{}")


def made(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "adapter_config.json").read_text()))


def test_a_run_on_a_claim_reports_its_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = start(monkeypatch, tmp_path, data="pvc://data/x", data_path="/data/x")
    assert code == 0
    assert report.digest.startswith("sha256:")
    assert (report.decoder_digest, report.kv_fingerprint.digest, report.golden) == ("sha256:d", "k", True)
    assert report.metrics == {"steps": "2"}
    assert made(tmp_path)["data"] == "/data/x"
    progress = progress_of(capsys.readouterr().out)
    assert progress is not None
    assert (progress.step, progress.loss) == (2, "0.5")


def test_a_dataset_of_the_hub_keeps_its_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start(monkeypatch, tmp_path)
    assert made(tmp_path)["data"] == "org/rows@main"


def test_a_run_in_a_bucket_goes_on_from_the_checkpoints_there_and_takes_them_away_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore
) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "record.json").write_text("{}")
    Bucket.of("s3://store/maths.work/step-1", {}).push(earlier)
    (earlier / "train.jsonl").write_text("{}")
    Bucket.of("s3://store/rows", {}).push_file(earlier / "train.jsonl")
    code, _ = start(monkeypatch, tmp_path, data="s3://store/rows/train.jsonl", output="s3://store/maths")
    assert code == 0
    assert made(tmp_path)["seen"] == ["step-1"]
    assert Path(made(tmp_path)["data"]).name == "train.jsonl"
    assert Bucket.of("s3://store/maths", {}).names() == ["adapter_config.json", "golden.json", "sunfleet.json"]
    assert Bucket.of("s3://store/maths.work", {}).names() == []


def test_what_tensorboard_shows_follows_a_module_into_its_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore
) -> None:
    start(monkeypatch, tmp_path, output="s3://store/maths", settings={"trackers": "tensorboard"})
    assert Bucket.of("s3://store/maths.runs", {}).names() == ["sunfleet/events"]


def test_what_an_earlier_pod_left_for_tensorboard_is_kept_and_there_before_the_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore
) -> None:
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "events-1").touch()
    runs = Bucket.of("s3://store/maths.runs", {})
    runs.beside("/sunfleet").push(tmp_path / "earlier")
    push = Bucket.push

    def lost(bucket: Bucket, folder: Path, *, last: str = "") -> None:
        push(bucket, folder, last=last)
        if last == "sunfleet.json":
            raise StoreFailed("the node is lost")

    monkeypatch.setattr(Bucket, "push", lost)
    code, _ = start(monkeypatch, tmp_path, output="s3://store/maths", settings={"trackers": "tensorboard"})
    assert code == 1
    assert runs.names() == ["sunfleet/events", "sunfleet/events-1"]
    assert sorted(path.name for path in (tmp_path / "out.runs" / "sunfleet").iterdir()) == ["events", "events-1"]


def test_pods_but_the_first_write_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    code, report = start(monkeypatch, tmp_path, output="s3://store/maths", nodes=2, main_address="a:1")
    assert (code, report) == (0, TuningReport())
    assert Bucket.of("s3://store/maths", {}).names() == []


@pytest.mark.parametrize(("reason", "code"), [("OutOfMemory", EXIT_HOPELESS), ("StoreFailed", 1)])
def test_a_failure_is_told_in_the_works_own_words_and_tried_again_only_where_that_may_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, code: int
) -> None:
    found, report = start(monkeypatch, tmp_path, settings={"name": reason})
    assert found == code
    assert (report.error_reason, report.error_message) == (reason, "step 3: try less")


def test_work_that_is_killed_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, report = start(monkeypatch, tmp_path, settings={"name": "killed"})
    assert (code, report.error_reason) == (137, "")


def test_data_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore) -> None:
    code, report = start(monkeypatch, tmp_path, data="s3://store/nothing")
    assert (code, report.error_reason) == (1, "StoreFailed")
    assert "s3://store/nothing" in report.error_message


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "SUNFLEET_TUNER_JOB: is not set"),
        ({"SUNFLEET_TUNER_JOB": "{"}, "SUNFLEET_TUNER_JOB: must be a mapping of fields"),
        ({"JOB_COMPLETION_INDEX": "last"}, "JOB_COMPLETION_INDEX: must be a valid integer"),
    ],
)
def test_settings_that_cannot_be_used_are_told_by_variable_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    report = tmp_path / "termination-log"
    report.touch()
    monkeypatch.setattr(job, "TERMINATION_LOG", report)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert job.main() == EXIT_HOPELESS
    said = TuningReport.model_validate_json(report.read_text())
    assert said.error_reason == "InvalidSettings"
    assert words in said.error_message


def test_the_work_sees_no_secret_of_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUNFLEET_DATA_HF_TOKEN", "token")
    monkeypatch.setenv("SUNFLEET_OUTPUT_AWS_SECRET_ACCESS_KEY", "secret")
    start(monkeypatch, tmp_path)
    environment = JobSettings().environment()
    assert environment["HF_TOKEN"] == "token"
    assert "secret" not in environment.values()


def test_words_become_the_settings_that_the_tuner_reads() -> None:
    assert typed({"gradient_checkpointing": "True", "epochs": "2"}) == {
        "gradient_checkpointing": True, "epochs": "2", "save_steps": "100",
    }  # fmt: skip


def test_a_checkpoint_is_quantised_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: MemoryStore) -> None:
    base, output = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    (base / "config.json").write_text("{}")
    made = QuantizeJob(base_path=str(base), output="s3://store/w4", output_path=str(output))
    monkeypatch.setenv("SUNFLEET_TUNER_JOB", made.model_dump_json())
    monkeypatch.setenv("SUNFLEET_TUNER_SCRATCH", str(tmp_path / "scratch"))
    script = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir(); (p / 'config.json').write_text('4 bit')"
    ran: list[str] = []

    def work(quantize: QuantizeJob, calibration: str, failure: Path) -> list[str]:
        ran.append(quantize.output)
        return [sys.executable, "-c", script, quantize.output_path]

    monkeypatch.setattr(commands, "quantize", work)
    first = job.run(job.Pod(JobSettings(), tmp_path / "scratch"))
    for path in output.iterdir():
        path.unlink()
    output.rmdir()
    again = job.run(job.Pod(JobSettings(), tmp_path / "scratch"))
    assert ran == ["s3://store/w4"]
    assert first == again
    assert first.digest.startswith("sha256:")
