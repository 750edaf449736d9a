"""Live objects from the API server that the kubeconfig names. The only module that asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from sunfleet_api import names

Json = Mapping[str, Any]
_TIMEOUT_SECONDS: Final = 20


class Cluster:
    """Reads with the rights of whoever calls. ``context`` of the kubeconfig; the current one by default."""

    def __init__(self, context: str | None = None) -> None:
        try:
            api = config.new_client_from_config(context=context)  # type: ignore[no-untyped-call]
        except (config.ConfigException, FileNotFoundError) as error:
            raise click.ClickException(f"no cluster to ask: {error}; set KUBECONFIG or --context") from None
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def list(self, plural: str, namespace: str | None) -> Sequence[Json]:
        """All objects of a kind, of one namespace or of all (``None``)."""
        group, version, wait = names.GROUP, names.VERSION, _TIMEOUT_SECONDS
        objects = self._objects

        def ask() -> object:
            if namespace is None:
                return objects.list_cluster_custom_object(group, version, plural, _request_timeout=wait)
            return objects.list_namespaced_custom_object(group, version, namespace, plural, _request_timeout=wait)

        return list(self._answer(ask, plural)["items"])

    def get(self, plural: str, namespace: str, name: str) -> Json:
        asked = self._objects.get_namespaced_custom_object
        return self._answer(
            lambda: asked(names.GROUP, names.VERSION, namespace, plural, name, _request_timeout=_TIMEOUT_SECONDS),
            f"{plural} {namespace}/{name}",
        )

    def events(self, namespace: str, uid: str) -> Sequence[Json]:
        """Events of one object, the newest last; none where they may not be read."""
        try:
            found = self._core.list_namespaced_event(
                namespace, field_selector=f"involvedObject.uid={uid}", _request_timeout=_TIMEOUT_SECONDS
            )
        except ApiException:
            return []
        items = client.ApiClient().sanitize_for_serialization(found.items)  # type: ignore[no-untyped-call]
        return sorted(items, key=lambda event: str(event.get("lastTimestamp") or ""))[-8:]

    @staticmethod
    def _answer(ask: Any, what: str) -> Json:
        try:
            found: Json = ask()
        except ApiException as error:
            hint = " (are the CRDs installed?)" if error.status == 404 else ""
            raise click.ClickException(f"{what}: {error.status} {error.reason}{hint}") from None
        except OSError as error:
            raise click.ClickException(f"{what}: the API server does not answer: {error}") from None
        return found


def current_namespace(context: str | None) -> str:
    """The namespace of the context, as kubectl would use it."""
    try:
        contexts, active = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        return "default"
    chosen = next((one for one in contexts if one["name"] == context), active) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "default")
