"""A pair of modules, or a task of a fleet, as a model of EleutherAI's lm-eval, where that is installed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.packages import LM_EVAL

LONGEST: Final = 256  # tokens of an answer where a task names no limit: lm-eval's own default
# How tasks spell that limit, in lm-eval's order of precedence.
_LIMITS: Final = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

Turns = Sequence[Mapping[str, str]]


class Respondent(Protocol):
    """Answers lm-eval's questions. A ``context`` is text, or what :meth:`render` made of a chat."""

    parallel: int  # questions at a time

    def render(self, turns: Turns, *, opened: bool) -> str:
        """A chat as one text. ``opened``: the assistant's turn begins; else the last turn, the assistant's, goes on."""
        ...

    def generate(self, context: str, options: Mapping[str, Any]) -> str:
        """The greedy answer, up to the first of the strings in ``until``."""
        ...

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        """Log-probability of ``continuation`` in nats, and whether it is the greedy one."""
        ...


@dataclass(frozen=True)
class Asked:
    """What of lm-eval to run: names of tasks, or YAML files that describe them."""

    tasks: Sequence[str]
    rows: int | None = None  # of each task; None: all
    shots: int | None = None  # examples before each question; None: as many as the task says
    chat: bool = False  # questions go through the chat template
    run_code: bool = False  # tasks may run what the model wrote


def run_harness(respondent: Respondent, asked: Asked) -> dict[str, Any]:
    """lm-eval's ``results`` and ``samples``, by task. Raises TuningError when it is missing or knows no such task."""
    try:
        import lm_eval  # noqa: PLC0415 - no dependency of the tuner
        from lm_eval.api.model import LM  # noqa: PLC0415
        from lm_eval.tasks import TaskManager  # noqa: PLC0415
    except ImportError as error:
        raise TuningError(f"--lm-eval needs lm-eval in this environment: pip install '{LM_EVAL}'") from error

    class Model(LM):
        """What lm-eval calls, by its names."""

        tokenizer_name = "sunfleet"  # names a cache of requests, which is not used

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            return _each(respondent, lambda request: respondent.generate(*request.args), requests)

        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            return _each(respondent, lambda request: respondent.loglikelihood(*request.args), requests)

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            return _each(respondent, lambda request: respondent.loglikelihood("", *request.args)[0], requests)

        def apply_chat_template(self, chat_history: Turns, add_generation_prompt: bool = True) -> str:
            return respondent.render(chat_history, opened=add_generation_prompt)

    manager = TaskManager()
    _check_known(asked.tasks, manager.all_tasks)
    try:
        found = lm_eval.simple_evaluate(
            model=Model(), tasks=list(asked.tasks), limit=asked.rows, num_fewshot=asked.shots,
            apply_chat_template=asked.chat, fewshot_as_multiturn=asked.chat, task_manager=manager,
            confirm_run_unsafe_code=asked.run_code,
        )  # fmt: skip
    except ImportError as error:  # of a task's own code
        raise TuningError(f"a task needs a package that is not installed here: {error}") from error
    except ValueError as error:
        if "unsafe" not in str(error):
            raise
        raise TuningError(
            "a task runs what the model wrote: allow it with --run-code (and HF_ALLOW_CODE_EVAL=1), in a sandbox"
        ) from error
    return {"results": found["results"], "samples": found["samples"]}


def options_of(options: Mapping[str, Any]) -> tuple[int, list[str]]:
    """(most tokens, strings that end the answer); TuningError for a task that wants to be answered by chance."""
    sampled = options.get("do_sample")
    if sampled or (sampled is None and options.get("temperature")):
        raise TuningError("a task asks for sampling, and answers here are greedy: choose another task")
    until = options.get("until") or []
    limit = next((int(options[name]) for name in _LIMITS if options.get(name)), LONGEST)
    return limit, [stop for stop in ([until] if isinstance(until, str) else until) if stop]


def cut(text: str, stops: Iterable[str]) -> str:
    """``text`` up to the first of ``stops``."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


def _each(respondent: Respondent, ask: Callable[[Any], Any], requests: Sequence[Any]) -> list[Any]:
    if respondent.parallel == 1:
        return [ask(request) for request in requests]
    with ThreadPoolExecutor(respondent.parallel) as pool:
        return list(pool.map(ask, requests))


def _check_known(tasks: Sequence[str], known: Sequence[str]) -> None:
    for task in tasks:
        if task not in known and not Path(task).is_file():
            like = difflib.get_close_matches(task, known)
            hint = f"; there is {', '.join(like)}" if like else "; `lm_eval ls tasks` lists them"
            raise TuningError(f"lm-eval knows no task {task}, and there is no such YAML file{hint}")
