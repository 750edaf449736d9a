"""kopf's settings, each with the reason why its default does not do."""

from __future__ import annotations

import logging

import kopf

from sunfleet_api import names
from sunfleet_operator.settings import Settings


class NoEssence(kopf.DiffBaseStorage):
    """No handler asks what changed, so nobody needs a copy of every object at every event: a tenth of the process's
    work."""

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> kopf.BodyEssence | None:
        return kopf.BodyEssence()

    def store(self, **_: object) -> None:
        """Nothing is kept, least of all in an annotation."""


def configure(kopf_settings: kopf.OperatorSettings, settings: Settings) -> None:
    """Change kopf's settings in place, as its start-up handlers do."""
    # kopf never marks our objects, since only on.event is used; if a handler ever does, it must not be as
    # "kopf.zalando.org".
    kopf_settings.persistence.finalizer = f"{names.GROUP}/kopf"
    kopf_settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{names.GROUP}")
    kopf_settings.persistence.diffbase_storage = NoEssence()
    # Log lines become Events otherwise; ours are written on transitions only.
    kopf_settings.posting.enabled = False
    kopf_settings.posting.level = logging.WARNING
    # A watch that a load balancer cut silently is noticed by the missing bookmarks (nolar/kopf#955, #1120); the server
    # ends each request first, so that the client's limit is only for a server that is gone.
    kopf_settings.watching.server_timeout = 300
    kopf_settings.watching.client_timeout = 330
    kopf_settings.watching.connect_timeout = 10
    kopf_settings.watching.inactivity_timeout = settings.watch_silence_seconds
    # An API server that is away for minutes must not be hammered when it is back.
    kopf_settings.watching.reconnect_backoff = 1
    kopf_settings.networking.request_timeout = settings.request_timeout_seconds
    kopf_settings.networking.connect_timeout = 10
    # Only children of ours cross the network, not every pod of the cluster.
    ours = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    for resource in ("pods", "deployments", "jobs", "networkpolicies"):
        kopf_settings.watching.label_selectors[resource] = ours
    # Of a Namespace only its end matters.
    kopf_settings.watching.field_selectors["namespaces"] = "status.phase=Terminating"
    kopf_settings.watching.chunk_size = 500
    # Our CRDs are there before watching starts (``Operator.start`` waits for them), so nobody needs rights to watch
    # CRDs.
    kopf_settings.scanning.disabled = True
