"""Whole runs on a tiny model: what they make, how they go on after being killed, what they say when they cannot."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from peft import PeftModel
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from sunfleet_api.fingerprint import checkpoint_fingerprint
from sunfleet_api.golden import GOLDEN_FILE, GoldenSet
from sunfleet_tuner import modules, processes, state, train
from sunfleet_tuner import tune as recipe
from sunfleet_tuner.checkpoint import checkpoint_digest, read_meta
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.monitor import METRICS_FILE, PLOT_FILE
from sunfleet_tuner.one_pass import OnePass
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from sunfleet_tuner.state import Record
from sunfleet_tuner.weights import describe
from tiny_models import tiny_checkpoint
from whole_tree import run

ROOT = Path(__file__).resolve().parents[3]
TENSORS = {"lora": "adapter_model.safetensors", "full": "model.safetensors"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``base`` and ``data.jsonl``: a rule that a tiny model learns in a few steps."""
    folder = tmp_path_factory.mktemp("sources")
    tiny_checkpoint(folder / "base")
    rng = random.Random(0)  # noqa: S311 - sample data
    lines = []
    for _ in range(40):
        words = [f"w{rng.randrange(30, 90)}" for _ in range(rng.randint(2, 8))]
        lines.append(json.dumps({"prompt": " ".join(words), "completion": f"{words[0]} w7"}))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder


def config(sources: Path, output: Path, **settings: Any) -> TuneConfig:
    given: dict[str, Any] = {
        "decoder": str(sources / "base"), "data": str(sources / "data.jsonl"), "output": output, "rank": 4, "alpha": 8,
        "max_steps": 8, "batch_rows": 8, "learning_rate": 0.02, "precision": "fp32", "eval_steps": 4,
        "validation_percent": 20, "golden_prompts": 0, "name": "rule",
    }  # fmt: skip
    return TuneConfig(**{**given, **settings})


def tune(sources: Path, output: Path, **settings: Any) -> recipe.Outcome:
    return recipe.tune(config(sources, output, **settings), Console(file=StringIO()))


def losses(folder: Path) -> list[tuple[int, float]]:
    notes = [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]
    return [(note["step"], note.get("loss", note.get("validation_loss"))) for note in notes]


def tune_until_killed(sources: Path, output: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """A run that ends at step 6: behind the checkpoint of step 4, and noted in the metrics."""
    steps = train.Training.run

    def killed(self: train.Training, after: int = 0) -> Iterator[train.Progress]:
        for done in steps(self, after):
            yield done
            if done.step == 6:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(train.Training, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(sources, output, **settings)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_that_was_killed_goes_on_and_makes_the_very_same_module(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    tune(sources, whole, method=method)
    tune_until_killed(sources, resumed, monkeypatch, method=method)
    assert not resumed.exists()
    outcome = tune(sources, resumed, method=method)
    assert outcome.made
    assert losses(resumed) == losses(whole)
    assert [step for step, _ in losses(whole)] == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert (whole / TENSORS[method]).read_bytes() == (resumed / TENSORS[method]).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "whole"], "a finished run leaves no work"


def test_what_trackers_write_outlives_the_run_beside_the_module(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(precision: str, trackers: Sequence[str], folder: Path) -> Any:
        folder.mkdir(parents=True)
        (folder / "events").touch()
        return started(precision, trackers, folder)

    started = processes.start
    monkeypatch.setattr(recipe, "start", start)
    tune(sources, tmp_path / "out", max_steps=1)
    assert (tmp_path / "out.runs" / "events").is_file()
    assert all(path.is_file() and path.name != "events" for path in (tmp_path / "out").iterdir())


def test_a_checkpoint_appears_whole_or_not_at_all(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []

    def killed(tensors: dict[str, torch.Tensor], file: Path) -> None:
        saved.append(file)
        if len(saved) == 2:
            file.write_bytes(b"half a file")
            raise KeyboardInterrupt
        real(tensors, file)

    real = safetensors.torch.save_file
    with monkeypatch.context() as patched:
        patched.setattr(state, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(sources, tmp_path / "out", save_steps=2)
    found = state.Checkpoints(tmp_path / "out.work").newest
    settings = json.loads(next((tmp_path / "out.work").glob("step-*/record.json")).read_text())["settings"]
    assert (found(settings) or Record(settings={})).step == 2
    assert tune(sources, tmp_path / "out", save_steps=2).meta.metrics["steps"] == 8


def test_a_finished_run_is_kept_and_another_one_is_made_anew(sources: Path, tmp_path: Path) -> None:
    assert tune(sources, tmp_path / "out").made
    before = (tmp_path / "out" / "adapter_model.safetensors").read_bytes()
    assert not tune(sources, tmp_path / "out").made
    assert tune(sources, tmp_path / "out", seed=1).made
    assert (tmp_path / "out" / "adapter_model.safetensors").read_bytes() != before


def test_work_of_other_settings_is_not_continued(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recipe, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(sources, tmp_path / "out")
    with pytest.raises(TuningError, match="holds a run with other data_digest, learning_rate, seed"):
        tune(sources, tmp_path / "out", learning_rate=0.01, seed=1)
    assert tune(sources, tmp_path / "out", golden_prompts=1).made, "what decides nothing may change"


def test_something_else_in_the_output_is_seen_before_the_first_step(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="something else than a checkpoint"):
        tune(sources, tmp_path)
    assert not tmp_path.with_name(f"{tmp_path.name}.work").exists()


@pytest.mark.parametrize("micro_tokens", [12, 1], ids=["buckets", "each row alone, without padding"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_buckets_of_rows_make_the_same_steps_as_one_padded_pass(
    sources: Path, tmp_path: Path, method: str, micro_tokens: int
) -> None:
    tune(sources, tmp_path / "one", method=method)
    tune(sources, tmp_path / "many", method=method, micro_tokens=micro_tokens)
    for (step, one), (same, many) in zip(losses(tmp_path / "one"), losses(tmp_path / "many"), strict=True):
        assert step == same
        assert many == pytest.approx(one, rel=1e-5)


@pytest.mark.timeout(300)  # three processes load torch one after the other where others work, too
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded, going on with what one process began"])
def test_two_processes_make_the_same_steps_as_one(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharded: bool
) -> None:
    settings = {"method": "full", "micro_tokens": 24}
    tune(sources, tmp_path / "one", **settings)
    if sharded:
        tune_until_killed(sources, tmp_path / "two", monkeypatch, **settings)
    flags = config(sources, tmp_path / "two", **settings, sharded=sharded).model_dump(mode="json", exclude_unset=True)
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(flags))
    command = [
        sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "sunfleet_tuner", "tune", "--config", str(file),
    ]  # fmt: skip
    env = {
        "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker_images/tuner'}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = run(command, seconds=280, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("made ") == 1, "one process speaks"
    assert ("tensors are spread over 2 processes" in done.stdout) is sharded
    assert ("going on behind step 4" in done.stdout) is sharded
    for (step, one), (same, two) in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert step == same
        assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.parametrize(
    ("schedule", "last"), [("constant_with_warmup", 0.02), ("linear", 0.02 * 2 / 7), ("cosine", 0.02 * 0.188)]
)
def test_the_rate_warms_up_and_then_follows_the_schedule(
    sources: Path, tmp_path: Path, schedule: str, last: float
) -> None:
    tune(sources, tmp_path / "out", schedule=schedule, warmup_percent=25, validation_percent=0)
    notes = [json.loads(line) for line in (tmp_path / "out" / METRICS_FILE).read_text().splitlines()]
    rates = [note["learning_rate"] for note in notes]
    assert rates[:3] == [0.0, 0.01, 0.02], "two of eight steps"
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] == pytest.approx(last, rel=0.01)


def test_another_seed_makes_another_module_and_the_same_one_the_same(sources: Path, tmp_path: Path) -> None:
    tensors = []
    for place, seed in enumerate((3, 3, 4)):
        tune(sources, tmp_path / str(place), max_steps=2, seed=seed, validation_percent=0)
        tensors.append((tmp_path / str(place) / TENSORS["lora"]).read_bytes())
    assert tensors[0] == tensors[1] != tensors[2]


def test_bfloat16_learns_as_float32_does(sources: Path, tmp_path: Path) -> None:
    for method in ("lora", "full"):
        for precision in ("fp32", "bf16"):
            tune(sources, tmp_path / f"{method}-{precision}", method=method, precision=precision)
        exact, rounded = (dict(losses(tmp_path / f"{method}-{precision}")) for precision in ("fp32", "bf16"))
        assert rounded[8] == pytest.approx(exact[8], rel=0.05)
        assert rounded[8] < rounded[0]


def test_a_run_without_gain_stops_and_the_best_weights_are_taken(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = iter([9.0, 3.0, 2.0, 4.0, 5.0, 1.0])
    monkeypatch.setattr(train.Training, "validate", lambda _: next(judged))
    kept: list[dict[str, torch.Tensor]] = []
    save = safetensors.torch.save_file

    def keep(tensors: dict[str, torch.Tensor], file: Path) -> None:
        kept.append({name: tensor.clone() for name, tensor in tensors.items()})
        save(tensors, file)

    monkeypatch.setattr(state, "save_file", keep)
    outcome = tune(sources, tmp_path / "out", eval_steps=1, patience=2)
    assert outcome.meta.metrics.items() >= {
        "steps": 4, "best_step": 2, "validation_loss": 2.0, "validation_loss_before": 9.0
    }.items()  # fmt: skip
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B"
    written = load_file(tmp_path / "out" / "adapter_model.safetensors")[f"{name}.weight"]
    steps = [tensors[f"model.{name}.default.weight"].to(torch.bfloat16) for tensors in kept]
    assert torch.equal(written, steps[1])
    assert not torch.equal(written, steps[3])


def test_a_loss_that_is_not_finite_ends_with_advice(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"step \d: the loss is nan.*learning rate is too high \(it is 1e\+30\)"):
        tune(sources, tmp_path / "out", learning_rate=1e30)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_running_out_of_memory_ends_with_advice(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def out_of_memory(*_: Any) -> torch.Tensor:
        raise error

    monkeypatch.setattr(train.Training, "_loss", out_of_memory)
    with pytest.raises(TuningError, match=r"micro_tokens below 8192.*gradient_checkpointing.*method: lora"):
        tune(sources, tmp_path / "out", method="full")


def test_another_error_of_a_step_stays_what_it_is(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(train.Training, "_loss", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        tune(sources, tmp_path / "out")


def test_a_decoder_that_changed_in_training_is_never_published(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = iter(["sha256:1", "sha256:2"])
    monkeypatch.setattr(recipe, "tensors_digest", lambda _: next(digests))
    with pytest.raises(RuntimeError, match="the decoder changed in training"):
        tune(sources, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parameters_without_gradient_are_frozen_and_named(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = "base_model.model.model.layers.1.mlp.down_proj.lora_B.default.weight"
    monkeypatch.setattr(recipe, "idle_parameters", lambda *_: [idle])
    said = StringIO()
    outcome = recipe.tune(config(sources, tmp_path / "out"), Console(file=said))
    assert outcome.meta.frozen == [idle]
    assert f"1 parameters can get no gradient and stay as they are: {idle}" in said.getvalue().replace("\n", " ")
    assert not load_file(tmp_path / "out" / "adapter_model.safetensors")[idle.replace(".default", "")].any()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_artifact_says_everything_and_its_golden_prompts_are_the_references_answers(
    sources: Path, tmp_path: Path, method: Any
) -> None:
    out, base = tmp_path / "out", sources / "base"
    tune(sources, out, method=method, golden_prompts=5, max_steps=20, task="Say the first word again.")
    meta, report = read_meta(out), describe(base)
    assert meta.method == f"prefill-only-{method}"
    assert meta.tuned_against == meta.base.digest == meta.decoder.digest == checkpoint_digest(base)
    assert (meta.decoder.name, meta.name, meta.data.name) == ("base", "rule", "data.jsonl")
    assert meta.kv_fingerprint == checkpoint_fingerprint(report.config, report.tokenizer_hash)
    assert meta.tokenizer_hash == report.tokenizer_hash != ""
    assert (meta.data.training_rows, meta.data.validation_rows) == (32, 8)
    assert meta.metrics["validation_loss"] < 0.95 * meta.metrics["validation_loss_before"]
    assert {"torch", "transformers", "peft", "accelerate", "python"} <= meta.versions.keys()
    assert meta.decoder_tensors.startswith("sha256:")
    assert str(sources) not in (out / "sunfleet.json").read_text(), "a checkpoint tells nothing of the machine"

    golden = GoldenSet.model_validate_json((out / GOLDEN_FILE).read_text())
    spec = ModuleSpec(**{"adapter" if method == "lora" else "weights": str(out)})
    reference = Modules(base)
    assert len(golden.prompts) == 5
    assert golden.decoder_digest == meta.tuned_against
    for prompt in golden.prompts:
        answer = reference.answer(spec, prompt.prompt_token_ids, Sampling(max_tokens=len(prompt.token_ids)))
        assert tuple(answer.token_ids) == prompt.token_ids
        assert prompt.margin == pytest.approx(min(answer.margins), abs=1e-3)
    card = (out / "README.md").read_text()
    assert "Say the first word again." in card
    assert f"prefill: {{ {'adapter' if method == 'lora' else 'weights'}: " in card
    assert (out / PLOT_FILE).read_bytes().startswith(b"\x89PNG")


def test_the_written_adapter_is_a_plain_one_and_full_weights_a_plain_model(sources: Path, tmp_path: Path) -> None:
    tune(sources, tmp_path / "adapter")
    tune(sources, tmp_path / "full", method="full")
    base = AutoModelForCausalLM.from_pretrained(sources / "base", dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    assert not [name for name in load_file(tmp_path / "adapter" / TENSORS["lora"]) if "lora_" not in name]
    assert loaded.peft_config["default"].base_model_name_or_path == "base"
    full = load_file(tmp_path / "full" / TENSORS["full"])
    assert full.keys() == load_file(sources / "base" / TENSORS["full"]).keys()
    assert {tensor.dtype for tensor in full.values()} == {torch.bfloat16}
    assert (tmp_path / "full" / "tokenizer.json").is_file()


def test_a_base_whose_kv_the_decoder_could_not_read_is_refused(sources: Path, tmp_path: Path) -> None:
    other = tiny_checkpoint(tmp_path / "other", width=64)
    with pytest.raises(TuningError, match=r"could not read the KV.*hidden_size: decoder 32, task 64"):
        tune(sources, tmp_path / "out", init=str(other))
    with pytest.raises(TuningError, match=r"decoder: .*none is no checkpoint"):
        tune(sources, tmp_path / "out", decoder=str(tmp_path / "none"))


def test_a_target_that_the_model_does_not_have_is_named(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"cannot be tuned: .*c_attn"):
        tune(sources, tmp_path / "out", targets="c_attn,c_proj")


def test_data_that_leaves_nothing_to_train_on_is_refused(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="no row to train on: 40 longer than 3 tokens"):
        tune(sources, tmp_path / "out", max_length=3)


def test_every_parameter_learns_in_a_real_run(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wired: list[OnePass] = []

    def load(*given: Any) -> tuple[OnePass, Any]:
        one_pass, decoder = modules.load(*given)
        wired.append(one_pass)
        return one_pass, decoder

    monkeypatch.setattr(recipe, "load", load)
    tune(sources, tmp_path / "out", method="full", train_embeddings=True, max_steps=1)
    start = load_file(sources / "base" / TENSORS["full"])
    unchanged = [
        name for name, value in wired[0].trainable().items() if torch.equal(value, start[name].to(torch.float32))
    ]
    assert unchanged == []
    assert len(wired[0].trainable()) == len(start)
