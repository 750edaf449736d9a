"""Flags of the commands, apart from what they do: ``--help`` must not wait for torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from sunfleet_tuner.judges import JUDGES
from sunfleet_tuner.samples.tasks import TASKS


def add_eval_flags(parser: argparse.ArgumentParser) -> None:
    """What to measure: a pair (``--decoder``) or a fleet (``--url``); with a task, a dataset, or lm-eval."""
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--decoder", metavar="MODEL", help="a pair in memory: the decoder's folder or hub name")
    who.add_argument("--url", help="a running fleet: the router's address")
    parser.add_argument("--adapter", default="", help="the pair's prefill module, a LoRA (default: the decoder itself)")
    parser.add_argument("--base", default="", help="the weights under the adapter, where the decoder is quantised")
    parser.add_argument("--weights", default="", help="the pair's prefill module, full weights")
    parser.add_argument("--model", default="", help="the fleet's task: an OpenAI model name")
    parser.add_argument("--api-key", default="none", help="for the fleet")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--task", choices=sorted(TASKS), help="a small built-in task, on rows that its sample never saw")
    what.add_argument("--data", help="questions with answers: a .jsonl or .parquet file, or a Hugging Face dataset")
    what.add_argument("--lm-eval", metavar="TASKS", help="tasks of lm-eval, or YAML files of such, separated by commas")
    _add_lm_eval_flags(parser)
    parser.add_argument("--subset", default="", help="configuration of a Hugging Face dataset that has several")
    parser.add_argument("--split", default="test", help="of a Hugging Face dataset")
    parser.add_argument("--judge", choices=sorted(JUDGES), default="text", help="for --data: when an answer is right")
    parser.add_argument("--rows", type=int, default=128, help="questions to ask, of each task (default: 128; 0: all)")
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=0,
        help="of an answer to --task or --data (default: the right one's and a few)",
    )
    parser.add_argument("--parallel", type=int, default=8, help="questions at a time, for a fleet")
    parser.add_argument("--output", type=Path, help="JSON file for the result, row by row")


def _add_lm_eval_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chat", action="store_true", help="for --lm-eval: questions go through the chat template")
    parser.add_argument("--shots", type=int, help="for --lm-eval: examples before a question (default: the task's)")
    parser.add_argument("--run-code", action="store_true", help="for --lm-eval: tasks may run what the model wrote")


def add_quantize_flags(parser: argparse.ArgumentParser) -> None:
    """Which checkpoint, to what, and how."""
    parser.add_argument("base", help="the checkpoint to quantise: a folder, or a model name on the hub")
    parser.add_argument("packed", type=Path, help="folder to write: compressed-tensors, as engines load it")
    parser.add_argument("--dequantized", type=Path, help="folder for the same values as ordinary float32 weights")
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4, help="of a weight (default: 4)")
    parser.add_argument("--group-size", type=int, default=64, help="weights that share a scale (default: 64)")
    parser.add_argument(
        "--method", choices=("rtn", "gptq", "awq"), default="rtn",
        help="rounding to nearest (default), or with calibration through llmcompressor",
    )  # fmt: skip
    parser.add_argument("--calibration", type=Path, help="gptq, awq: rows in the forms of tuning data")
    parser.add_argument("--subset", default="", help="gptq, awq: configuration of a Hugging Face dataset")
    parser.add_argument("--samples", type=int, default=256, help="gptq, awq: rows to calibrate with (default: 256)")
    parser.add_argument("--max-length", type=int, default=2048, help="gptq, awq: tokens of a row (default: 2048)")
    parser.add_argument("--python", type=Path, help="gptq, awq: interpreter of an environment with llmcompressor")
