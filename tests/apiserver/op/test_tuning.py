"""PrefillTuning against a real API server: the Job that it accepts, what may change of one, how a run ends and goes."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api.tuning import TuningReport
from sunfleet_optest.live import Fleet
from sunfleet_optest.objects import decoder, tuning

pytestmark = pytest.mark.timeout(300)
TUNING = ("PrefillTuning", "maths")


def job(fleet: Fleet) -> dict[str, Any] | None:
    found = [live for live in fleet.items("apis/batch/v1", "jobs") if live["metadata"]["name"] == "maths-tuner"]
    return found[0] if found else None


def begin(fleet: Fleet, **spec: Any) -> dict[str, Any]:
    fleet.apply(decoder(namespace=fleet.namespace))
    fleet.apply(tuning(namespace=fleet.namespace, **spec))
    fleet.until(lambda: job(fleet) is not None, "the run has its Job")
    made = job(fleet)
    assert made is not None
    return made


def test_a_run_on_two_nodes_is_accepted_can_be_stopped_and_goes_with_its_object(fleet: Fleet) -> None:
    made = begin(fleet, nodes=2, method={"full": {}})
    assert made["spec"]["completionMode"] == "Indexed"
    assert made["spec"]["podFailurePolicy"]["rules"][0]["action"] == "FailJob"
    fleet.until(lambda: fleet.condition(*TUNING, "Progressing")[1] == "Running", "it runs")
    fleet.patch(*TUNING, {"spec": {"suspend": True, "ttlSecondsAfterFinished": 60}})
    fleet.until(lambda: (job(fleet) or {})["spec"].get("suspend") is True, "it is stopped")
    assert (job(fleet) or {})["spec"]["ttlSecondsAfterFinished"] == 60
    fleet.until(lambda: fleet.condition(*TUNING, "Suspended")[0] == "True", "it says so")
    fleet.patch(*TUNING, {"spec": {"suspend": False}})
    fleet.until(lambda: (job(fleet) or {})["spec"].get("suspend") is False, "it goes on")
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PrefillTuning", "maths", True)
    fleet.delete(*TUNING)
    fleet.until(lambda: fleet.gone(*TUNING), "nothing keeps it")


def test_a_run_ends_with_an_artifact_and_its_job_may_go(fleet: Fleet) -> None:
    begin(fleet)
    fleet.tuned = lambda _: TuningReport(digest="sha256:made", decoder_digest="sha256:d", metrics={"steps": "3"})
    fleet.until(lambda: fleet.condition(*TUNING, "Complete")[0] == "True", "it is complete")
    status = fleet.get(*TUNING)["status"]
    assert (status["artifact"]["uri"], status["artifact"]["digest"]) == ("pvc://modules/maths", "sha256:made")
    path = f"/apis/batch/v1/namespaces/{fleet.namespace}/jobs/maths-tuner"
    # Nobody here would take its pods first.
    fleet.api.request("DELETE", path, query={"propagationPolicy": "Background"})
    fleet.until(lambda: job(fleet) is None, "the Job is gone")
    fleet.patch(*TUNING, {"metadata": {"labels": {"looked": "at"}}})
    fleet.until(lambda: fleet.get(*TUNING)["metadata"]["labels"] == {"looked": "at"}, "it was looked at")
    assert fleet.get(*TUNING)["status"] == status


def test_a_run_that_fails_says_why(fleet: Fleet) -> None:
    begin(fleet)
    fleet.tuned = lambda _: TuningReport(error_reason="InvalidData", error_message="train.jsonl, line 3 is not JSON")
    fleet.until(lambda: fleet.condition(*TUNING, "Failed")[0] == "True", "it has failed")
    assert fleet.condition(*TUNING, "Failed")[1:] == ("InvalidData", "train.jsonl, line 3 is not JSON")
