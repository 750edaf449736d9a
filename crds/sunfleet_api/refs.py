"""References to other objects, and who may refer to ours."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import ATOMIC, ATOMIC_MAP, SERVER_DEFAULTED, Cel, list_map

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
NamespaceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class NameRef(ApiModel):
    """An object in the same namespace."""

    name: ObjectName
    """Name of the object."""


class ObjectRef(ApiModel):
    """An object, in this object's namespace unless another is named."""

    name: ObjectName
    """Name of the object."""
    namespace: NamespaceName | None = None
    """Namespace of the object. Default: that of the object that holds this reference."""

    def resolve(self, own_namespace: str) -> tuple[str, str]:
        """``(namespace, name)``."""
        return self.namespace or own_namespace, self.name


class LabelRequirement(ApiModel):
    key: str = Field(min_length=1, max_length=317)
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to values."""
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=64), ATOMIC] = ()
    """For In and NotIn."""


class LabelSelector(ApiModel):
    """Kubernetes' label selector; an empty one matches everything."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64), ATOMIC_MAP] = Field(
        default_factory=dict
    )
    """Labels that must all be present with these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=64), ATOMIC] = ()
    """Requirements that must all hold."""

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_holds(requirement, labels) for requirement in self.match_expressions)


def _holds(requirement: LabelRequirement, labels: dict[str, str]) -> bool:
    match requirement.operator:
        case "In":
            return labels.get(requirement.key) in requirement.values
        case "NotIn":
            return labels.get(requirement.key) not in requirement.values
        case "Exists":
            return requirement.key in labels
        case "DoesNotExist":
            return requirement.key not in labels


class AllowedNamespaces(ApiModel):
    """Namespaces whose objects may attach (the vocabulary of Gateway API's allowedRoutes)."""

    RULES: ClassVar = (
        Cel(
            "(has(self.from) && self.from == 'Selector') == has(self.selector)",
            "set selector together with from: Selector, and only then",
            ".selector",
        ),
    )

    from_: Annotated[Literal["Same", "All", "Selector"], SERVER_DEFAULTED] = Field(default="Same", alias="from")
    """Same: the own namespace. All: every namespace. Selector: namespaces whose labels match."""
    selector: LabelSelector | None = None


class AllowedModels(ApiModel):
    """Who may attach."""

    namespaces: Annotated[AllowedNamespaces, SERVER_DEFAULTED] = Field(default_factory=AllowedNamespaces)

    def allows(self, *, own_namespace: str, namespace: str, namespace_labels: dict[str, str]) -> bool:
        """Whether an object in ``namespace`` (with these labels) may attach to one in ``own_namespace``."""
        match self.namespaces.from_:
            case "Same":
                return namespace == own_namespace
            case "All":
                return True
            case "Selector":
                selector = self.namespaces.selector
                return selector is not None and selector.matches(namespace_labels)


ProfileRefs = Annotated[tuple[NameRef, ...], Field(max_length=8), list_map("name")]
