"""Runs a pod's self-check until it has passed, and then lets the pod serve."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from sunfleet_api import names
from sunfleet_worker.frontend.gate import Traffic
from sunfleet_worker.frontend.standing import Standing
from sunfleet_worker.selfcheck import decode, prefill, sidechannel
from sunfleet_worker.selfcheck.pod import Check, CheckFailedError, Pod, checking
from sunfleet_worker.selfcheck.warmup import warm_up_prefill

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name

# What failed may pass later (a node that swaps, a network that comes up); the pod stays to be looked at.
_PAUSE_SECONDS: Final = 10.0


async def run_until_passed(pod: Pod, standing: Standing, traffic: Traffic, *, pause: float = _PAUSE_SECONDS) -> None:
    """Return once the pod may serve, or drains. Each failure is in ``standing.reason``, the log and the metrics."""
    check = checking(pod.metrics)
    while not traffic.draining:
        began = time.monotonic()
        try:
            await _once(pod, standing, check)
        except Exception as error:  # whatever it is, the pod has not proven itself
            words = str(error) if isinstance(error, CheckFailedError) else f"{type(error).__name__}: {error}"
            standing.reason = f"self-check failed: {words}"
            logger.error("Self-check failed, the pod is not ready: %s", words, exc_info=True)
            await asyncio.sleep(pause)
        else:
            logger.info("Self-check passed in %.1f s.", time.monotonic() - began)
            standing.reason = ""
            return


async def _once(pod: Pod, standing: Standing, check: Check) -> None:
    settings = pod.settings
    async with check("side_channel"):
        payloads = await sidechannel.ask(settings.pod_ip, settings.side_channel_port, settings.tensor_parallel_size)
        standing.kv_contract = sidechannel.kv_contract(payloads)
    if not settings.self_check:
        logger.warning("Self-check is switched off: nothing proves that this pod's answers are exact.")
        return
    logger.info("Self-check: errors of requests and handshakes up to its end are provoked.")
    if settings.role == names.ROLE_DECODE:
        await decode.prove(pod, payloads, check)
    else:
        await prefill.prove(pod, payloads, check)
        await warm_up_prefill(pod)
