"""What the operator's suites share: a fleet of one decoder and two tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import fakes
from support.fleets import Fleet
from support.kubectl import Kubectl

# Kubernetes' namespace controller looks again after half the longest grace period of a namespace's pods (preStop, drain
# and a margin), whether they are gone by then or not.
DRAIN_SECONDS = 10


@pytest.fixture(scope="module")
def make_fleet(kubectl: Kubectl, make_namespace: Callable[[str], str], fake_image: str) -> Callable[[str], Fleet]:
    """A namespace and the manifests of a fleet; nothing is applied yet."""

    def make(prefix: str) -> Fleet:
        namespace = make_namespace(prefix)
        models = [
            fakes.sun_model(
                "maths", "hf://acme/maths@main", model_name=f"{namespace}/maths", drain_seconds=DRAIN_SECONDS
            ),
            fakes.sun_model("code", "hf://acme/code-lora", model_name=f"{namespace}/code", drain_seconds=DRAIN_SECONDS),
        ]
        return Fleet(kubectl, namespace, fakes.decoder(fake_image, drain_seconds=DRAIN_SECONDS), models)

    return make
