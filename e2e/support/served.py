"""A fleet of fake engines behind the router, as a client and as a test see it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sunfleet_fakes.engine.tokens import expected_text, tokenize
from sunfleet_fakes.harness import EngineControl
from support import fakes
from support.fakes import ApiProxy
from support.fleet import ROUTER_NAMESPACE, ROUTER_SERVICE, engine_pods
from support.kubectl import Json, Kubectl, wait_until
from support.streams import ask, completion

ANSWER_TOKENS = 16  # of a fake engine, EOS included, unless a test says otherwise


@dataclass(frozen=True)
class ServedFleet:
    """Tasks ``maths`` and ``code`` over the decoder ``base``, as a client and as a test see them."""

    kubectl: Kubectl
    proxy: ApiProxy
    namespace: str
    url: str
    identities: dict[str, str] = field(default_factory=dict)  # of the modules: by task, and "decode"

    def learn_identities(self) -> None:
        """Ask the pods, while all are there."""
        self.identities["decode"] = fakes.identity(self.engines("decode")[0])
        for task in ("maths", "code"):
            self.identities[task] = fakes.identity(self.engines("prefill", task)[0])

    def model(self, task: str) -> str:
        """Name for the OpenAI API."""
        return f"{self.namespace}/{task}"

    def pods(self, role: str, task: str = "") -> list[Json]:
        return engine_pods(self.kubectl, self.namespace, role, task)

    def engines(self, role: str, task: str = "") -> list[EngineControl]:
        """Controls of all live pods of a role."""
        return self.proxy.engines(self.pods(role, task))

    def expected(self, task: str, prompt: str, *, max_tokens: int = 20, answer_tokens: int = ANSWER_TOKENS) -> str:
        """The only right text."""
        return expected_text(
            self.identities[task], self.identities["decode"], tokenize(prompt),
            answer_tokens=answer_tokens, max_tokens=max_tokens,
        )  # fmt: skip

    def configure(self, role: str, task: str = "", **behaviour: object) -> None:
        """Let every pod of a role behave like this."""
        for engine in self.engines(role, task):
            engine.configure(**behaviour)

    def reset(self) -> None:
        """Whole again: every pod Ready and without faults, the router willing."""
        wait_until("two decode and two prefill pods are ready and whole", self._all_reset, 90, 0.5)
        for task in ("maths", "code"):
            question = completion(self.model(task), "are you there")
            wait_until(f"{task} answers", lambda body=question: ask(self.url, body).status == 200, 30, 0.5)
        self._all_reset()  # forget these questions

    def _all_reset(self) -> bool:
        if not self.ready("decode") == self.ready("prefill") == 2:
            return False
        try:
            for engine in [*self.engines("prefill"), *self.engines("decode")]:
                engine.reset()
        except OSError:  # its container has just ended
            return False
        return True

    def ready(self, role: str) -> int:
        """How many live pods of a role are Ready."""
        states = [state for pod in self.pods(role) for state in pod.get("status", {}).get("conditions", [])]
        return sum(state["type"] == "Ready" and state["status"] == "True" for state in states)


@contextmanager
def router_address(kubectl: Kubectl) -> Iterator[str]:
    """The router's Service: by its own address where this machine reaches it, else forwarded."""
    service = kubectl.get(ROUTER_SERVICE, "--namespace", ROUTER_NAMESPACE)
    port = next(entry["port"] for entry in service["spec"]["ports"] if entry["name"] == "http")
    address = service["spec"]["clusterIP"]
    if _reachable(address, port):
        yield f"http://{address}:{port}"
    else:
        with kubectl.port_forward(ROUTER_NAMESPACE, ROUTER_SERVICE, port) as url:
            yield url


def _reachable(address: str, port: int) -> bool:
    """Whether a TCP connection can be made within two seconds."""
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False
