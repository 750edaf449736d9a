"""What the connector adds to the engine's, with the engine's own part replaced by a recording."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata
from vllm.v1.request import RequestStatus

from sunfleet_worker.hooks.connector import SunConnector
from sunfleet_worker.lease import MARGIN_SECONDS

HANDOVER = {"remote_block_ids": [[1]], "remote_host": "10.0.0.1", "remote_port": 5600, "tp_size": 1}


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Scheduler's and worker's side in one, after the constructor."""
    monkeypatch.setattr(NixlPullConnector, "build_connector_meta", lambda *_: NixlConnectorMetadata())
    monkeypatch.setattr(NixlPullConnector, "start_load_kv", lambda *_, **__: None)
    made: Any = SunConnector.__new__(SunConnector)
    made._releases, made._released, made._leases, made._prefills = set(), set(), {}, True
    made.connector_scheduler = SimpleNamespace(_reqs_need_send={"r": 130.0})
    made.connector_worker = SimpleNamespace(
        _reqs_to_send={"r": 130.0},
        _reqs_to_process={"r"},
        consumer_notification_counts_by_req={},
        expected_consumer_notifications_by_req={},
        _engine_clock_offset={"e": 100.0},
    )
    return made


def step(connector: Any, monkeypatch: pytest.MonkeyPatch, arrived: tuple[str, ...] = ()) -> KVConnectorTransferResults:
    """One step of scheduler and worker, in which the KV of ``arrived`` has come."""
    stock = KVConnectorTransferResults(finished_sending=set(), finished_recving=set(arrived), failed_recving=set())
    monkeypatch.setattr(NixlPullConnector, "get_transfer_results", lambda *_: stock)
    connector._connector_metadata = connector.build_connector_meta(None)
    connector.start_load_kv(None)
    return connector.get_transfer_results(set())


def finished(connector: Any, monkeypatch: pytest.MonkeyPatch, status: RequestStatus, held: bool = True) -> Any:
    stock = (held, dict(HANDOVER) if held else None)
    monkeypatch.setattr(NixlPullConnector, "request_finished_all_groups", lambda *_: stock)
    return connector.request_finished_all_groups(SimpleNamespace(request_id="r", status=status), ([1],))


def test_a_hand_over_says_when_its_lease_ends(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held, params = finished(connector, monkeypatch, RequestStatus.FINISHED_LENGTH_CAPPED)
    assert (held, params["remote_blocks_expiry_time"]) == (True, 130.0)
    assert step(connector, monkeypatch).finished_sending == set(), "kept until it is read"


def test_kv_of_a_first_token_that_ends_the_answer_is_not_kept(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finished(connector, monkeypatch, RequestStatus.FINISHED_STOPPED) == (True, None)
    assert step(connector, monkeypatch).finished_sending == {"r"}


def test_a_request_that_was_aborted_is_the_engines_own_business(
    connector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finished(connector, monkeypatch, RequestStatus.FINISHED_ABORTED, held=False) == (False, None)
    assert step(connector, monkeypatch).finished_sending == set()


def test_kv_is_released_once(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connector.release(["r", "unknown"])
    assert step(connector, monkeypatch).finished_sending == {"r"}
    assert (connector.connector_worker._reqs_to_send, connector.connector_worker._reqs_to_process) == ({}, set())
    connector.release(["r"])
    assert step(connector, monkeypatch).finished_sending == set()


def test_kv_that_a_decoder_has_read_is_not_released_again(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connector.connector_worker._reqs_to_send.clear()  # what the engine does when it is notified
    connector.release(["r"])
    assert step(connector, monkeypatch).finished_sending == set()


@pytest.mark.parametrize(
    ("now", "late"), [(20.0, False), (30.0 - MARGIN_SECONDS, False), (30.1 - MARGIN_SECONDS, True)]
)
def test_kv_that_was_read_after_its_lease_is_not_used(
    connector: Any, monkeypatch: pytest.MonkeyPatch, now: float, late: bool
) -> None:
    monkeypatch.setattr("sunfleet_worker.hooks.connector.time.perf_counter", lambda: now)
    metadata = NixlConnectorMetadata()
    # By the prefill pod's clock the lease ends at 130, by this pod's at 30.
    params = {**HANDOVER, "remote_engine_id": "e", "remote_request_id": "r", "remote_blocks_expiry_time": 130.0}
    metadata.add_new_req_to_recv("mine", ([4],), params, awaiting_kvs=True)
    monkeypatch.setattr(NixlPullConnector, "build_connector_meta", lambda *_: metadata)
    results = step(connector, monkeypatch, arrived=("mine",))
    assert results.finished_recving == {"mine"}, "its blocks are this pod's again, whatever is in them"
    assert results.failed_recving == ({"mine"} if late else set())
    assert connector._leases == {}


def test_kv_without_a_known_end_is_left_to_the_deadline(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = NixlConnectorMetadata()
    params = {**HANDOVER, "remote_engine_id": "e", "remote_request_id": "r"}
    metadata.add_new_req_to_recv("mine", ([4],), params, awaiting_kvs=True)
    monkeypatch.setattr(NixlPullConnector, "build_connector_meta", lambda *_: metadata)
    assert step(connector, monkeypatch, arrived=("mine",)).failed_recving == set()


def test_the_thread_that_runs_the_model_keeps_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    bound: list[set[int]] = []

    def bind(*_: object) -> None:
        os.sched_setaffinity(0, {max(before)})
        bound.append(os.sched_getaffinity(0))

    monkeypatch.setattr(NixlPullConnector, "__init__", bind)
    config: Any = SimpleNamespace(kv_transfer_config=SimpleNamespace(is_kv_producer=True))
    SunConnector(config, KVConnectorRole.SCHEDULER, None)
    assert (bound, os.sched_getaffinity(0)) == ([{max(before)}], before)
