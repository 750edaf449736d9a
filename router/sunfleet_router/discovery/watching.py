"""The fleet from Kubernetes: watches SunModels, SharedDecoders and engine pods, and publishes a snapshot after each
change.

When the API server cannot be reached the last snapshot stays: the pods are still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from kubernetes.aio import client, config
from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.explained import explained
from sunfleet_api.shared_decoder import SHARED_DECODER
from sunfleet_api.sun_model import SUN_MODEL, SunModel
from sunfleet_router.discovery.info import InfoBook
from sunfleet_router.discovery.reflector import ApiFailureError, GoneError, Reflector
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.assemble import Pod, assemble, is_ready, pod_of
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.keys.keyring import KeyFormatError, KeyRing, StoredKey, of_secret
from sunfleet_router.settings import ConfigError, RouterSettings

logger = logging.getLogger(__name__)

_COALESCE = 0.02  # seconds: a rollout is a burst of events, and one snapshot is enough for them
POD_SELECTOR = (
    f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},{names.LABEL_ROLE} in ({names.ROLE_PREFILL},{names.ROLE_DECODE})"
)

ROUTER_SELECTOR = "app.kubernetes.io/component=router,app.kubernetes.io/part-of=sunfleet"
KEY_SELECTOR = f"{names.LABEL_API_KEY}=true"

Call = Callable[..., Awaitable[aiohttp.ClientResponse]]


class KubernetesDiscovery:
    """Runs one reflector per kind and namespace."""

    def __init__(
        self, settings: RouterSettings, fleet: Fleet, ring: KeyRing, upstream: Upstream, replicas: Replicas
    ) -> None:
        if ring.required and not settings.keys_namespace:
            raise ConfigError(
                "SUNFLEET_ROUTER_KEYS_NAMESPACE must name the namespace of the API keys' Secrets, the router's own. To "
                "serve whoever reaches the port, say SUNFLEET_ROUTER_AUTHENTICATION=disabled."
            )
        self._settings = settings
        self._fleet = fleet
        self._ring = ring
        self._replicas = replicas
        self._book = InfoBook(upstream, self._changed, interval=settings.info_interval)
        self._models: list[Reflector[SunModel]] = []
        self._decoders: list[Reflector[str]] = []
        self._pods: list[Reflector[Pod]] = []
        self._keys: list[Reflector[StoredKey]] = []
        self._routers: list[Reflector[str]] = []  # the fleet is known without them
        self._pending: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until cancelled. Raises :class:`kubernetes.aio.config.ConfigException` without credentials."""
        configuration = await self._configuration()
        async with client.ApiClient(configuration) as api:
            self._make_reflectors(api)
            try:
                async with asyncio.TaskGroup() as group:
                    for reflector in (*self._reflectors, *self._routers):
                        group.create_task(reflector.run())
            finally:
                if self._pending is not None:
                    self._pending.cancel()
                await self._book.close()

    @property
    def _reflectors(self) -> list[Reflector[Any]]:
        return [*self._models, *self._decoders, *self._pods, *self._keys]

    async def _configuration(self) -> client.Configuration:
        configuration = client.Configuration()
        if self._settings.kubeconfig is not None:
            path = str(self._settings.kubeconfig)
            await config.load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
            return configuration
        try:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return configuration

    def _make_reflectors(self, api: client.ApiClient) -> None:
        silence = self._settings.watch_silence
        for namespace in self._settings.namespaces or (None,):
            models = self._source("sunmodels", _custom(api, SUN_MODEL.plural, namespace))
            decoders = self._source("shareddecoders", _custom(api, SHARED_DECODER.plural, namespace))
            pods = self._source("pods", _pods(api, namespace), label_selector=POD_SELECTOR)
            self._models.append(Reflector(models, _model_of, self._changed, silence=silence))
            self._decoders.append(Reflector(decoders, _key_of, self._changed, silence=silence))
            self._pods.append(Reflector(pods, pod_of, self._changed, silence=silence))

        if self._ring.required:
            secrets = self._source("secrets", _secrets(api, self._settings.keys_namespace), label_selector=KEY_SELECTOR)
            self._keys.append(Reflector(secrets, _key_of_secret, self._keys_changed, silence=silence))

        if self._settings.replicas is None and self._settings.keys_namespace:
            routers = self._source(
                "router pods", _pods(api, self._settings.keys_namespace), label_selector=ROUTER_SELECTOR
            )
            self._routers.append(Reflector(routers, _ready_router, self._routers_changed, silence=silence))

    def _routers_changed(self) -> None:
        self._replicas.count = sum(len(reflector.objects) for reflector in self._routers)

    def _keys_changed(self) -> None:
        """At once, also before the fleet is known: a key that was deleted must not open anything a moment longer."""
        self._ring.replace(key for reflector in self._keys for key in reflector.objects.values())
        self._changed()

    def _source(self, name: str, call: Call, **parameters: str) -> ApiSource:
        return ApiSource(name, call, parameters, self._settings.watch_timeout)

    def _changed(self) -> None:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(_COALESCE, self._publish)

    def _publish(self) -> None:
        self._pending = None
        if not all(reflector.synced for reflector in self._reflectors):
            return
        pods = [pod for reflector in self._pods for pod in reflector.objects.values()]
        self._book.follow(pod.endpoint for pod in pods if pod.ready)
        if not self._fleet.synced and not self._book.everyone_was_asked:
            return  # just started: pods that serve for hours must not look as if they did not
        models = [model for reflector in self._models for model in reflector.objects.values()]
        decoders = [key for reflector in self._decoders for key in reflector.objects.values()]
        self._fleet.replace(assemble(models, decoders, pods, self._book.known))


class ApiSource:
    """:class:`sunfleet_router.discovery.reflector.Source` over one list method of the Kubernetes client."""

    def __init__(self, name: str, call: Call, parameters: Mapping[str, str], watch_timeout: int) -> None:
        self.name = name
        self._call = call
        self._parameters = parameters
        self._watch_timeout = watch_timeout

    async def page(self, limit: int, token: str | None) -> Mapping[str, Any]:
        more = {"_continue": token} if token else {}
        async with self._request(limit=limit, **more) as response:
            try:
                document = orjson.loads(await response.read())
            except orjson.JSONDecodeError as error:
                raise ApiFailureError(f"the list cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise ApiFailureError("the list is no object")
        return document

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[bytes]]:
        seconds = self._watch_timeout
        async with self._request(
            watch=True, allow_watch_bookmarks=True, resource_version=version, timeout_seconds=seconds,
            _request_timeout=float(seconds + 30),
        ) as response:  # fmt: skip
            yield response.content.iter_any()

    @asynccontextmanager
    async def _request(self, **parameters: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            response = await self._call(**self._parameters, **parameters)
            try:
                if response.status == 410:
                    raise GoneError
                if response.status != 200:
                    raise ApiFailureError(f"the API server answered {response.status}")
                yield response
            finally:
                response.close()
        except (aiohttp.ClientError, client.ApiException) as error:
            if getattr(error, "status", None) == 410:
                raise GoneError from error
            raise ApiFailureError(f"{type(error).__name__}: {error}") from error


def _custom(api: client.ApiClient, plural: str, namespace: str | None) -> Call:
    objects = client.CustomObjectsApi(api)

    async def call(**parameters: Any) -> aiohttp.ClientResponse:
        kind: dict[str, Any] = {"group": names.GROUP, "version": names.VERSION, "plural": plural}
        if namespace is None:
            return await objects.list_cluster_custom_object_without_preload_content(**kind, **parameters)
        return await objects.list_namespaced_custom_object_without_preload_content(
            **kind, namespace=namespace, **parameters
        )

    return call


def _pods(api: client.ApiClient, namespace: str | None) -> Call:
    core = client.CoreV1Api(api)

    async def call(**parameters: Any) -> aiohttp.ClientResponse:
        if namespace is None:
            return await core.list_pod_for_all_namespaces_without_preload_content(**parameters)
        return await core.list_namespaced_pod_without_preload_content(namespace, **parameters)

    return call


def _secrets(api: client.ApiClient, namespace: str) -> Call:
    core = client.CoreV1Api(api)

    async def call(**parameters: Any) -> aiohttp.ClientResponse:
        return await core.list_namespaced_secret_without_preload_content(namespace, **parameters)

    return call


def _key_of_secret(document: Mapping[str, Any]) -> StoredKey | None:
    try:
        return of_secret(document)
    except KeyFormatError as error:
        logger.warning("secret %s is no API key: %s", document["metadata"]["name"], error)
        return None


def _model_of(document: Mapping[str, Any]) -> SunModel | None:
    try:
        return SunModel.parse(document)
    except ValidationError as error:
        metadata = document.get("metadata", {})
        faults = "; ".join(explained(error, document, SunModel).splitlines())
        logger.warning("sunmodel %s/%s cannot be read: %s", metadata.get("namespace"), metadata.get("name"), faults)
        return None


def _ready_router(document: Mapping[str, Any]) -> str | None:
    """Its name, if it takes new requests."""
    metadata = document["metadata"]
    return str(metadata["name"]) if is_ready(document) and not metadata.get("deletionTimestamp") else None


def _key_of(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
