"""Queries are built from known names only, and answers are read task by task."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api import metrics
from sunfleet_operator import promql
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals
from sunfleet_operator.promql import Sample, queries

SAMPLE = queries(60, {"cluster": "a"})


def test_every_field_of_the_signals_has_its_query() -> None:
    assert set(SAMPLE.prefill) == set(PrefillSignals.__dataclass_fields__)
    assert set(SAMPLE.decode) == set(DecodeSignals.__dataclass_fields__)


def test_every_query_selects_known_metrics_of_this_installation_only() -> None:
    for text in SAMPLE.every():
        selected = promql.named(text)
        assert selected <= metrics.KNOWN, text
        assert selected
        assert text.count('{cluster="a"}') == len([1 for name in selected for _ in range(text.count(name + "{"))])


def test_a_colon_written_as_an_underscore_is_refused() -> None:
    with pytest.raises(ValueError, match="vllm_num_requests_running"):
        promql.known("vllm_num_requests_running")
    assert promql.named('sum(vllm_num_requests_running{pod="up{"}[5m])') == {"vllm_num_requests_running"}


def test_a_query_does_not_grow_with_the_fleet() -> None:
    assert len(SAMPLE.every()) == 19


@given(st.text(max_size=30))
def test_a_label_value_cannot_leave_its_quotes(value: str) -> None:
    text = promql.selector({"cluster": value})
    assert text.startswith('{cluster="')
    assert text.endswith('"}')
    inner, escaped = text[len('{cluster="') : -2], False
    for character in inner:
        assert escaped or character not in '"\n'
        escaped = character == "\\" and not escaped
    assert not escaped


@pytest.mark.parametrize("name", ["", "1a", "a-b", 'a="b",c', "a b"])
def test_a_label_name_is_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="label name"):
        promql.selector({name: "x"})


def test_a_task_that_no_series_names_is_unknown_and_not_idle() -> None:
    answers = {field: [Sample({"task": "maths"}, 3.0)] for field in SAMPLE.prefill}
    assert promql.prefill_signals(answers, "maths") == PrefillSignals(*[3.0] * 11)
    assert promql.prefill_signals(answers, "math") == PrefillSignals()
    pools = {field: [Sample({"decoder": "team/base"}, 2.0)] for field in SAMPLE.decode}
    assert promql.decode_signals(pools, "team/base").reserved == 2.0
    assert promql.decode_signals(pools, "other/base") == DecodeSignals()


def test_prometheus_own_parser_reads_every_query(tmp_path: Path) -> None:
    """Each as a recording: promtool reads no other way."""
    texts = [*SAMPLE.every(), *promql.by_revision(60, {"cluster": 'a"b'}).values()]
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(texts)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "scaler", "rules": rules}]}))
    command = ["promtool", "check", "rules", "rules.yaml"]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert read.returncode == 0, read.stdout + read.stderr
    assert f"{len(texts)} rules found" in read.stdout
