"""A SharedDecoder asks for 4-bit weights: a Job makes them of the 16-bit ones, and its pool runs what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from sunfleet_api import names
from support.fleet import wait_ready
from support.kubectl import Json, wait_until
from support.samples import EMBEDDED, documents
from support.workshop import Workshop

pytestmark = pytest.mark.timeout(1200)
DECODER: Final = "four-bit"
READY_SECONDS: Final = 900
GONE_SECONDS: Final = 120


def asked(workshop: Workshop) -> Json:
    """The sample's decoder, quantised into the workshop; the Job's pod needs the engine's environment as its own do."""
    (decoder,) = documents(EMBEDDED / "decoder.yaml")
    pods = decoder["spec"]["template"]["spec"]
    mounts = pods["containers"][0]["volumeMounts"]
    tuner = {"name": "tuner", "resources": {"requests": {"cpu": "200m", "memory": "2Gi"}}, "volumeMounts": mounts}
    decoder["metadata"]["name"] = DECODER
    decoder["spec"]["engine"]["dtype"] = "float16"  # what 4-bit kernels compute in
    decoder["spec"]["quantization"] = {
        "scheme": "W4A16", "groupSize": 64, "outputUri": workshop.uri(DECODER),
        "template": {
            "spec": {
                "securityContext": {"fsGroup": 65532},  # the folder is this test's
                "containers": [tuner],
                "volumes": pods["volumes"],
            }
        },
    }  # fmt: skip
    return decoder


@pytest.fixture(scope="module")
def quantised(workshop: Workshop) -> Iterator[Json]:
    """Its status, once its pod has loaded the checkpoint and answered its self-check."""
    kubectl, where = workshop.kubectl, ("--namespace", workshop.namespace)
    kubectl.apply([asked(workshop)], workshop.namespace)
    wait_ready(kubectl, workshop.namespace, READY_SECONDS)
    yield kubectl.get("shareddecoder", DECODER, *where)["status"]
    kubectl.delete("shareddecoder", DECODER, *where)
    wait_until("its pods are gone", lambda: not kubectl.items("pods", *where), GONE_SECONDS)


def test_the_pool_runs_the_checkpoint_that_the_job_made(workshop: Workshop, quantised: Json) -> None:
    made = json.loads((workshop.folder / DECODER / "config.json").read_text())["quantization_config"]
    weights = made["config_groups"]["group_0"]["weights"]
    assert (made["format"], weights["num_bits"], weights["group_size"]) == ("pack-quantized", 4, 64)
    assert quantised["model"]["quantizedDigest"] not in {"", quantised["model"]["digest"]}
    assert quantised["readyReplicas"] == 1


@pytest.mark.usefixtures("quantised")
def test_the_job_goes_once_its_checkpoint_is_known(workshop: Workshop) -> None:
    selector = ("--selector", f"{names.LABEL_ROLE}={names.ROLE_QUANTIZER}")
    where = ("--namespace", workshop.namespace)
    wait_until("the Job is gone", lambda: not workshop.kubectl.items("jobs", *where, *selector), GONE_SECONDS)
