"""What a pod starts: one process, torchrun on one node, torchrun on several; and failures as errors."""

from __future__ import annotations

from pathlib import Path

from sunfleet_api.tuning import QuantizeJob, TuneJob
from sunfleet_tuner import errors
from sunfleet_tuner.commands import as_error, quantize, tune
from sunfleet_tuner.failure import Failure

CONFIG, FAILURE = Path("/tmp/tune.yaml"), Path("/tmp/failure.json")


def words(index: int = 0, **fields: object) -> str:
    job = TuneJob.model_validate({"data": "hf://a/b", "output": "pvc://c/d", "output_path": "/output/d", **fields})
    return " ".join(tune(job, CONFIG, FAILURE, index)[1:])


def test_one_process_needs_no_launcher() -> None:
    assert words() == f"-m sunfleet_tuner --failure {FAILURE} tune --config {CONFIG}"


def test_several_gpus_of_one_pod_are_torchruns() -> None:
    assert words(processes=8).startswith("-m torch.distributed.run --nnodes 1 --nproc-per-node 8 --standalone -m")


def test_each_of_several_pods_knows_its_rank_and_the_first_ones_address() -> None:
    said = words(index=1, processes=2, nodes=3, main_address="maths-tuner-0.maths-tuner:29500")
    assert "--nnodes 3 --nproc-per-node 2 --node-rank 1" in said
    assert "--master-addr maths-tuner-0.maths-tuner --master-port 29500" in said


def test_calibration_asks_for_gptq_in_the_compressors_environment() -> None:
    job = QuantizeJob(base_path="/weights/model", output="pvc://c/d", output_path="/output/d")
    assert "gptq" not in quantize(job, "", FAILURE)
    said = " ".join(quantize(job, "/data/rows.jsonl", FAILURE))
    assert "--method gptq --calibration /data/rows.jsonl --samples 512 --python /opt/sunfleet/compressor" in said
    of_several = job.model_copy(update={"subset": "main"})
    assert "--samples 512 --subset main" in " ".join(quantize(of_several, "org/rows", FAILURE))


def test_a_failure_becomes_the_error_it_was() -> None:
    assert isinstance(as_error(Failure(reason="OutOfMemory", message="m")), errors.OutOfMemory)
    assert type(as_error(Failure(reason="annotations", message="m"))) is errors.TuningError
