"""Records become the rows that serving would see, and rows become batches and steps."""

from __future__ import annotations

import copy
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from sunfleet_tuner import plan
from sunfleet_tuner.data import Row, collate, digest_of_rows
from sunfleet_tuner.errors import InvalidData, StoreFailed, TuningError
from sunfleet_tuner.rows import Tokens, make_rows, rows_of
from sunfleet_tuner.sources import records
from tiny_models import PAD, random_rows, tiny_checkpoint


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(tiny_checkpoint(tmp_path_factory.mktemp("base")))


@pytest.fixture
def tokens(tokenizer: Any) -> Tokens:
    return Tokens(tokenizer)


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CHAT = [say("user", "w7 w8"), say("assistant", "w9"), say("user", "w10"), say("assistant", "w11 w12")]


def test_every_assistant_turn_is_a_row_and_all_before_it_is_prompt(tokens: Tokens, tokenizer: Any) -> None:
    first, second = rows_of({"messages": CHAT}, tokens)
    assert first == Row((1, 7, 8, 3, 4), (9, PAD))
    assert second == Row((1, 7, 8, 3, 4, 9, 2, 1, 10, 3, 4), (11, 12, PAD))
    served = tokenizer.apply_chat_template(CHAT[:3], add_generation_prompt=True, tokenize=True, return_dict=False)
    assert list(second.prompt) == served


def test_what_a_template_puts_behind_the_end_of_a_turn_is_not_learnt(tokenizer: Any) -> None:
    row = Tokens(tokenizer, stops=[9]).chat(CHAT[:3], CHAT[3] | {"content": "w11 w9 w12"})
    assert row.response == (11, 9)


TOOL = {"type": "function", "function": {"name": "w30", "description": None, "parameters": {}}}
# Names of tools, then turns; a turn that calls a tool lists the call's words instead of a text.
TEMPLATE = (
    "{% for tool in tools or [] %}w6 {{ tool.function.name }} {% endfor %}"
    "{% for m in messages %}{{ {'user': 'w1', 'assistant': 'w4', 'tool': 'w5'}[m.role] }} {{ m.content }} "
    "{% for call in m.tool_calls or [] %}{{ call.function.name }} "
    "{% for word in call.function.arguments.values() %}{{ word }} {% endfor %}{% endfor %}"
    "w2 {% endfor %}{% if add_generation_prompt %}w4 {% endif %}"
)


def test_turns_with_tools_are_rows_whose_prompts_are_those_of_the_engine(tokenizer: Any) -> None:
    tools_tokenizer = copy.deepcopy(tokenizer)
    tools_tokenizer.chat_template = TEMPLATE
    call = {"type": "function", "function": {"name": "w30", "arguments": '{"a": "w31"}'}}
    as_served = {"type": "function", "function": {"name": "w30", "arguments": {"a": "w31"}}}
    told = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "w32"}]}
    chat = [say("user", "w7"), {"role": "assistant", "content": None, "tool_calls": [call]}, told, CHAT[3]]
    asking, telling = rows_of({"messages": chat, "tools": json.dumps([TOOL])}, Tokens(tools_tokenizer))
    assert asking == Row((6, 30, 1, 7, 2, 4), (30, 31, PAD))
    assert telling == Row((6, 30, 1, 7, 2, 4, 30, 31, 2, 5, 32, 2, 4), (11, 12, PAD))
    before = [chat[0], {"role": "assistant", "content": "", "tool_calls": [as_served]}, say("tool", "w32")]
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    assert list(telling.prompt) == tools_tokenizer.apply_chat_template(before, tools=[TOOL], **options)


def test_prompt_and_completion_are_text_messages_or_put_into_the_template(tokens: Tokens) -> None:
    text = {"prompt": "w7 w8", "completion": "w9"}
    assert list(rows_of(text, tokens)) == [Row((7, 8), (9, PAD))]
    as_chat = [Row((1, 7, 8, 3, 4), (9, PAD))]
    assert list(rows_of(text, tokens, "chat")) == as_chat
    assert list(rows_of({"prompt": CHAT[:1], "completion": CHAT[1:2]}, tokens)) == as_chat


def test_a_null_that_a_dataset_put_into_a_message_is_no_value(tokens: Tokens) -> None:
    with_nulls = [{**message, "tool_calls": None} for message in CHAT[:2]]
    assert list(rows_of({"messages": with_nulls}, tokens)) == list(rows_of({"messages": CHAT[:2]}, tokens))


@pytest.mark.parametrize(
    ("record", "part"),
    [
        ({"text": "w7"}, "no field prompt and completion; there are text"),
        ({"messages": CHAT[:1]}, "no assistant turn"),
        ({"messages": "w7"}, "list of objects with a role"),
        ({"prompt": CHAT[:1], "completion": CHAT[1:3]}, "one assistant message"),
        ({"prompt": "", "completion": "w7"}, "at least one prompt token"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(tokens: Tokens, record: dict[str, Any], part: str) -> None:
    good = {"prompt": "w7", "completion": "w8"}
    with pytest.raises(TuningError, match=f"cities, record 1: .*{part}"):
        make_rows([good, record], tokens, max_length=99, name="cities")


def test_a_template_that_rewrites_the_opened_turn_is_refused() -> None:
    def render(messages: list[Any], **_: Any) -> str:
        return "ab" if len(messages) == 1 else "ac w9"

    tokenizer_of_another_mind = SimpleNamespace(eos_token_id=PAD, apply_chat_template=render)
    with pytest.raises(ValueError, match="does not begin as the opened turn does"):
        Tokens(tokenizer_of_another_mind).chat(CHAT[:1], CHAT[1])


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"w{30 + i}", "completion": "w7 w8"} for i in range(count)]


def test_long_rows_are_left_out_and_counted(tokens: Tokens) -> None:
    long = {"prompt": " ".join(["w9"] * 50), "completion": "w7"}
    rows = make_rows([*numbered(4), long, long], tokens, max_length=10)
    assert len(rows.training) == 4
    assert dict(rows.dropped) == {"longer than 10 tokens": 2}


def test_validation_rows_follow_from_seed_and_content_and_conversations_stay_whole(tokens: Tokens) -> None:
    data = numbered(40)
    rows = make_rows(data, tokens, max_length=99, validation_percent=10)
    assert (len(rows.training), len(rows.validation)) == (36, 4)
    again = make_rows(data[::-1], tokens, max_length=99, validation_percent=10)
    assert set(again.validation) == set(rows.validation)
    other = make_rows(data, tokens, max_length=99, validation_percent=10, seed=1)
    assert set(other.validation) != set(rows.validation)
    doubled = make_rows([*data, *data], tokens, max_length=99, validation_percent=10)
    assert not set(doubled.training) & set(doubled.validation)
    chats = [{"messages": [say("user", f"w{30 + i}"), *CHAT[1:]]} for i in range(20)]
    split = make_rows(chats, tokens, max_length=99, validation_percent=10)
    assert (len(split.training), len(split.validation)) == (36, 4)
    assert {row.prompt[1] for row in split.training}.isdisjoint(row.prompt[1] for row in split.validation)


def test_a_few_records_still_give_a_row_to_validate(tokens: Tokens) -> None:
    assert len(make_rows(numbered(3), tokens, max_length=99, validation_percent=5).validation) == 1
    assert make_rows(numbered(1), tokens, max_length=99, validation_percent=5).validation == []
    assert make_rows(numbered(9), tokens, max_length=99, validation_percent=0).validation == []


def test_json_lines_are_read_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"prompt": "b"}\n')
    assert [record["prompt"] for record in records(str(file), "train")] == ["a", "b"]
    file.write_text('{"prompt": "a"}\nnot json\n')
    with pytest.raises(TuningError, match="line 2 is not JSON"):
        list(records(str(file), "train"))
    file.write_text("[1]\n")
    with pytest.raises(TuningError, match="line 1 holds no JSON object"):
        list(records(str(file), "train"))
    with pytest.raises(TuningError, match="no dataset at"):
        list(records(str(tmp_path / "none.jsonl"), "train"))


class DatasetsError(Exception):
    """The real one's base class is no ValueError either."""


class Datasets:
    """All that is used of Hugging Face datasets, by its names; ``make e2e-packages`` runs the real one."""

    exceptions = SimpleNamespace(DatasetsError=DatasetsError)

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def load_dataset(
        self,
        path: str,
        name: str | None = None,
        *,
        split: str,
        data_files: str | None = None,
        revision: str | None = None,
    ) -> list[dict[str, Any]]:
        self.asked.append((path, *([name] if name else []), data_files, split, revision))
        if path == "parquet" and "broken" in str(data_files):
            raise DatasetsError("no Parquet magic bytes")
        if path == "acme/away":
            raise ConnectionError("the hub is away")
        if path == "openai/several":
            named = "Please pick one among the available configs: ['main', 'b']"
            raise ValueError(f"Config name is missing.\n{named}\nExample of usage:\n\t`load_dataset(...)`")
        if split not in {"train", "test"}:
            raise ValueError(f"Unknown split {split!r}. Should be one of ['train', 'test'].")
        return [{"prompt": "a", "tools": None}]

    def load_from_disk(self, path: str) -> dict[str, list[dict[str, str]]]:
        self.asked.append((path, "disk"))
        return {"train": [{"prompt": "b"}]}


@pytest.fixture
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> Datasets:
    stub = Datasets()
    monkeypatch.setitem(sys.modules, "datasets", stub)
    return stub


def test_anything_else_is_left_to_hugging_face_datasets(hugging_face: Datasets, tmp_path: Path) -> None:
    assert list(records("acme/maths", "train")) == [{"prompt": "a"}], "a column's null is no value"
    assert [record["prompt"] for record in records("acme/maths@v1", "train")] == ["a"]
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert [record["prompt"] for record in records(str(tmp_path), "train")] == ["b"]
    assert hugging_face.asked == [
        ("acme/maths", None, "train", None), ("acme/maths", None, "train", "v1"), (str(tmp_path), "disk")
    ]  # fmt: skip
    for name in ("acme/none", str(tmp_path)):
        with pytest.raises(InvalidData, match="split missing cannot be loaded"):
            records(name, "missing")
    with pytest.raises(StoreFailed, match="split train cannot be loaded now: the hub is away"):
        records("acme/away", "train")


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "arrow"])
def test_a_single_file_is_read_by_the_builder_of_its_kind(hugging_face: Datasets, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"rows.{kind}"
    file.touch()
    assert list(records(str(file), "validation")) == [{"prompt": "a"}], "a file has no splits"
    assert hugging_face.asked == [(kind, str(file), "train", None)]


def test_a_file_that_is_not_what_its_name_says_or_of_no_known_kind_is_refused(
    hugging_face: Datasets, tmp_path: Path
) -> None:
    for name, part in (("broken.parquet", "no Parquet magic bytes"), ("rows.xlsx", r"none of the kinds .*\.parquet")):
        (tmp_path / name).touch()
        with pytest.raises(InvalidData, match=part):
            records(str(tmp_path / name), "train")


def test_the_first_split_that_is_there_is_taken(hugging_face: Datasets) -> None:
    assert list(records("acme/maths", "validation", "test")) == [{"prompt": "a"}]
    assert [split for _, _, split, _ in hugging_face.asked] == ["validation", "test"]
    with pytest.raises(InvalidData, match="split validation or dev cannot be loaded: Unknown split 'validation'"):
        records("acme/maths", "validation", "dev")


def test_a_dataset_of_several_configurations_is_read_in_the_one_that_is_named(
    hugging_face: Datasets, tmp_path: Path
) -> None:
    assert list(records("openai/gsm8k@v1", "train", subset="main")) == [{"prompt": "a"}]
    assert hugging_face.asked == [("openai/gsm8k", "main", None, "train", "v1")]
    with pytest.raises(InvalidData, match=r": it has several configurations: name one in subset, \['main', 'b'\]$"):
        records("openai/several", "train")
    with pytest.raises(InvalidData, match="openai/gsm8k, subset main, split dev cannot be loaded"):
        records("openai/gsm8k", "dev", subset="main")
    for name in ("rows.jsonl", "rows.parquet"):
        (tmp_path / name).touch()
        with pytest.raises(InvalidData, match=f"{name} is a file, which has no subset main"):
            records(str(tmp_path / name), "train", subset="main")
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(InvalidData, match="what save_to_disk wrote is one subset already"):
        records(str(tmp_path), "train", subset="main")


def test_without_hugging_face_datasets_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TuningError, match="install the extra 'tuner-hub'"):
        records("acme/maths", "train")


def test_targets_start_at_the_last_prompt_column() -> None:
    batch = collate([Row((5, 6, 7), (8, 9)), Row((5,), (6,))], PAD)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [5, 6, PAD, PAD, PAD]]
    assert batch.targets.tolist() == [[-100, -100, 8, 9, -100], [6, -100, -100, -100, -100]]
    assert batch.prompt_columns.tolist() == [[True, True, True, False, False], [True, False, False, False, False]]
    assert (batch.first_loss_column, batch.response_tokens) == (0, 3)


def test_an_empty_half_of_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Row((), (1,))


def test_the_digest_of_rows_tells_prompt_from_response_and_sees_their_order() -> None:
    rows = [Row((5, 6), (7,)), Row((5,), (6, 7))]
    digests = {digest_of_rows(given) for given in (rows, rows[::-1], rows[:1], rows[1:])}
    assert len(digests) == 4


LENGTHS = [row.length for row in random_rows(50, seed=5)]
BY_ROWS, BY_TOKENS = plan.Sizes(4, 0, 40), plan.Sizes(4, 48, 40)


@pytest.mark.parametrize("sizes", [BY_ROWS, BY_TOKENS])
def test_every_row_comes_once_an_epoch_in_an_order_of_its_own(sizes: plan.Sizes) -> None:
    first, again, second, other = (
        plan.epoch(LENGTHS, sizes, seed=seed, number=number) for seed, number in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert first == again
    assert first != second
    assert first != other
    for steps in (first, second, other):
        assert sorted(itertools.chain(*steps)) == list(range(50))
    assert plan.total_steps(LENGTHS, sizes, seed=0, epochs=2) == len(first) + len(second)
    endless = plan.endless(LENGTHS, sizes, seed=0)
    assert list(itertools.islice(endless, len(first) + 3)) == [*first, *second[:3]]


def test_a_step_holds_so_many_rows_or_tokens() -> None:
    assert {len(step) for step in plan.epoch(LENGTHS, BY_ROWS, seed=0, number=0)} <= {4, 2}
    by_tokens = plan.epoch(LENGTHS, BY_TOKENS, seed=0, number=0)
    assert max(sum(LENGTHS[row] for row in step) for step in by_tokens) <= 48
    assert len(by_tokens) < 1.3 * sum(LENGTHS) / 48
    assert [len(step) for step in plan.epoch([99, 99], BY_TOKENS, seed=0, number=0)] == [1, 1]


def test_like_lengths_meet() -> None:
    steps = plan.epoch(LENGTHS, BY_ROWS, seed=0, number=0)
    padded = sum(len(step) * max(LENGTHS[row] for row in step) for step in steps)
    assert padded / sum(LENGTHS) < 1.15


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_a_step_is_cut_into_passes_that_fit_and_shared_so_that_all_pass_equally_often(processes: int) -> None:
    for step in plan.epoch(LENGTHS, BY_ROWS, seed=0, number=0):
        pieces = plan.pieces(step, LENGTHS, BY_ROWS, processes)
        assert sorted(itertools.chain(*pieces)) == sorted(step)
        assert len(pieces) % processes == 0
        widest = [len(piece) * max(LENGTHS[row] for row in piece) for piece in pieces if piece]
        assert all(width <= 40 or len(piece) == 1 for width, piece in zip(widest, pieces, strict=False))
        if len(pieces) == processes:
            assert max(map(len, pieces)) == -(-len(step) // processes)
