"""``python -m sunfleet_demo``. Exit code 1: a claim does not hold; 2: it could not run; 130: interrupted."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from openai import OpenAIError
from rich.console import Console

from sunfleet_api.settings import UnusableSettings
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.state import StateFolder
from sunfleet_demo.run import Demo, Result
from sunfleet_demo.screen import Screen
from support.kubectl import Kubectl, KubectlError
from support.reference import ReferenceFailed

_FAILURES = (
    UnusableSettings, KubectlError, ReferenceFailed, ClusterError, OpenAIError, TimeoutError, RuntimeError,
)  # fmt: skip


def main() -> int:
    """Run the demo and say how it went."""
    args = _parser().parse_args()
    # With --output json only the result goes to standard output.
    screen = Screen(Console(stderr=args.output == "json"))
    try:
        kubectl = Kubectl.for_this_machine()
        result = Demo(kubectl, StateFolder.from_env(), screen, args.namespace, args.timeout).run()
    except _FAILURES as error:
        screen.head("The demo stopped")
        screen.say(str(error))
        return 2
    except KeyboardInterrupt:
        screen.head("Interrupted: what is deployed stays, and the same command goes on from there")
        return 130
    if args.output == "json":
        print(json.dumps(as_json(result), indent=2))
    _what_next(screen, kubectl, args.namespace)
    return 0 if result.proven else 1


def as_json(result: Result) -> dict[str, object]:
    """The result for programs."""
    return {
        "proven": result.proven,
        "claims": [asdict(claim) for claim in result.claims],
        "answers": [
            {
                "task": one.question.task,
                "question": one.question.text,
                "streamed": one.streamed,
                "seconds": round(one.answer.seconds, 3),
                "first_token_seconds": round(one.answer.first_token_seconds, 3) if one.streamed else None,
                **{key: value for key, value in asdict(one.answer).items() if not key.endswith("_at")},
            }
            for one in result.asked
        ],
    }


def _what_next(screen: Screen, kubectl: Kubectl, namespace: str) -> None:
    screen.head("The fleet keeps running")
    for line in (
        f"export KUBECONFIG={kubectl.kubeconfig} PATH={kubectl.binary.rpartition('/')[0]}:$PATH",
        f"look at it:  kubectl -n {namespace} get sdec,sun,pods",
        "talk to it:  kubectl -n sunfleet-system port-forward service/sunfleet-router 8080:80 &",
        "             curl -s localhost:8080/v1/chat/completions -H 'content-type: application/json' "
        "-d @manifests/samples/requests/toolcall.json",
        f"stop it:     kubectl delete namespace {namespace}, and the cluster with 'make cluster-down'",
    ):
        screen.say(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sunfleet_demo", description=__doc__)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--namespace", default="demo")
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds until the fleet must be ready (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
