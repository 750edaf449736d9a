"""The two legs of one greedy completion, from a prefill pod to a decode pod, as ``sunfleet_api.wire`` has them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx2

from sunfleet_api import names, wire
from sunfleet_weights.errors import EngineRefused, EngineUnreachable

_PATH: Final = "/v1/completions"
# Of a pod that speaks TLS: what its certificate must be for, whatever its address.
_ONE_NAME: Final = {"sni_hostname": names.ENGINE_SERVER_NAME}
_RESPONSE_MODEL: Final = "sunfleet-verification"
_log = logging.getLogger(__name__)


class Pair:
    """A prefill pod and a decode pod by their URLs; ``module`` is the name that the prefill pod knows its module by.
    Raises :class:`.errors.WeightsError` when either does not answer: that says nothing about the answers.
    """

    def __init__(self, client: httpx2.Client, prefill: str, decode: str, module: str = wire.ENGINE_MODEL) -> None:
        self._client, self.prefill, self.decode, self._module = client, prefill, decode, module

    def __str__(self) -> str:
        return f"{self.prefill} -> {self.decode}"

    def answer(self, prompt: Sequence[int], tokens: int, salt: str) -> list[int]:
        """The answer's token ids, at most ``tokens``. ``salt`` keeps its KV apart from that of clients."""
        asked = {"model": wire.ENGINE_MODEL, "prompt": list(prompt), "temperature": 0, "cache_salt": salt}
        params = wire.prefill_params(tokens)
        once = {"model": self._module, "max_tokens": 1, "kv_transfer_params": params}
        first = self._post(self.prefill, {**asked, **once})
        choice = first["choices"][0]
        output = _ids(choice)
        if tokens == 1 or choice.get("finish_reason") != "length":
            return output
        transfer = first.get("kv_transfer_params") or {}
        if missing := wire.missing_fields(transfer):
            self._release(transfer)
            raise EngineRefused(f"{self.prefill}: its hand-over lacks {', '.join(missing)}")
        handed = wire.decode_params(transfer, prompt, output, _RESPONSE_MODEL)
        try:
            second = self._post(self.decode, {**asked, "max_tokens": tokens, "kv_transfer_params": handed})
        except (EngineRefused, EngineUnreachable):
            self._release(transfer)
            raise
        return _ids(second["choices"][0])

    def _release(self, transfer: Mapping[str, Any]) -> None:
        """No decoder will read this KV. Best effort: its lease ends by itself."""
        try:
            asked = {"kv_transfer_params": transfer}
            self._client.post(self.prefill + wire.RELEASE_PATH, json=asked, extensions=_ONE_NAME)
        except httpx2.HTTPError as error:
            _log.warning("KV on %s is not released: %s", self.prefill, error)

    def _post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            asked = {**body, "stream": False, "return_token_ids": True}
            answer = self._client.post(url + _PATH, json=asked, extensions=_ONE_NAME)
            found = answer.json() if answer.status_code == 200 else None
        except httpx2.HTTPError as error:
            raise EngineUnreachable(f"{url}: {str(error) or type(error).__name__}") from error
        except ValueError as error:
            raise EngineRefused(f"{url}: its answer is not JSON") from error
        if not isinstance(found, dict) or not found.get("choices"):
            raise EngineRefused(f"{url}: {answer.status_code} {answer.text[:300]}")
        return found


def _ids(choice: Mapping[str, Any]) -> list[int]:
    ids = choice.get("token_ids")
    if not ids:
        raise EngineRefused("an engine's answer does not name its tokens")
    return list(map(int, ids))
