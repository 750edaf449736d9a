"""NetworkPolicy peers as somebody writes them into a setting: checked as the API server would, but when the operator
starts, by name, instead of when the first policy is made. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

_PART: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = re.compile(rf"({_DNS}(\.{_DNS})*/)?{_PART}")
_VALUE: Final = re.compile(rf"({_PART})?")
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")


def _label_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError(f"{text!r} is no label key, such as app.kubernetes.io/name")
    return text


def _label_value(text: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is no label value: at most 63 letters, digits, '-', '_' and '.'")
    return text


def _network(text: str) -> str:
    """As every API server takes it: older ones also took bits behind the prefix, and zeros in front of decimals."""
    if "/" not in text:
        raise ValueError(f"{text!r} is no network: say how long its prefix is, such as {text}/32")
    if ":" not in text:
        text = _LEADING_ZEROS.sub("", text)
    return str(ip_network(text, strict=False))  # its own error says what is wrong


LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
Network = Annotated[str, AfterValidator(_network)]


class _Written(BaseModel):
    """A part of a manifest. Unlike in live objects an unknown field is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, strict=True)


class Requirement(_Written):
    """One of ``matchExpressions``."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] = Field(default_factory=list)

    @model_validator(mode="after")
    def _values_where_they_count(self) -> Self:
        if bool(self.values) != (self.operator in {"In", "NotIn"}):
            raise ValueError("values go with the operators In and NotIn, and with these alone")
        return self


class Selector(_Written):
    """A label selector; an empty one selects everything."""

    match_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    match_expressions: list[Requirement] = Field(default_factory=list)


class IPBlock(_Written):
    """A network, without some parts of it."""

    cidr: Network
    excluded: list[Network] = Field(default_factory=list, alias="except")

    @model_validator(mode="after")
    def _within(self) -> Self:
        whole = ip_network(self.cidr)
        for part in map(ip_network, self.excluded):
            if part.version != whole.version or part == whole or not _lies_in(part, whole):
                raise ValueError(f"except {part} does not lie within {whole}")
        return self


def _lies_in(part: Any, whole: Any) -> bool:
    return bool(part.subnet_of(whole))


class PeerSetting(_Written):
    """One peer: pods by selectors (without ``namespaceSelector`` those of the policy's own namespace), or addresses."""

    namespace_selector: Selector | None = None
    pod_selector: Selector | None = None
    ip_block: IPBlock | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        selects = self.namespace_selector is not None or self.pod_selector is not None
        if selects == (self.ip_block is not None):
            raise ValueError("name podSelector, namespaceSelector or both, or else ipBlock")
        return self

    def manifest(self) -> dict[str, Any]:
        """As it stands in a policy: what was written, no more, each network by its own address."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
