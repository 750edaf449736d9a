"""A roll-out without a spare GPU (R9): old pods stop first, no pod ever waits for a place, no stream breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.crowd import Crowd
from support.fakes import ApiProxy, condition, is_ready, patch, uids
from support.fleet import wait_ready
from support.kubectl import Json, Kubectl, wait_until
from support.podlog import GPU, PodLog, watched
from support.scaled import behaving
from support.served import ServedFleet, router_address

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
DECODERS, PREFILLS = (
    2,
    1,
)  # a task's only pod cannot be replaced without a gap, so the pool is what is rolled under load
STREAMS, TOKENS = 20, 20
PACE = {"tokens_per_second": 2, "answer_tokens": TOKENS}


def on_a_gpu(made: Json) -> Json:
    """The same object, one GPU for each pod and none to spare."""
    engine = made["spec"]["template"]["spec"]["containers"][0]
    engine["resources"] = {**engine["resources"], "limits": {**engine["resources"]["limits"], GPU: 1}}
    made["spec"]["rollout"] |= {"maxSurge": 0, "maxUnavailable": 1}
    return made


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[ServedFleet]:
    """Two decode pods and a prefill pod; another pod has taken every GPU that was left."""
    namespace = make_namespace("surge")
    task = fakes.sun_model("maths", "hf://acme/maths", model_name=f"{namespace}/maths", drain_seconds=60)
    decoder = fakes.decoder(fake_image, replicas=DECODERS, drain_seconds=60)
    kubectl.apply([behaving(on_a_gpu(made), PACE) for made in (decoder, task)], namespace)
    wait_ready(kubectl, namespace, 120)
    kubectl.apply([neighbour(fake_image, free_gpus(kubectl))], namespace)
    kubectl.run("wait", "pod/neighbour", "--namespace", namespace, "--for=condition=Ready", "--timeout=60s")
    assert free_gpus(kubectl) == 0
    with router_address(kubectl) as url:
        made = ServedFleet(kubectl, proxy, namespace, url)
        made.identities["decode"] = fakes.identity(made.engines(ROLE_DECODE)[0])
        made.identities["maths"] = fakes.identity(made.engines(ROLE_PREFILL, "maths")[0])
        yield made


def free_gpus(kubectl: Kubectl) -> int:
    """What the nodes have beyond what their pods asked for."""
    there = sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in kubectl.items("nodes"))
    running = [pod for pod in kubectl.items("pods", "--all-namespaces") if pod["spec"].get("nodeName")]
    held = [pod for pod in running if pod["status"]["phase"] not in {"Succeeded", "Failed"}]
    limits = [
        container.get("resources", {}).get("limits", {}) for pod in held for container in pod["spec"]["containers"]
    ]
    return there - sum(int(limit.get(GPU, 0)) for limit in limits)


def neighbour(image: str, gpus: int) -> Json:
    """A pod of somebody else with so many GPUs."""
    container: Json = {
        "name": "neighbour", "image": image, "command": ["sleep", "3600"], "securityContext": fakes.RESTRICTED,
        "resources": {"limits": {GPU: gpus, "memory": "32Mi"}},
    }  # fmt: skip
    spec: Json = {
        "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "neighbour"}, "spec": spec}


def roll(fleet: ServedFleet, target: str, role: str) -> None:
    """A new revision of every pod of ``target``; done when it is Ready and no old pod is wanted."""
    old = uids(fleet.pods(role))
    annotations = {"example.com/rolled": str(time.time())}
    patch(fleet.kubectl, fleet.namespace, target, {"template": {"metadata": {"annotations": annotations}}})

    def done() -> bool:
        ready = is_ready(fleet.kubectl.get(target, "--namespace", fleet.namespace))
        return ready and not old.keys() & uids(fleet.pods(role)).keys()

    wait_until(f"{target} is rolled", done, 200)


def never_more_than(log: PodLog, since: float, gpus: int) -> None:
    """At no moment did engine pods, those that drain included, ask for more GPUs than there were."""
    assert max(moment.gpus for moment in log.since(since)) == gpus


def test_a_pool_is_rolled_pod_by_pod_while_all_gpus_are_taken(fleet: ServedFleet) -> None:
    def expected(_model: str, prompt: str, limit: int) -> str:
        module, decoder = fleet.identities["maths"], fleet.identities["decode"]
        return expected_text(module, decoder, tokenize(prompt), answer_tokens=TOKENS, max_tokens=limit)

    crowd = Crowd(fleet.url, [fleet.model("maths")], STREAMS, TOKENS)
    with watched(fleet.proxy.url, fleet.namespace) as log:
        wait_until("the log has begun", lambda: len(log.now.of(ROLE_DECODE)) == DECODERS, 10, 0.2)
        started = time.monotonic()
        replies, asked = crowd.under_way(lambda: roll(fleet, "shareddecoder/base", ROLE_DECODE))
        never_more_than(log, started, DECODERS + PREFILLS)
        assert min(len(moment.ready(ROLE_DECODE)) for moment in log.since(started)) == DECODERS - 1
    assert crowd.faults(replies, asked, expected) == []


def test_a_task_of_one_pod_is_rolled_and_says_that_the_old_one_stops_first(fleet: ServedFleet) -> None:
    with watched(fleet.proxy.url, fleet.namespace) as log:
        wait_until("the log has begun", lambda: len(log.now.of(ROLE_PREFILL, "maths")) == PREFILLS, 10, 0.2)
        started = time.monotonic()
        roll(fleet, "sunmodel/maths", ROLE_PREFILL)
        never_more_than(log, started, DECODERS + PREFILLS)
    events = fleet.kubectl.items("events", "--namespace", fleet.namespace)
    assert not [event["message"] for event in events if event["reason"] == "FailedScheduling"]
    seen = fleet.kubectl.get("sunmodel/maths", "--namespace", fleet.namespace)
    assert condition(seen, "Progressing")["reason"] == "RolloutComplete"
