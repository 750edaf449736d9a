"""Engines that speak TLS and ask for a key: who has both gets answers, and nobody else does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from sunfleet_api import names
from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_fakes.certificates import certificate
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from sunfleet_fakes.harness import EngineControl
from support import fakes
from support.fakes import ApiProxy
from support.fleet import ROUTER_NAMESPACE, wait_ready
from support.fleets import Fleet
from support.golden import PROMPTS, asking, golden_map
from support.kubectl import Json, Kubectl, wait_until
from support.operator_settings import operator_with
from support.second_router import peer, second_router
from support.served import ANSWER_TOKENS, router_address
from support.streams import Reply, ask, completion

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
TASK, GOLDEN, TLS, KEY = "maths", "golden", "engine-tls", "engine-key"
MAX_TOKENS, SECONDS = 8, 120.0
RIGHT_KEY, WRONG_KEY = "the-fleets-key", "another-key"
# From a pod that may reach the engine: one call by TLS or without, with this key. Prints the status, or what broke.
_CALL = """
import http.client, ssl, sys
scheme, host, port, key, authority = sys.argv[1:]
if scheme == "https":
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=context)
else:
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
try:
    connection.request("GET", "/sunfleet/info", headers={"authorization": f"Bearer {key}"} if key else {})
    print(connection.getresponse().status)
except (OSError, http.client.HTTPException) as error:
    print(type(error).__name__)
"""


@dataclass(frozen=True)
class SecuredFleet(Fleet):
    """A decoder and a task whose engines speak TLS and ask for a key; ``suffix`` names what belongs to it elsewhere."""

    proxy: ApiProxy
    suffix: str
    identities: dict[str, str] = field(default_factory=dict)

    def engine(self, role: str) -> EngineControl:
        """The controls of the first engine of a role, which the API server reaches by TLS."""
        pod = self.pods(role)[0]["metadata"]["name"]
        path = f"/api/v1/namespaces/{self.namespace}/pods/https:{pod}:{names.ENGINE_PORT}/proxy"
        return EngineControl(self.proxy.url + path)

    @property
    def model(self) -> str:
        return f"{self.namespace}/{TASK}"

    def right(self, prompt: str) -> str:
        module, decoder = self.identities[ROLE_PREFILL], self.identities[ROLE_DECODE]
        return expected_text(module, decoder, tokenize(prompt), answer_tokens=ANSWER_TOKENS, max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module")
def secrets(
    kubectl: Kubectl, make_namespace: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Certificate and key in a namespace of engines and, under names of its own, in the routers'; namespace, suffix."""
    namespace, suffix = make_namespace("tls"), uuid4().hex[:6]
    public, private = certificate(tmp_path_factory.mktemp("tls"), "engine", f"DNS:{names.ENGINE_SERVER_NAME}")
    pair = {"tls.crt": public.read_text(), "tls.key": private.read_text(), "ca.crt": public.read_text()}
    kubectl.apply([_secret(TLS, pair, "kubernetes.io/tls"), _secret(KEY, {"key": RIGHT_KEY})], namespace)
    theirs = [
        _secret(f"authority-{suffix}", {"ca.crt": public.read_text()}),
        _secret(f"right-{suffix}", {"key": RIGHT_KEY}),
        _secret(f"wrong-{suffix}", {"key": WRONG_KEY}),
    ]
    kubectl.apply(theirs, ROUTER_NAMESPACE)
    yield namespace, suffix
    for made in theirs:
        kubectl.delete("secret", made["metadata"]["name"], "--namespace", ROUTER_NAMESPACE)


def _secret(name: str, data: dict[str, str], kind: str = "Opaque") -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data}


@pytest.fixture(scope="module")
def fleet(kubectl: Kubectl, proxy: ApiProxy, secrets: tuple[str, str], fake_image: str) -> Iterator[SecuredFleet]:
    """Made by an operator that meanwhile serves this namespace alone: others' pods are not replaced."""
    namespace, suffix = secrets
    task = fakes.sun_model(TASK, "hf://acme/maths@main", model_name=f"{namespace}/{TASK}")
    task["spec"]["verification"] = asking(GOLDEN)
    made = SecuredFleet(kubectl, namespace, fakes.decoder(fake_image), [task], proxy, suffix)
    routers = [peer("sunfleet-router"), *(peer(f"{kind}-{suffix}") for kind in ("right", "wrong"))]
    variables = {
        "SUNFLEET_OPERATOR_NAMESPACES": namespace,
        "SUNFLEET_OPERATOR_ENGINE_TLS_SECRET": TLS,
        "SUNFLEET_OPERATOR_ENGINE_KEY_SECRET": KEY,
        "SUNFLEET_OPERATOR_NETWORK__ROUTERS": json.dumps(routers),
    }
    with operator_with(kubectl, variables):
        kubectl.apply(made.manifests, namespace)
        wait_until("its pods are Ready", lambda: _ready(made) == 2, SECONDS)
        for role in (ROLE_DECODE, ROLE_PREFILL):
            made.identities[role] = fakes.identity(made.engine(role))
        yield made
        for kind in ("sunmodels", "shareddecoders"):
            kubectl.delete(kind, "--all", "--namespace", namespace)


def _ready(fleet: Fleet) -> int:
    pods = [*fleet.pods(ROLE_DECODE), *fleet.pods(ROLE_PREFILL, TASK)]
    states = [state for pod in pods for state in pod.get("status", {}).get("conditions", [])]
    return sum((state["type"], state["status"]) == ("Ready", "True") for state in states)


def _router(fleet: SecuredFleet, kind: str) -> Iterator[str]:
    """A router that trusts the engines' authority and shows the ``right`` or the ``wrong`` key."""
    name = f"{kind}-{fleet.suffix}"
    settings = {"ENGINE_CA_FILE": "/engine/ca/ca.crt", "ENGINE_API_KEY_FILE": "/engine/key/key"}
    mounts = {f"authority-{fleet.suffix}": "/engine/ca", name: "/engine/key"}
    with second_router(fleet.kubectl, name, fleet.namespace, settings, mounts) as url:
        yield url


@pytest.fixture(scope="module")
def right_router(fleet: SecuredFleet) -> Iterator[str]:
    yield from _router(fleet, "right")


@pytest.fixture(scope="module")
def wrong_router(fleet: SecuredFleet) -> Iterator[str]:
    yield from _router(fleet, "wrong")


def test_golden_prompts_are_asked_over_tls_and_with_the_key(fleet: SecuredFleet) -> None:
    prompts = golden_map(GOLDEN, fleet.identities[ROLE_PREFILL], fleet.identities[ROLE_DECODE])
    fleet.kubectl.apply([prompts], fleet.namespace)
    wait_ready(fleet.kubectl, fleet.namespace, SECONDS)
    told = fleet.get("sunmodel", TASK)["status"]["verification"]
    assert (told["passed"], told["total"]) == (PROMPTS, PROMPTS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_router_with_authority_and_key_gets_exact_answers(
    fleet: SecuredFleet, right_router: str, stream: bool
) -> None:
    """Follows the test above: before it nothing serves."""
    reply = _until_known(right_router, completion(fleet.model, "one two three", max_tokens=MAX_TOKENS, stream=stream))
    assert (reply.status, reply.done, reply.text) == (200, True, fleet.right("one two three")), reply


def test_a_router_with_another_key_gets_none(fleet: SecuredFleet, wrong_router: str) -> None:
    before = _asked(fleet)
    reply = _until_known(wrong_router, completion(fleet.model, "one two three", max_tokens=MAX_TOKENS))
    assert reply.status >= 500, reply
    assert reply.text == ""
    assert _asked(fleet) == before


def test_a_router_that_speaks_plain_http_gets_none(fleet: SecuredFleet) -> None:
    """The installed one, which knows nothing of the certificate."""
    before = _asked(fleet)
    with router_address(fleet.kubectl) as url:
        reply = _until_known(url, completion(fleet.model, "one two three", max_tokens=MAX_TOKENS))
    assert reply.status >= 500, reply
    assert _asked(fleet) == before


@pytest.mark.parametrize(
    ("scheme", "key", "answer"),
    [("https", RIGHT_KEY, "200"), ("https", WRONG_KEY, "401"), ("https", "", "401"), ("http", RIGHT_KEY, None)],
    ids=["both", "another key", "no key", "plain"],
)
@pytest.mark.parametrize("role", [ROLE_PREFILL, ROLE_DECODE])
def test_an_engine_answers_only_by_tls_and_only_to_the_key(
    fleet: SecuredFleet, right_router: str, role: str, scheme: str, key: str, answer: str | None
) -> None:
    assert right_router
    address = fleet.pods(role)[0]["status"]["podIP"]
    where = ("exec", f"deployment/right-{fleet.suffix}", "--namespace", ROUTER_NAMESPACE, "--", "python", "-c", _CALL)
    said = fleet.kubectl.run(*where, scheme, address, str(names.ENGINE_PORT), key, "/engine/ca/ca.crt").strip()
    if answer is None:
        assert not said.isdigit(), f"plain HTTP was answered with {said}"
    else:
        assert said == answer


def _asked(fleet: SecuredFleet) -> int:
    """Generation requests that engines have taken so far."""
    return sum(len(fleet.engine(role).requests()) for role in (ROLE_PREFILL, ROLE_DECODE))


def _until_known(url: str, body: Json) -> Reply:
    """The answer of a router that knows of the model by now."""
    replies: list[Reply] = []

    def known() -> bool:
        replies.append(ask(url, body))
        return replies[-1].status != 404

    wait_until("the router knows the model", known, 30, 0.5)
    return replies[-1]
