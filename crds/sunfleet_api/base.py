"""The base of every model of the API: frozen, camelCase on the wire, tolerant of fields that a newer CRD may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from sunfleet_api import names
from sunfleet_api.markers import VALIDATIONS, Cel


class ApiModel(BaseModel):
    """Attributes are snake_case, the wire is camelCase. ``RULES`` are the CEL rules at this object's level."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )
    RULES: ClassVar[tuple[Cel, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if cls.RULES:
            schema[VALIDATIONS] = [rule.entry() for rule in cls.RULES]
        return schema

    def to_wire(self) -> dict[str, Any]:
        """JSON-ready camelCase, without the fields that are ``None``."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def given(self) -> dict[str, Any]:
        """JSON-ready camelCase of only what was written down: defaults and ``None`` left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


class ObjectMeta(ApiModel):
    """The part of ``metadata`` that the project reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """How a kind is named towards the API server."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    scales: bool = True  # has a /scale subresource

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition object."""
        return f"{self.plural}.{names.GROUP}"


class Resource(ApiModel):
    """One whole object; subclasses add ``spec``, ``status`` and their :class:`Kind`."""

    KIND: ClassVar[Kind]

    api_version: str = names.API_VERSION
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def key(self) -> str:
        """``namespace/name``, as in ``status.traffic`` and in messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleting(self) -> bool:
        """Whether somebody has asked for this object's deletion."""
        return self.metadata.deletion_timestamp is not None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """A live object. Unknown fields are skipped; :class:`pydantic.ValidationError` names a value that is wrong."""
        return cls.model_validate(document)
