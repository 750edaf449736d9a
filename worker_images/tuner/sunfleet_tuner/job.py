"""The main process of a pod that tunes or quantises: ``python -m sunfleet_tuner.job``.

It brings data here, starts the work in processes of its own, copies checkpoints into the bucket meanwhile, says in the
log how far the run is, and leaves a report. The work itself is the command that a person would run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from sunfleet_api.settings import UnusableSettings, read
from sunfleet_api.tuning import EXIT_HOPELESS, PROGRESS_MARK, QuantizeJob, TuneJob, TuningReport
from sunfleet_api.weights import parse_uri
from sunfleet_tuner import commands
from sunfleet_tuner.bucket import SCHEMES, Bucket, Mirror
from sunfleet_tuner.errors import StoreFailed, TuningError
from sunfleet_tuner.failure import read_failure
from sunfleet_tuner.job_settings import TERMINATION_LOG, JobSettings
from sunfleet_tuner.outcome import quantised, tuned

_POLL_SECONDS: Final = 1.0


@dataclass
class Pod:
    """Folders of this pod and what its settings say."""

    settings: JobSettings
    scratch: Path
    progress: Path = field(init=False)
    failure: Path = field(init=False)

    def __post_init__(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.progress, self.failure = self.scratch / "progress.json", self.scratch / "failure.json"


class WorkEndedError(Exception):
    """The processes ended badly and said nothing that a person could act on."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the work ended with exit code {code}; its log says more")
        self.code = code


def main() -> int:
    """0; ``EXIT_HOPELESS`` when another attempt would fail alike; else what the work ended with."""
    try:
        settings = read(JobSettings)
    except UnusableSettings as error:
        print(f"error: settings cannot be used:\n{error}", file=sys.stderr)
        wrong = f"settings of this pod cannot be used: {'; '.join(str(error).splitlines())}"
        _leave(TERMINATION_LOG, TuningReport(error_reason="InvalidSettings", error_message=wrong[:2000]))
        return EXIT_HOPELESS
    try:
        report = run(Pod(settings, settings.scratch))
    except WorkEndedError as error:  # no report: the end of the log is the message
        print(f"error: {error}", file=sys.stderr)
        return error.code if 0 < error.code < 256 and error.code != EXIT_HOPELESS else 1
    except (TuningError, OSError) as error:
        reason = error.reason if isinstance(error, TuningError) else "TuningFailed"
        print(f"error: {error}", file=sys.stderr)
        _leave(settings.termination_log, TuningReport(error_reason=reason, error_message=str(error)[:2000]))
        return 1 if isinstance(error, StoreFailed | OSError) else EXIT_HOPELESS
    _leave(settings.termination_log, report)
    return 0


def run(pod: Pod) -> TuningReport:
    """Do the job of the settings."""
    job = pod.settings.job
    return _tune(job, pod) if isinstance(job, TuneJob) else _quantize(job, pod)


def _tune(job: TuneJob, pod: Pod) -> TuningReport:
    output, speaks = Path(job.output_path), pod.settings.index == 0
    work, runs = output.with_name(f"{output.name}.work"), output.with_name(f"{output.name}.runs")
    config = {
        **job.settings,
        "data": _rows(job.data, job.data_path, pod, "train"),
        **({"validation": _rows(job.validation, job.validation_path, pod, "validation")} if job.validation else {}),
        "output": str(output), "work": str(work), "progress": str(pod.progress),
        "sharded": str(job.sharded),
    }  # fmt: skip
    file = pod.scratch / "tune.yaml"
    file.write_text(yaml.safe_dump(commands.typed(config)))
    bucket = _bucket(job.output, pod) if speaks else None
    mirror = _resume(bucket, output, work, runs) if bucket else None
    try:
        _watch(commands.tune(job, file, pod.failure, pod.settings.index), pod)
    finally:
        if mirror is not None and work.exists():
            mirror.stop()
    if not speaks:
        return TuningReport()
    if bucket is not None:
        bucket.beside(".runs").push(runs)  # before the module, with which no later attempt would make them again
        bucket.push(output, last="sunfleet.json")
        bucket.beside(".work").remove()
    return tuned(output)


def _quantize(job: QuantizeJob, pod: Pod) -> TuningReport:
    output, base = Path(job.output_path), Path(job.base_path)
    bucket = _bucket(job.output, pod)
    if bucket is not None and "config.json" in bucket.names():
        bucket.pull(output)
    if not commands.is_quantised(output, base, job):
        calibration = _rows(job.data, job.data_path, pod, "train") if job.data else ""
        _watch(commands.quantize(job, calibration, pod.failure), pod)
        commands.note_quantised(output, base, job)
        if bucket is not None:
            bucket.push(output, last="config.json")
    return quantised(output)


def _rows(uri: str, mounted: str, pod: Pod, name: str) -> str:
    """What the tuner takes for ``data``: a path here, or a name on the hub."""
    if mounted:
        return mounted
    parsed = parse_uri(uri)
    if parsed.scheme not in SCHEMES:
        return uri.removeprefix("hf://")
    folder = pod.scratch / name
    came = Bucket.of(uri, pod.settings.data).pull(folder)
    if not came:
        raise StoreFailed(f"{uri} holds no objects: check bucket and path")
    return str(folder / came[0] if len(came) == 1 else folder)


def _bucket(uri: str, pod: Pod) -> Bucket | None:
    return Bucket.of(uri, pod.settings.output) if parse_uri(uri).scheme in SCHEMES else None


def _resume(bucket: Bucket, output: Path, work: Path, runs: Path) -> Mirror:
    """What an earlier pod left in the bucket, here again; and a mirror for what this one makes."""
    if "sunfleet.json" in bucket.names():
        bucket.pull(output)
    beside = bucket.beside(".work")
    beside.pull(work)
    events = bucket.beside(".runs")
    events.pull(runs)
    mirror = Mirror(beside, work, events, runs)
    mirror.start()
    return mirror


def _watch(command: list[str], pod: Pod) -> None:
    """Run it to its end, repeating its progress in the log. SIGTERM goes on to it."""
    pod.failure.unlink(missing_ok=True)
    told = ""
    with subprocess.Popen(command, env=pod.settings.environment()) as child:
        before = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        try:
            while (code := _ended(child)) is None:
                told = _tell(pod.progress, told)
        finally:
            signal.signal(signal.SIGTERM, before)
    _tell(pod.progress, told)
    if code == 0:
        return
    failure = read_failure(pod.failure)
    if failure is None:
        raise WorkEndedError(code if code > 0 else 128 - code)
    raise commands.as_error(failure)


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """Its exit code, or ``None`` when it still works after a moment."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_POLL_SECONDS)
    return None


def _tell(progress: Path, told: str) -> str:
    """Print news; what was told last."""
    try:
        news = progress.read_text().strip()
    except OSError:
        return told
    if news and news != told:
        print(f"{PROGRESS_MARK}{news}", flush=True)
    return news


def _leave(message: Path, report: TuningReport) -> None:
    """In a pod ``message`` becomes the termination message."""
    print(report.model_dump_json(), flush=True)
    if message.exists():
        message.write_text(report.model_dump_json())


if __name__ == "__main__":
    began = time.monotonic()
    ended = main()
    print(f"ended with {ended} after {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(ended)
