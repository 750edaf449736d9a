"""What the operator's suites share: a fleet of one decoder and two tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import fakes
from support.fleets import Fleet
from support.kubectl import Kubectl


@pytest.fixture(scope="module")
def make_fleet(kubectl: Kubectl, make_namespace: Callable[[str], str], fake_image: str) -> Callable[[str], Fleet]:
    """A namespace and the manifests of a fleet with the default drain; nothing is applied yet."""

    def make(prefix: str) -> Fleet:
        namespace = make_namespace(prefix)
        models = [
            fakes.sun_model("maths", "hf://acme/maths@main", model_name=f"{namespace}/maths", drain_seconds=None),
            fakes.sun_model("code", "hf://acme/code-lora", model_name=f"{namespace}/code", drain_seconds=None),
        ]
        return Fleet(kubectl, namespace, fakes.decoder(fake_image, drain_seconds=None), models)

    return make
