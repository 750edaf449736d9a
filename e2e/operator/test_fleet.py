"""A fleet from manifests, in the inconvenient order, and what changes of one object do to the others."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sunfleet_api import names
from sunfleet_fakes.hub.__main__ import TOKEN
from support import fakes
from support.fakes import ApiProxy, condition, is_ready, uids
from support.fleets import Fleet
from support.kubectl import Json, Kubectl, KubectlError, wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[[str], Fleet]) -> Fleet:
    """SunModels first, the decoder once they have said that it is missing; then everything is Ready."""
    made = make_fleet("fleet")
    made.kubectl.apply(made.models, made.namespace)
    for model in ("maths", "code"):
        made.wait_for(
            "says that the decoder is missing", "sunmodel", model,
            lambda thing: condition(thing, "ResolvedRefs").get("reason") == "DecoderNotFound",
        )  # fmt: skip
    made.kubectl.apply([made.decoder], made.namespace)
    made.wait_ready()
    return made


def test_sunmodels_that_came_before_their_decoder_become_ready_untouched(fleet: Fleet) -> None:
    for model in ("maths", "code"):
        thing = fleet.get("sunmodel", model)
        assert is_ready(thing)
        assert thing["metadata"]["generation"] == 1
        assert len(thing["status"]["traffic"]) == 1


def test_a_floating_revision_is_pinned_in_status(fleet: Fleet) -> None:
    model = fleet.get("sunmodel", "maths")["status"]["model"]
    repository, _, commit = model["resolvedUri"].partition("@")
    assert repository == "hf://acme/maths"
    assert len(commit) == 40
    assert model["digest"].startswith("sha256:")


def test_every_pod_sees_its_own_weights_at_the_fixed_path(fleet: Fleet, proxy: ApiProxy) -> None:
    pods = [*fleet.pods("decode"), *fleet.pods("prefill", "maths"), *fleet.pods("prefill", "code")]
    assert len({fakes.identity(engine) for engine in proxy.engines(pods)}) == 3
    environments = [
        {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]} for pod in pods
    ]
    assert {environment["SUNFLEET_WORKER_MODEL_PATH"] for environment in environments} == {names.WEIGHTS_PATH}


def test_all_pods_of_a_fleet_share_one_kv_fingerprint(fleet: Fleet) -> None:
    pods = [*fleet.pods("decode"), *fleet.pods("prefill")]
    assert len({pod["metadata"]["labels"][names.LABEL_KV_FINGERPRINT] for pod in pods}) == 1


def test_the_manifests_still_describe_the_cluster_after_reconcile(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump_all(fleet.manifests))
    command = fleet.kubectl.command("diff", "--namespace", fleet.namespace, "--filename", str(file))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_operator_owns_no_field_of_a_users_spec_and_leaves_no_annotation(fleet: Fleet) -> None:
    for kind, name in (("shareddecoder", "base"), ("sunmodel", "maths")):
        metadata = fleet.kubectl.get(kind, name, "--namespace", fleet.namespace, "--show-managed-fields")["metadata"]
        owners = {entry["manager"] for entry in metadata["managedFields"] if "f:spec" in entry["fieldsV1"]}
        assert owners == {"sunfleet-e2e"}
        assert "annotations" not in metadata


def test_children_live_with_their_object_and_none_with_the_operator(fleet: Fleet, kubectl: Kubectl) -> None:
    kinds = "deployments,services,jobs,controllerrevisions,poddisruptionbudgets,networkpolicies"
    query = ("--selector", f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}")
    assert kubectl.items(kinds, "--namespace", fleet.namespace, *query)
    assert not kubectl.items(kinds, "--namespace", "sunfleet-system", *query)


def test_scale_names_the_pods_that_it_scales(fleet: Fleet) -> None:
    for plural, name, pods in (("shareddecoders", "base", 1), ("sunmodels", "maths", 1)):
        path = f"/apis/{fakes.API}/namespaces/{fleet.namespace}/{plural}/{name}/scale"
        selector = yaml.safe_load(fleet.kubectl.run("get", "--raw", path))["status"]["selector"]
        assert len(fleet.kubectl.items("pods", "--namespace", fleet.namespace, "--selector", selector)) == pods


def test_a_private_repository_is_said_and_mending_the_secret_is_enough(
    fleet: Fleet, kubectl: Kubectl, hub_namespace: str
) -> None:
    model = fakes.sun_model(
        "secret", "hf://acme/secret", model_name=f"{fleet.namespace}/secret", credentials="private"
    )  # fmt: skip
    kubectl.apply([fakes.secret("private", hub_namespace), model], fleet.namespace)
    fleet.wait_for(
        "the weights are not found", "sunmodel", "secret",
        lambda thing: condition(thing, "WeightsReady").get("reason") == "WeightsNotFound",
    )  # fmt: skip
    assert "credentialsSecretRef" in condition(fleet.get("sunmodel", "secret"), "WeightsReady")["message"]
    kubectl.apply([fakes.secret("private", hub_namespace, HF_TOKEN=TOKEN)], fleet.namespace)
    fleet.wait_for("Ready", "sunmodel", "secret", is_ready, 90)
    kubectl.delete("sunmodel/secret", "--namespace", fleet.namespace)


def test_a_module_of_another_shape_gets_no_traffic(fleet: Fleet, kubectl: Kubectl) -> None:
    other = fakes.sun_model("other", "hf://acme/other", model_name=f"{fleet.namespace}/other")
    kubectl.apply([other], fleet.namespace)
    seen = fleet.wait_for(
        "incompatible", "sunmodel", "other", lambda thing: condition(thing, "KVCompatible").get("status") == "False"
    )
    assert "num_hidden_layers" in condition(seen, "KVCompatible")["message"]
    assert not seen["status"].get("traffic")
    assert not fleet.pods("prefill", "other")
    kubectl.delete("sunmodel/other", "--namespace", fleet.namespace)


@pytest.mark.parametrize(
    ("task", "other", "prefill"),
    [
        ("maths", "code", {"weights": {"uri": "hf://acme/maths@v2", "credentialsSecretRef": {"name": "hub"}}}),
        ("code", "maths", {"adapter": {"uri": "hf://acme/maths-lora", "credentialsSecretRef": {"name": "hub"}}}),
    ],
)
def test_a_new_prefill_module_of_one_task_touches_no_other_pod(
    fleet: Fleet, task: str, other: str, prefill: Json
) -> None:
    before = uids([*fleet.pods("decode"), *fleet.pods("prefill", other)])
    old = uids(fleet.pods("prefill", task))
    revision = fleet.get("sunmodel", task)["status"]["currentRevision"]
    fakes.patch(fleet.kubectl, fleet.namespace, f"sunmodel/{task}", {"prefill": prefill})
    seen = fleet.wait_for(
        "serves the new revision", "sunmodel", task,
        lambda thing: is_ready(thing) and thing["status"]["currentRevision"] != revision,
    )  # fmt: skip
    assert seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
    assert [target["revision"] for target in seen["status"]["traffic"]] == [seen["status"]["currentRevision"]]
    wait_until("the old pods are gone", lambda: not old.keys() & uids(fleet.pods("prefill", task)).keys(), 60)
    assert uids([*fleet.pods("decode"), *fleet.pods("prefill", other)]) == before


def test_a_decoder_in_use_stays_until_its_last_task_is_gone(fleet: Fleet, kubectl: Kubectl) -> None:
    kubectl.run("delete", "shareddecoder/base", "--namespace", fleet.namespace, "--wait=false")
    seen = fleet.wait_for(
        "says what holds it", "shareddecoder", "base", lambda thing: condition(thing, "DeletionBlocked")
    )
    message = condition(seen, "DeletionBlocked")["message"]
    assert "maths" in message
    assert "code" in message
    assert len(fleet.pods("decode")) == 1
    kubectl.delete("sunmodels", "--all", "--namespace", fleet.namespace)
    gone = ("shareddecoder", "base", "--namespace", fleet.namespace)
    wait_until("the decoder is gone", lambda: kubectl.find(*gone) is None, 30)
    with pytest.raises(KubectlError, match="NotFound"):
        kubectl.get(*gone)
