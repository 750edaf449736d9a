"""The reference's client against a program that speaks its protocol."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.reference import Reference, ReferenceFailed

# Answers with the request itself as text; a prompt of "end" ends it, one of "refuse" is an error.
PROGRAM = f"""#!{sys.executable}
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("prompt") == "end":
        sys.exit("out of memory")
    error = "no such module" if request.get("prompt") == "refuse" else ""
    fields = dict.fromkeys(("prompt_token_ids", "token_ids", "logprobs", "margins", "runners_up", "gaps"), [])
    print(json.dumps({{**fields, "text": line.strip(), "finish_reason": "stop", "error": error}}), flush=True)
"""


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    """A state folder whose engine environment is the program, with a base model and one adapter."""
    state = StateFolder(tmp_path)
    python = state.engine / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PROGRAM)
    python.chmod(0o755)
    (state.models / "base").mkdir(parents=True)
    (state.models / "adapters" / "one").mkdir(parents=True)
    (state.models / "adapters" / "one" / "adapter_config.json").write_text("{}")
    return state


def test_questions_are_sent_in_the_form_that_they_have(state: StateFolder) -> None:
    with Reference(state) as reference:
        text = reference.answer({}, "hello", max_tokens=3).text
        ids = reference.answer({"adapter": "a"}, [1, 2]).text
        chat = reference.answer({}, [{"role": "user", "content": "hello"}]).text
    assert json.loads(text) == {"module": {}, "prompt": "hello", "sampling": {"max_tokens": 3}}
    assert json.loads(ids) == {"module": {"adapter": "a"}, "prompt_token_ids": [1, 2], "sampling": {}}
    assert json.loads(chat)["messages"] == [{"role": "user", "content": "hello"}]


def test_a_served_answer_is_sent_with_the_question(state: StateFolder) -> None:
    with Reference(state) as reference:
        asked = json.loads(reference.score({"weights": "w"}, [1, 2], (3, 4), max_tokens=2).text)
    sampling = {"max_tokens": 2}
    assert asked == {"module": {"weights": "w"}, "prompt_token_ids": [1, 2], "sampling": sampling, "served": [3, 4]}


def test_a_refusal_does_not_end_it_and_an_end_names_the_log(state: StateFolder) -> None:
    with Reference(state) as reference:
        with pytest.raises(ReferenceFailed, match="no such module"):
            reference.answer({}, "refuse")
        assert reference.answer({}, "hello").finish_reason == "stop"
        for question in ("end", "anybody there?", "hello?"):
            with pytest.raises(ReferenceFailed, match=r"ended \(exit 1\).*reference\.log"):
                reference.answer({}, question)
    assert (state.root / "reference.log").read_text() == "out of memory\n"


def test_a_claims_path_is_a_folder_of_the_models(state: StateFolder) -> None:
    reference = Reference(state)
    models = state.models
    assert reference.module("pvc://sunfleet-models/adapters/one") == {"adapter": str(models / "adapters/one")}
    assert reference.module("pvc://sunfleet-models/arith-full") == {"weights": str(models / "arith-full")}


def test_what_is_missing_is_said_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFailed, match="make engine-env models"):
        Reference(StateFolder(tmp_path)).answer({}, "hello")
