"""URL paths of our kinds."""

from __future__ import annotations

from sunfleet_api import names
from sunfleet_api.kinds import KINDS


def collection(kind: str, namespace: str) -> str:
    """Path of the objects of one of our kinds in a namespace."""
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{KINDS[kind].KIND.plural}"
