"""Start, end and login of kopf itself."""

from __future__ import annotations

from typing import Any

import kopf

from sunfleet_operator import listings
from sunfleet_operator.kopf_settings import configure
from sunfleet_operator.process import Operator


@kopf.on.startup()
async def startup(memo: Operator, settings: kopf.OperatorSettings, **_: Any) -> None:
    configure(settings, memo.settings)
    await memo.start()


@kopf.on.cleanup()
async def cleanup(memo: Operator, **_: Any) -> None:
    await memo.stop()


@kopf.on.login(retries=3)
async def login(memo: Operator, settings: kopf.OperatorSettings, **_: Any) -> kopf.AiohttpSession | None:
    # The default login would go through the synchronous client, which this process does not use otherwise.
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    return None if found is None else listings.session(found, memo.listed)
