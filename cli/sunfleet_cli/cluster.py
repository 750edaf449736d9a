"""Live objects from the API server that the kubeconfig names. The only module that asks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version as version_of
from typing import Any, Final, TypeVar

import click
import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from sunfleet_api import names
from sunfleet_api.prefill_pool import PREFILL_POOL
from sunfleet_api.shared_decoder import SHARED_DECODER
from sunfleet_api.sun_model import SUN_MODEL
from sunfleet_cli.checkup import Facts

Json = Mapping[str, Any]
T = TypeVar("T")
_TIMEOUT_SECONDS: Final = 20


# What the client raises where nobody answers: urllib3's errors are none of the system's.
UNREACHABLE: Final = (OSError, urllib3.exceptions.HTTPError)


def unreachable(error: Exception) -> str:
    """Why nobody answers: the last cause, without the client's own names for what it tried."""
    while isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    return str(error) or type(error).__name__


def connected(context: str | None, retries: int | None = None) -> Any:
    """An ApiClient of the kubeconfig's API server; nothing is asked yet. ``retries``: of a question that nobody
    answered; the client's own three by default."""
    options = client.Configuration()
    if retries is not None:
        options.retries = retries
    return _read(lambda: config.new_client_from_config(context=context, client_configuration=options))  # type: ignore[no-untyped-call]


def _read(kubeconfig: Callable[[], T]) -> T:
    """What the client makes of the kubeconfig, which may be any file: the client checks little of it before use."""
    try:
        return kubeconfig()
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise click.ClickException(f"no cluster to ask: {error}; set KUBECONFIG or --context") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        text = f"no cluster to ask: the kubeconfig is none: {error}; set KUBECONFIG or --context"
        raise click.ClickException(text) from None


class Cluster:
    """Reads with the rights of whoever calls. ``context`` of the kubeconfig; the current one by default."""

    def __init__(self, context: str | None = None, *, retries: int | None = None) -> None:
        self._api = api = connected(context, retries)
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def every(
        self, plural: str, namespace: str | None, *, newer: bool = False, wait: float = _TIMEOUT_SECONDS
    ) -> Sequence[Json]:
        """All objects of a kind, of one namespace or of all (``None``); of a ``newer`` kind none where the cluster's
        CRDs are too old to have it."""
        group, version = names.GROUP, names.VERSION
        objects = self._objects

        def ask() -> object:
            try:
                if namespace is None:
                    return objects.list_cluster_custom_object(group, version, plural, _request_timeout=wait)
                return objects.list_namespaced_custom_object(group, version, namespace, plural, _request_timeout=wait)
            except ApiException as error:
                if newer and error.status == 404:
                    return {"items": []}
                raise

        return list(self._answer(ask, plural)["items"])

    def get(self, plural: str, namespace: str, name: str) -> Json:
        asked = self._objects.get_namespaced_custom_object
        return self._answer(
            lambda: asked(names.GROUP, names.VERSION, namespace, plural, name, _request_timeout=_TIMEOUT_SECONDS),
            f"{plural} {namespace}/{name}",
        )

    def has_namespace(self, name: str) -> bool | None:
        """``None`` where the caller may not know: who may list a namespace's objects need not be allowed to read it."""
        try:
            self._core.read_namespace(name, _request_timeout=_TIMEOUT_SECONDS)
        except ApiException as error:
            return False if error.status == 404 else None
        except UNREACHABLE:
            return None
        return True

    def events(self, namespace: str, uid: str) -> Sequence[Json]:
        """Events of one object, the newest last; none where they may not be read."""
        try:
            found = self._core.list_namespaced_event(
                namespace, field_selector=f"involvedObject.uid={uid}", _request_timeout=_TIMEOUT_SECONDS
            )
        except (ApiException, *UNREACHABLE):
            return []
        return sorted(self._plain(found.items), key=lambda event: str(event.get("lastTimestamp") or ""))[-8:]

    def version(self) -> str:
        return str(client.VersionApi(self._api).get_code(_request_timeout=_TIMEOUT_SECONDS).git_version)

    def crds(self) -> dict[str, Json]:
        """CustomResourceDefinitions of our group, by name."""
        found = client.ApiextensionsV1Api(self._api).list_custom_resource_definition(_request_timeout=_TIMEOUT_SECONDS)
        every = self._plain(found.items)
        return {one["metadata"]["name"]: one for one in every if one["spec"]["group"] == names.GROUP}

    def nodes(self) -> Sequence[Json]:
        return self._plain(self._core.list_node(_request_timeout=_TIMEOUT_SECONDS).items)

    def deployments(self, namespace: str) -> Sequence[Json]:
        """Those of Sunfleet's own programs."""
        asked = client.AppsV1Api(self._api).list_namespaced_deployment
        label = f"{names.LABEL_PART_OF}={names.MANAGED_BY}"
        return self._plain(asked(namespace, label_selector=label, _request_timeout=_TIMEOUT_SECONDS).items)

    def objects(self) -> Sequence[Json]:
        """Everything that has pods, in every namespace, with its kind; a kind that the cluster does not know has
        none."""
        found: list[Json] = []
        for kind in (SHARED_DECODER, PREFILL_POOL, SUN_MODEL):
            try:
                listed: Any = self._objects.list_cluster_custom_object(
                    names.GROUP, names.VERSION, kind.plural, _request_timeout=_TIMEOUT_SECONDS
                )
            except ApiException as error:
                if error.status != 404:
                    raise
                continue  # said of the CRD
            found += [{"kind": kind.kind, **live} for live in listed["items"]]
        return found

    def allowed(self, system_namespace: str) -> dict[str, bool]:
        """What the caller may do: with our kinds in every namespace, and what the commands need of routers."""
        asked = client.AuthorizationV1Api(self._api).create_self_subject_access_review
        found: dict[str, bool] = {}
        for what, attributes in _wishes(system_namespace):
            if found.get(what):
                continue  # in another way
            spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(**attributes))
            answer = asked(client.V1SelfSubjectAccessReview(spec=spec), _request_timeout=_TIMEOUT_SECONDS)
            found[what] = bool(answer.status and answer.status.allowed)
        return found

    def _plain(self, items: object) -> list[dict[str, Any]]:
        """As JSON, the way the API server sends it."""
        return list(self._api.sanitize_for_serialization(items))

    @staticmethod
    def _answer(ask: Any, what: str) -> Json:
        try:
            found: Json = ask()
        except ApiException as error:
            raise click.ClickException(f"{what}: {error.status} {error.reason}{_hint(error)}") from None
        except UNREACHABLE as error:
            raise click.ClickException(f"{what}: the API server does not answer: {unreachable(error)}") from None
        return found


def _wishes(system_namespace: str) -> list[tuple[str, dict[str, str]]]:
    """In words, and as the API server is asked about them; what can be done in two ways comes twice."""
    ours = [
        (f"{verb} {plural}", {"verb": verb, "group": names.GROUP, "resource": plural})
        for verb, plural in (("list", "sunmodels"), ("create", "sunmodels"), ("create", "shareddecoders"))
    ]
    there = {"group": "", "namespace": system_namespace}
    top, chat = "reach routers' metrics (top)", "reach routers (chat, measure)"
    return [
        *ours,
        (top, {**there, "verb": "create", "resource": "pods", "subresource": "portforward"}),
        (top, {**there, "verb": "get", "resource": "pods", "subresource": "proxy"}),
        (chat, {**there, "verb": "create", "resource": "services", "subresource": "proxy"}),
    ]


def _hint(error: ApiException) -> str:
    if error.status != 404:
        return ""
    # A kind that the API server does not know is answered in plain text, an object that is not there with a Status.
    if '"NotFound"' in str(error.body):
        return " (sunfleet status lists what there is; -n names another namespace)"
    return " (are the CRDs installed?)"


def current_namespace(context: str | None) -> str:
    """The namespace of the context, as kubectl would use it."""
    return _read(lambda: _namespace(context))


def _namespace(context: str | None) -> str:
    try:
        every, active = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        return "default"
    chosen = next((one for one in every if one["name"] == context), active) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "default")


def contexts() -> list[str]:
    """Names of the kubeconfig's contexts."""
    every, _active = _read(config.list_kube_config_contexts)
    return [str(one["name"]) for one in every]


def examine(context: str | None, system_namespace: str) -> Facts:
    """Everything that ``doctor`` looks at; what may not be read is left out, with the reason."""
    cluster, refused = Cluster(context), dict[str, str]()

    def tried(name: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ApiException as error:
            refused[name] = f"{error.status} {error.reason}"
        except UNREACHABLE as error:
            refused[name] = f"does not answer: {unreachable(error)}"
        return None

    version = tried("version", cluster.version)
    if version is None:
        return Facts(refused=refused)
    return Facts(
        version=version,
        crds=tried("crds", cluster.crds),
        nodes=tried("nodes", cluster.nodes),
        deployments=tried("deployments", lambda: cluster.deployments(system_namespace)),
        objects=tried("objects", cluster.objects),
        command=version_of("sunfleet"),
        allowed=tried("allowed", lambda: cluster.allowed(system_namespace)) or {},
        refused=refused,
    )
