"""CEL rules on ``metadata.name``: every child's name must fit 63 characters and be a valid Service name."""

from __future__ import annotations

from typing import Final

from sunfleet_api import names
from sunfleet_api.markers import Cel

NAME_RULES: Final = (
    Cel(
        f"size(self.metadata.name) <= {names.MAX_OBJECT_NAME}",
        f"metadata.name must have at most {names.MAX_OBJECT_NAME} characters, since children append a revision to it",
        ".metadata.name",
    ),
    Cel(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be lower-case letters, digits and '-', starting with a letter: it names a Service",
        ".metadata.name",
    ),
)
