"""Every command of the recipes, with a tiny model of each architecture in the place of the billions of parameters."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.packages.environments import ROOT, Python, succeeds, write_lines

from sunfleet_router_harness import Router

RECIPES = (ROOT / "docs/recipes/README.md").read_text()
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
QUESTIONS = 24
QWEN3 = """
import sys
from pathlib import Path
from transformers import Qwen3Config, Qwen3ForCausalLM
from tiny_models import tiny_checkpoint
folder = Path(sys.argv[1])
tiny_checkpoint(folder)
config = Qwen3Config(
    vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, eos_token_id=2, pad_token_id=2,
)
Qwen3ForCausalLM(config).save_pretrained(folder)
print(1)
"""
# The hub's metric, which lm-eval fetches where its task begins, in a few lines: no hub is in reach here.
CODE_EVAL = """
import datasets
import evaluate
class CodeEval(evaluate.Metric):
    def _info(self):
        each = datasets.Sequence(datasets.Value("string"))
        features = datasets.Features({"predictions": each, "references": datasets.Value("string")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)
    def _compute(self, predictions, references, k):
        passed = [self._passes(code + "\\n" + test) for (code,), test in zip(predictions, references)]
        return {"pass@1": sum(passed) / len(passed)}, {}
    def _passes(self, program):
        try:
            exec(program, {})
        except Exception:
            return False
        return True
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL)


def commands() -> dict[str, list[str]]:
    """Words of every command, by what it is in a few words."""
    lines = [shlex.split(line, comments=True) for line in "\n".join(blocks("sh")).splitlines()]
    return {" ".join(words[:3] + words[-2:]): words for words in lines if words}


@dataclass(frozen=True)
class Bench:
    """The folder of commands that follow each other, and what stands for what in them."""

    tuner: Python
    compressor: Python
    decoder: Path

    def run(self, words: list[str], **instead: str) -> str:
        """What the command said."""
        put = {MODEL: str(self.decoder), "compressor/bin/python": str(self.compressor.python), **instead}
        # Groups that divide the tiny model's widths; one process for each core here; answers of a few words.
        put |= {"128": "16", "4": "2", "512": "8"}
        variables = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z_]+=.*", word))
        given = [put.get(word, word) for word in words[len(variables) :]]
        small = ["--precision", "fp32", "--max-steps", "2", "--eval-steps", "1", "--golden-prompts", "2"]
        module = "torch.distributed.run" if given[0] == "torchrun" else "sunfleet_tuner"
        given = given[1:] + (small if "tune" in given else [])
        if "tune" in given and "--decoder" not in given:
            given += ["--decoder", str(self.decoder)]
        return succeeds(self.tuner.module(module, given, **variables))


@pytest.fixture(scope="module")
def qwen(tuner: Python) -> Path:
    folder = tuner.folder / "qwen3"
    tuner.ask(QWEN3, folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def data(tuner: Python) -> None:
    """The files that the recipes' scripts make, with words that the tiny models know; a problem, and its metric."""
    (written,) = [block for block in blocks("yaml") if "decoder:" in block]
    (tuner.folder / "llama-gsm8k.yaml").write_text(written)
    for name in ("gsm8k.jsonl", "gsm8k-test.jsonl"):
        turns = [
            ({"role": "user", "content": f"w{30 + n}"}, {"role": "assistant", "content": "w7 w9"})
            for n in range(QUESTIONS)
        ]
        write_lines(tuner.folder / name, [{"messages": list(pair)} for pair in turns])
    problem = {
        "task_id": "HumanEval/0", "prompt": "def two():\n    return 2\n", "canonical_solution": "",
        "test": "def check(given):\n    assert given() == 2\n", "entry_point": "two",
    }  # fmt: skip
    # Folders of these names are found before the hub's.
    for folder in ("openai/openai_humaneval", "code_eval"):
        (tuner.folder / folder).mkdir(parents=True)
    write_lines(tuner.folder / "openai/openai_humaneval/test.jsonl", [problem])
    (tuner.folder / "code_eval/code_eval.py").write_text(CODE_EVAL)


@pytest.fixture(scope="module")
def bench(tuner: Python, compressor: Python, tiny: Path) -> Bench:
    return Bench(tuner, compressor, tiny)


def command(start: str, *parts: str) -> list[str]:
    (found,) = [words for words in commands().values() if words[:2] == start.split() and {*parts} <= {*words}]
    return found


def test_every_command_of_the_recipes_is_run_here() -> None:
    assert len(commands()) == 7, "a new command needs its test below"


def test_the_configuration_tunes_and_its_module_is_measured(bench: Bench) -> None:
    bench.run(["sunfleet", "tune", "--config", "llama-gsm8k.yaml"])
    folder = bench.tuner.folder / "llama-gsm8k"
    assert json.loads((folder / "adapter_config.json").read_text())["peft_type"] == "LORA"
    told = bench.run(command("sunfleet eval", "--decoder", "--data"))
    assert re.search(rf"gsm8k-test.jsonl: \d+ of {QUESTIONS}", told)


def test_qwen3_takes_the_same_configuration(tuner: Python, compressor: Python, qwen: Path) -> None:
    bench = Bench(tuner, compressor, qwen)
    bench.run(["sunfleet", "tune", "--config", "llama-gsm8k.yaml", "--output", "qwen-gsm8k"])
    told = bench.run(command("sunfleet eval", "--decoder", "--data"), **{"llama-gsm8k": "qwen-gsm8k"})
    assert re.search(rf"gsm8k-test.jsonl: \d+ of {QUESTIONS}", told)


def test_full_weights_are_tuned_by_several_processes(bench: Bench) -> None:
    told = bench.run(command("torchrun --nproc-per-node"))
    assert "are spread over 2 processes" in told
    assert (bench.tuner.folder / "llama-gsm8k-full" / "model.safetensors").is_file()


def test_a_decoder_is_quantised_and_a_module_tuned_against_it(bench: Bench) -> None:
    bench.run(command("sunfleet quantize"))
    bench.run(command("sunfleet tune", "--init"))
    meta = json.loads((bench.tuner.folder / "llama-gsm8k-w4" / "sunfleet.json").read_text())
    assert meta["tuned_against"] != meta["base"]["digest"]


async def test_a_fleet_is_measured_by_the_same_questions(bench: Bench, router: Router) -> None:
    fleet = {"http://ROUTER": router.url, "llama-gsm8k": "acme/maths"}
    told = await asyncio.to_thread(bench.run, command("sunfleet eval", "--url"), **fleet)
    assert re.search(rf"gsm8k-test.jsonl: \d+ of {QUESTIONS}", told)


def test_humaneval_is_asked_and_what_the_model_wrote_is_run(bench: Bench) -> None:
    (bench.tuner.folder / "llama-code").symlink_to("llama-gsm8k")
    told = bench.run(command("HF_ALLOW_CODE_EVAL=1 sunfleet"))
    assert json.loads(told)["humaneval_instruct"].items() >= {"sample_len": 1}.items()
