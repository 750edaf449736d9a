"""The router against its own OpenAPI document: whatever is sent, the answer is one that the document describes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from sunfleet_router.surface import openapi
from sunfleet_router_harness import Router

EXAMPLES = 6  # of each operation, in each mode: generating them costs more than serving them
MODELS = ["acme/maths", "code"]
CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance,
]  # fmt: skip
OPERATIONS = [
    (path, method.upper()) for path, operations in openapi.document()["paths"].items() for method in operations
]


def with_real_models(document: dict[str, Any]) -> dict[str, Any]:
    """Requests for models that do not exist all end in the same 404."""
    for schema in document["components"]["schemas"].values():
        for one in (schema, *schema.get("anyOf", ())):
            if "model" in one.get("properties", {}) and "model" in one.get("required", ()):
                one["properties"]["model"] = {"enum": MODELS}
    return document


@pytest.fixture
def schema(router: Router) -> Any:
    document = with_real_models(openapi.document())
    return schemathesis.openapi.from_dict(document)


def hammer(schema: Any, base_url: str, path: str, method: str, mode: GenerationMode) -> int:
    """Requests made."""
    made = 0
    session = requests.Session()
    session.trust_env = False

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def check(case: Any) -> None:
        nonlocal made
        made += 1
        case.call_and_validate(base_url=base_url, session=session, checks=CHECKS)

    with session:
        check()
    return made


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
async def test_every_answer_is_one_that_the_document_describes(
    router: Router, schema: Any, path: str, method: str, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and method == "GET":
        return  # nothing to get wrong
    made = await asyncio.to_thread(hammer, schema, router.url, path, method, mode)
    assert made >= 1
    await router.settled()


async def test_the_document_is_served_and_names_every_path_for_clients(router: Router) -> None:
    async with router.http.get(router.url + "/openapi.json") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        document = await answer.json()
    assert document == openapi.document()
    app: Any = cast("Any", router.parts.front.app)._app  # behind the guard
    routes = {str(getattr(route, "path", "")).replace(":path", "") for route in app.router.routes}
    assert set(document["paths"]) == routes - {"/livez", "/readyz", "/openapi.json"}
