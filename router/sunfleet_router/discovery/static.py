"""A fleet from a YAML file instead of Kubernetes: for local use, tests and benchmarks.

::

    decoders:
    - name: local/base
      endpoints: [{url: "http://127.0.0.1:8201"}]
    tasks:
    - name: acme/maths
      decoder: local/base
      cacheSalt: 0123456789abcdef
      prefill: [{url: "http://127.0.0.1:8101"}]
      traffic: {maxInFlight: 64, timeouts: {prefillSeconds: 30}}      # as SunModel.spec.traffic
      defaults: {temperature: "0.7", maxTokens: 1024}                 # as SunModel.spec.generation.defaults
      samplePerMillion: 100                                           # as SunModel.spec.verification.samplePerMillion
    keys:                                    # needed unless SUNFLEET_ROUTER_AUTHENTICATION=disabled
    - name: alice
      sha256: 9f86d081...                    # of the key; the other fields are those of a key's Secret (docs/router.md)
      tasks: acme/*

``cacheSalt`` keeps the tasks' KV apart; by default it is made of the task's name. ``info`` beside a ``url`` gives
what ``GET /sunfleet/info`` would, for an engine that lacks it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from sunfleet_api.explained import explained
from sunfleet_api.traffic import GenerationDefaults, Traffic
from sunfleet_api.wire import EngineInfo
from sunfleet_router.discovery.info import InfoBook
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.assemble import limits_of
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Endpoint, Route, Snapshot, Task
from sunfleet_router.keys.keyring import KeyFormatError, KeyRing, StoredKey, of_fields
from sunfleet_router.settings import ConfigError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True)


class StaticEndpoint(_Strict):
    url: str
    name: str = ""
    fingerprint: str = ""
    info: Annotated[EngineInfo | None, Field(alias="info")] = None

    @field_validator("url")
    @classmethod
    def _plain_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "http" or not parts.hostname or not parts.port or parts.path not in ("", "/"):
            raise ValueError("must be http://HOST:PORT")
        return value


class StaticDecoder(_Strict):
    name: str
    endpoints: tuple[StaticEndpoint, ...] = ()


class StaticTask(_Strict):
    name: str
    decoder: str
    cache_salt: str = ""
    prefill: tuple[StaticEndpoint, ...] = ()
    traffic: Traffic = Field(default_factory=Traffic)
    defaults: GenerationDefaults = Field(default_factory=GenerationDefaults)
    sample_per_million: int = Field(default=0, ge=0, le=1_000_000)


class StaticKey(BaseModel):
    """The fields of a key's Secret, beside its name; numbers need no quotes here."""

    model_config = ConfigDict(frozen=True, extra="allow", coerce_numbers_to_str=True)
    __pydantic_extra__: dict[str, str]

    name: str

    def stored(self) -> StoredKey:
        try:
            return of_fields(self.name, self.__pydantic_extra__)
        except KeyFormatError as error:
            raise ConfigError(f"key {self.name!r}: {error}") from error


class StaticFleet(_Strict):
    decoders: tuple[StaticDecoder, ...] = ()
    tasks: tuple[StaticTask, ...] = ()
    keys: tuple[StaticKey, ...] = ()


def load(path: Path) -> StaticFleet:
    """Read the file; raises :class:`ConfigError`."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        return StaticFleet.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explained(error, document, StaticFleet)}") from error


def fill(ring: KeyRing, config: StaticFleet) -> None:
    """Put the file's keys on the ring; raises :class:`ConfigError` where keys are asked for and there are none."""
    if not ring.required:
        return
    if not config.keys:
        raise ConfigError(
            "the fleet's file has no 'keys', so nobody could use the router. Add one (docs/router.md, API keys), or "
            "say SUNFLEET_ROUTER_AUTHENTICATION=disabled to serve whoever reaches the port."
        )
    ring.replace([key.stored() for key in config.keys])


class StaticDiscovery:
    """Publishes the file's fleet; engines count as ready once they have told their facts."""

    def __init__(self, config: StaticFleet, fleet: Fleet, upstream: Upstream, *, interval: float) -> None:
        self._config = config
        self._fleet = fleet
        self._created = int(time.time())
        self._book = InfoBook(upstream, self._publish, interval=interval)

    async def run(self) -> None:
        """Publish, ask the engines, and stay until cancelled."""
        everyone = [
            *(self._endpoint(one, "decode") for decoder in self._config.decoders for one in decoder.endpoints),
            *(self._endpoint(one, "prefill") for task in self._config.tasks for one in task.prefill),
        ]
        self._book.follow(endpoint for endpoint in everyone if endpoint.info is None)
        self._publish()
        try:
            await asyncio.Event().wait()
        finally:
            await self._book.close()

    def _endpoint(self, one: StaticEndpoint, role: Literal["prefill", "decode"]) -> Endpoint:
        parts = urlsplit(one.url)
        uid = f"{role}:{parts.hostname}:{parts.port}"
        info = one.info or self._book.known.get(uid)
        fingerprint = one.fingerprint or (info.kv_fingerprint if info else "")
        endpoint = Endpoint(uid, one.name or uid, parts.hostname or "", parts.port or 0, role, fingerprint)
        return endpoint.told(info) if info else endpoint

    def _ready(self, ones: tuple[StaticEndpoint, ...], role: Literal["prefill", "decode"]) -> tuple[Endpoint, ...]:
        endpoints = (self._endpoint(one, role) for one in ones)
        return tuple(endpoint for endpoint in endpoints if endpoint.info is not None)

    def _publish(self) -> None:
        if not self._book.everyone_was_asked:
            return
        tasks = {task.name: self._task(task) for task in self._config.tasks}
        pools = {decoder.name: self._ready(decoder.endpoints, "decode") for decoder in self._config.decoders}
        self._fleet.replace(Snapshot(tasks, pools))

    def _task(self, task: StaticTask) -> Task:
        salt = task.cache_salt or hashlib.sha256(task.name.encode()).hexdigest()[:32]
        route = Route("static", 100, task.decoder, salt, self._ready(task.prefill, "prefill"))
        defaults: dict[str, Any] = task.defaults.request_fields()
        limits = limits_of(task.traffic)
        return Task(task.name, self._created, (route,), limits, defaults, task.sample_per_million)
