"""The demo's steps, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from sunfleet_api import names
from sunfleet_cluster.state import StateFolder
from sunfleet_demo.proof import Claim, claims
from sunfleet_demo.questions import Asked, Known, Question, ask_all, compute, questions
from sunfleet_demo.screen import Screen
from support.client import RouterClient
from support.fleet import ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT, engine_pods, pod_names, wait_ready
from support.kubectl import Kubectl, KubectlError, wait_until
from support.metrics import PromptTokens, pod_prompt_tokens
from support.reference import Reference
from support.samples import EMBEDDED, make_namespace

MANIFESTS = ("decoder.yaml", "models.yaml")
SYNC_SECONDS = 30  # from Ready to the router's knowing it
METRICS_SECONDS = 10  # from an answer to the engine's counting it


@dataclass(frozen=True)
class Result:
    """Everything that was asked and claimed."""

    asked: Sequence[Asked]
    known: dict[str, Known]
    claims: Sequence[Claim]

    @property
    def proven(self) -> bool:
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True)
class Demo:
    """One run in ``namespace``; ``timeout``: seconds until the fleet has to be ready."""

    kubectl: Kubectl
    state: StateFolder
    screen: Screen
    namespace: str
    timeout: float

    def run(self) -> Result:
        """Raises KubectlError, ReferenceFailed, TimeoutError, or the openai client's errors."""
        asked = questions()
        self.deploy()
        # The reference loads and answers while the engines start.
        with Reference(self.state) as reference, ThreadPoolExecutor(1) as pool:
            futures = {question.task: pool.submit(compute, reference, question) for question in asked}
            self.wait()
            return self.ask(asked, futures)

    def deploy(self) -> None:
        """Namespace, claims and the two sample files."""
        self._check_installed()
        self.screen.head("A fleet from two manifests")
        make_namespace(self.kubectl, self.namespace, self.state)
        for name in MANIFESTS:
            path = EMBEDDED / name
            self.screen.say(f"$ kubectl -n {self.namespace} apply -f manifests/samples/embedded/{name}")
            for line in self.kubectl.apply(path, self.namespace).splitlines():
                self.screen.say(f"  {line}")

    def wait(self) -> None:
        self.screen.head("Waiting for the fleet (an engine takes 1-3 minutes to start here)")
        with self.screen.watching() as show:
            wait_ready(self.kubectl, self.namespace, self.timeout, show)

    def ask(self, asked: Sequence[Question], futures: dict[str, Future[Known]]) -> Result:
        """Ask, compare and count."""
        known = {task: future.result() for task, future in futures.items()}
        self.screen.head("Both tasks, asked through the router with the openai client")
        decoders = pod_names(engine_pods(self.kubectl, self.namespace, names.ROLE_DECODE))
        with self.kubectl.port_forward(ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT) as url:
            client = RouterClient(url)
            wait_until("the router serves both tasks", partial(_serves, client, asked), SYNC_SECONDS)
            before = self._prompt_tokens(decoders)
            answers = ask_all(client, asked)
        for one in answers:
            self.screen.answer(one, known[one.question.task])
        counted = self._settled(decoders, before, sum(len(one.answer.prompt_token_ids) for one in answers))
        result = Result(answers, known, claims(answers, known, counted))
        self.screen.head("The proof")
        self.screen.claims(result.claims)
        return result

    def _check_installed(self) -> None:
        try:
            self.kubectl.run("get", "crd", "sunmodels.serving.sunfleet.dev", "shareddecoders.serving.sunfleet.dev")
            self.kubectl.run("get", ROUTER_SERVICE, "--namespace", ROUTER_NAMESPACE)
        except KubectlError as error:
            raise KubectlError(f"Sunfleet is not installed on this cluster: run 'make setup' first ({error})") from None

    def _prompt_tokens(self, pods: Sequence[str]) -> dict[str, PromptTokens]:
        return {pod: pod_prompt_tokens(self.kubectl, self.namespace, pod) for pod in pods}

    def _settled(self, pods: Sequence[str], before: dict[str, PromptTokens], expected: int) -> dict[str, PromptTokens]:
        """What was counted since ``before``, once it is ``expected`` tokens or no longer worth waiting for."""
        counted: dict[str, PromptTokens] = {}

        def complete() -> bool:
            counted.update({pod: now - before[pod] for pod, now in self._prompt_tokens(pods).items()})
            return sum(tokens.total for tokens in counted.values()) >= expected

        with _tolerated_timeout():
            wait_until("the decoder counts the prompts", complete, METRICS_SECONDS)
        return counted


@contextmanager
def _tolerated_timeout() -> Iterator[None]:
    """The claim itself will say what was missing."""
    try:
        yield
    except TimeoutError:
        return


def _serves(client: RouterClient, asked: Sequence[Question]) -> bool:
    return {question.task for question in asked} <= set(client.models())
