"""Where weights come from: URIs, their forms, and what they were resolved to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import Cel
from sunfleet_api.refs import NameRef

SCHEMES: Final = ("hf", "pvc", "s3", "gs", "oci", "file")

_HF_FORM: Final = r"^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?$"
_PVC_FORM: Final = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^/@]+)*/?$"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")

Uri = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Cel(
        "self.matches('^(hf|pvc|s3|gs|oci|file)://[^/ ]|^file:///')",
        "a URI starts with hf://, pvc://, s3://, gs://, oci:// or file://",
    ),
    Cel(
        f"!self.startsWith('hf://') || self.matches('{_HF_FORM}')",
        "write hf://ORGANISATION/NAME or hf://ORGANISATION/NAME@REVISION",
    ),
    Cel(f"!self.startsWith('pvc://') || self.matches('{_PVC_FORM}')", "write pvc://CLAIM or pvc://CLAIM/PATH"),
    Cel("!self.matches('(^|/)[.][.]?(/|@|$)')", "a path must not hold . or .. segments"),
]


class WeightsSource(ApiModel):
    """A checkpoint and the Secret that opens it."""

    uri: Uri
    """hf://ORG/NAME@REVISION, pvc://CLAIM/PATH, s3://, gs://, oci:// or file://"""
    credentials_secret_ref: NameRef | None = None
    """Secret in the same namespace; key HF_TOKEN for hf://."""


@dataclass(frozen=True)
class WeightsUri:
    """A URI taken apart. ``location`` is ORG/NAME for hf, the claim for pvc, else everything after the scheme."""

    scheme: str
    location: str
    path: str = ""  # pvc: path in the claim, without slashes around it
    revision: str = ""  # after "@"; empty when none was given

    @property
    def pinned(self) -> bool:
        """Whether the URI can mean only one set of files: an hf commit or anything with a digest."""
        return bool(_COMMIT.fullmatch(self.revision)) or self.revision.startswith("sha256:")


def parse_uri(uri: str) -> WeightsUri:
    """Take a weights URI apart; :class:`ValueError` says which form is expected."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in SCHEMES or not rest:
        raise ValueError(f"weights URI {uri!r}: expected one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if any(segment in {".", ".."} for segment in re.split("[/@]", rest)):
        raise ValueError(f"weights URI {uri!r}: a path must not hold . or .. segments")
    if scheme == "hf":
        if not re.fullmatch(_HF_FORM, uri):
            raise ValueError(f"weights URI {uri!r}: expected hf://ORGANISATION/NAME or hf://ORGANISATION/NAME@REVISION")
        location, _, revision = rest.partition("@")
        return WeightsUri(scheme, location, revision=revision)
    if scheme == "pvc":
        if not re.fullmatch(_PVC_FORM, uri):
            raise ValueError(f"weights URI {uri!r}: expected pvc://CLAIM or pvc://CLAIM/PATH")
        claim, _, path = rest.partition("/")
        return WeightsUri(scheme, claim, path=path.strip("/"))
    location, _, revision = rest.partition("@")
    return WeightsUri(scheme, location, revision=revision)
