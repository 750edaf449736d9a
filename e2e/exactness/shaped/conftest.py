"""One task whose prefill module is the decoder itself, and a stock vLLM server of the same weights beside it.

There both ways of serving must give the same answer to every request, so the stock server is the reference for all
that the OpenAI API and the engine can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.engines import Engine
from support.local_fleet import POOL, LocalTask, local_fleet
from support.reference import Reference
from support.stock import PARSERS, TASK, Servers, stock_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it is long: no part of `make test` needs a second kind of reference."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("shaped")
    python, base = state.engine / "bin/python", state.models / "base"
    prefill = Engine("same", "prefill", base, root / "same", python, extra_args=PARSERS)
    decode = Engine("decode", "decode", base, root / "decode", python, extra_args=PARSERS)
    flags = {"served-model-name": TASK, "enable-prompt-tokens-details": "", **PARSERS}
    with Reference(state) as reference, stock_server(python, base, root / "stock", flags) as stock:
        tasks = [LocalTask(TASK, prefill, {})]
        with local_fleet(tasks, {POOL: [decode]}, reference, root) as fleet:
            yield Servers(fleet, stock.url)
