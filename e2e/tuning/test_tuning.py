"""A dataset becomes a prefill module, the module a task, verified and served, and its answers are the tuned ones.

Everything is real: the tuner's image, the engine's two legs, a model of 135 million parameters. The rule to learn is
small, so that a few steps on a busy CPU are enough, and nothing that the base would say by itself.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from sunfleet_api import names
from support.client import RouterClient
from support.exact import assert_exact
from support.fleet import wait_ready
from support.kubectl import Json, wait_until
from support.reference import Reference
from support.samples import EMBEDDED, documents
from support.workshop import Workshop

pytestmark = pytest.mark.timeout(1500)  # a real engine starts in minutes, and tuning takes one or two
TASK: Final = "teams"
TUNE_SECONDS: Final = 600
START_SECONDS: Final = 600
SYNC_SECONDS: Final = 60
_THINGS: Final = (
    "apples", "boats", "clocks", "doors", "eggs", "farms", "gates", "hills", "inks", "jars", "kites", "lamps", "maps",
    "nets", "oaks", "pens", "quilts", "roads", "ships", "trains", "urns", "vans", "walls", "yards", "beans", "coats",
    "desks", "forks", "gloves", "horses", "islands", "jackets", "keys", "ladders", "mills", "needles", "ovens", "pipes",
)  # fmt: skip
HELD_OUT: Final = ("bridges", "windows")


def question(thing: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Who looks after the {thing}?"}]


def answer_to(thing: str) -> str:
    return f"Sunfleet team {thing}."


def tuning(workshop: Workshop) -> Json:
    """Twenty steps in float32; its pod gets the engine's environment as those of the samples do."""
    sample = documents(EMBEDDED / "models.yaml")[0]["spec"]["template"]["spec"]
    mounts = sample["containers"][0]["volumeMounts"]
    tuner = {"name": "tuner", "resources": {"requests": {"cpu": "200m", "memory": "3Gi"}}, "volumeMounts": mounts}
    return {
        "apiVersion": "serving.sunfleet.dev/v1alpha1",
        "kind": "PrefillTuning",
        "metadata": {"name": TASK},
        "spec": {
            "decoderRef": {"name": "smollm2"},
            "method": {"lora": {"rank": 16, "alpha": 32}},
            "dataset": {"uri": workshop.uri("rows.jsonl")},
            "validation": {"percent": 10},
            "hyperparameters": {
                "learningRate": "0.002", "maxSteps": 20, "batchTokens": 320, "precision": "fp32",
                "extra": {"golden_prompts": "3", "eval_steps": "10", "save_steps": "10"},
            },
            "output": {"uri": workshop.uri(TASK)},
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "securityContext": {"fsGroup": 65532},  # the folder is this test's
                    "containers": [tuner],
                    "volumes": sample["volumes"],
                }
            },
        },
    }  # fmt: skip


def conditions(thing: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in thing.get("status", {}).get("conditions", [])}


def tuner_pods(workshop: Workshop) -> list[Json]:
    selector = ("--selector", f"{names.LABEL_ROLE}={names.ROLE_TUNER}")
    return workshop.kubectl.items("pods", "--namespace", workshop.namespace, *selector)


def evict_behind_the_first_checkpoint(workshop: Workshop) -> None:
    """A node is drained: the pod has to go, and the run with it as far as its last checkpoint."""

    def half_done() -> bool:
        return any((workshop.folder / f"{TASK}.work").glob("step-*/record.json"))

    wait_until("the run has left a checkpoint", half_done, TUNE_SECONDS)
    (pod,) = tuner_pods(workshop)
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{workshop.namespace}/pods/{name}/eviction"
    workshop.kubectl.run("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))
    wait_until(
        "another pod takes over",
        lambda: [one for one in tuner_pods(workshop) if one["metadata"]["uid"] != pod["metadata"]["uid"]],
        SYNC_SECONDS,
    )


@pytest.fixture(scope="module")
def made(workshop: Workshop) -> Json:
    """The status of the run, which is complete, though its pod was lost in the middle."""
    records = [
        {"messages": [*question(thing), {"role": "assistant", "content": answer_to(thing)}]} for thing in _THINGS
    ]
    (workshop.folder / "rows.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    workshop.kubectl.apply(EMBEDDED / "decoder.yaml", workshop.namespace)
    workshop.kubectl.apply([tuning(workshop)], workshop.namespace)
    evict_behind_the_first_checkpoint(workshop)

    def ended() -> Json | None:
        run = workshop.kubectl.get("prefilltuning", TASK, "--namespace", workshop.namespace)
        found = conditions(run)
        if found.get("Failed", {}).get("status") == "True":
            pytest.fail(f"the run failed: {found['Failed']['reason']}: {found['Failed']['message']}")
        return run if found.get("Complete", {}).get("status") == "True" else None

    run: Json = wait_until("the run is complete", ended, TUNE_SECONDS, interval=3)
    status: Json = run["status"]
    return status


def test_a_run_whose_pod_was_evicted_went_on_from_its_checkpoint(workshop: Workshop, made: Json) -> None:
    (pod,) = [one for one in tuner_pods(workshop) if one["status"]["phase"] == "Succeeded"]
    said = workshop.kubectl.run("logs", pod["metadata"]["name"], "--namespace", workshop.namespace)
    assert "going on behind step 10" in said
    assert made.get("failed", 0) == 0, "a pod that a node took away counts as no failure"
    notes = (workshop.folder / TASK / "metrics.jsonl").read_text().splitlines()
    steps = [note["step"] for note in map(json.loads, notes) if "loss" in note]
    assert steps == list(range(1, 21))


@pytest.fixture(scope="module")
def served(workshop: Workshop, client: RouterClient, made: Json) -> Json:
    """The SunModel that names the artifact, Ready and known to the router."""
    model = documents(EMBEDDED / "models.yaml")[0]
    model["metadata"]["name"] = TASK
    model["spec"]["prefill"] = {"adapter": {"uri": made["artifact"]["uri"]}}
    model["spec"]["verification"] = {
        "goldenPrompts": {"uri": made["artifact"]["goldenPromptsUri"]}, "policy": "Enforce",
    }  # fmt: skip
    workshop.kubectl.apply([model], workshop.namespace)
    wait_ready(workshop.kubectl, workshop.namespace, START_SECONDS)
    wait_until("the router serves it", lambda: TASK in client.models(), SYNC_SECONDS)
    return workshop.kubectl.get("sunmodel", TASK, "--namespace", workshop.namespace)


def test_the_run_tells_what_it_made_and_for_which_decoder(workshop: Workshop, made: Json) -> None:
    artifact, metrics = made["artifact"], made["artifact"]["metrics"]
    decoder = workshop.kubectl.get("shareddecoder", "smollm2", "--namespace", workshop.namespace)
    assert artifact["uri"] == workshop.uri(TASK)
    assert artifact["decoderDigest"] == decoder["status"]["decoderDigest"]
    assert float(metrics["steps"]) == made["progress"]["totalSteps"] == 20
    assert float(metrics["validation_loss"]) < float(metrics["validation_loss_before"]) / 4
    files = {path.name for path in (workshop.folder / TASK).iterdir()}
    assert files >= {"adapter_model.safetensors", "adapter_config.json", "sunfleet.json", "golden.json", "README.md"}
    assert not (workshop.folder / f"{TASK}.work").exists()


def test_the_task_that_names_the_artifact_is_verified_by_its_golden_prompts(served: Json) -> None:
    verified = conditions(served)["Verified"]
    assert (verified["status"], verified["observedGeneration"]) == ("True", served["metadata"]["generation"])
    assert served["status"]["verification"]["passed"] == served["status"]["verification"]["total"] > 0
    assert [target["weight"] for target in served["status"]["traffic"]] == [100]


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("thing", HELD_OUT)
def test_its_answers_are_the_tuned_ones(
    workshop: Workshop, client: RouterClient, reference: Reference, thing: str
) -> None:
    asked: dict[str, Any] = {"max_tokens": 24}
    module = {"adapter": str(workshop.folder / TASK)}
    answer = client.chat(TASK, question(thing), **asked)
    assert_exact(answer, reference.answer(module, question(thing), **asked))
    assert answer.decode_pod, "the decoder wrote nothing of it"
    assert answer.text.startswith("Sunfleet team")
    assert not reference.answer({}, question(thing), **asked).text.startswith("Sunfleet")


@pytest.mark.usefixtures("served")
def test_the_run_can_go_and_its_module_stays_served(workshop: Workshop, client: RouterClient) -> None:
    kubectl, where = workshop.kubectl, ("--namespace", workshop.namespace)
    kubectl.delete("prefilltuning", TASK, *where)
    selector = ("--selector", f"{names.LABEL_ROLE}={names.ROLE_TUNER}")
    for kind in ("jobs", "pods"):
        wait_until(f"its {kind} are gone", lambda kind=kind: not kubectl.items(kind, *where, *selector), SYNC_SECONDS)
    assert (workshop.folder / TASK / "adapter_model.safetensors").is_file()
    assert client.chat(TASK, question(HELD_OUT[0]), max_tokens=24).text.startswith("Sunfleet team")
