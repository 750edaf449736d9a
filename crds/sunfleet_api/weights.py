"""Where weights come from: URIs, their forms, and what they were resolved to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.download import Download
from sunfleet_api.markers import Cel
from sunfleet_api.refs import NameRef

SCHEMES: Final = ("hf", "pvc", "s3", "gs", "oci", "file")

_HF_FORM: Final = r"^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?$"
_PVC_FORM: Final = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^/@]+)*/?$"
_DIGEST: Final = "(@sha256:[0-9a-f]{64})?"
_BUCKET_FORM: Final = rf"^(s3|gs)://[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9](/[^/@?#]+)*/?{_DIGEST}$"
_OCI_FORM: Final = (
    r"^oci://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
    rf"(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?{_DIGEST}$"
)
_FILE_FORM: Final = r"^file://(/[^/@]+)+/?$"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
# Scheme -> its form, and what to write instead of what does not match.
_FORMS: Final = {
    "hf": (_HF_FORM, "write hf://ORGANISATION/NAME or hf://ORGANISATION/NAME@REVISION"),
    "pvc": (_PVC_FORM, "write pvc://CLAIM or pvc://CLAIM/PATH"),
    "s3": (_BUCKET_FORM, "write s3://BUCKET/PREFIX or s3://BUCKET/PREFIX@sha256:DIGEST"),
    "gs": (_BUCKET_FORM, "write gs://BUCKET/PREFIX or gs://BUCKET/PREFIX@sha256:DIGEST"),
    "oci": (_OCI_FORM, "write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST"),
    "file": (_FILE_FORM, "write file:///PATH, where spec.template mounts a volume"),
}


def _forms(*schemes: str) -> list[Cel]:
    return [
        *(
            Cel(f"!self.startsWith('{scheme}://') || self.matches('{_FORMS[scheme][0]}')", _FORMS[scheme][1])
            for scheme in schemes
        ),
        Cel("!self.matches('(^|/)[.][.]?(/|@|$)')", "a path must not hold . or .. segments"),
    ]


Uri = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Cel(
        "self.matches('^(hf|pvc|s3|gs|oci|file)://[^/ ]|^file:///')",
        "a URI starts with hf://, pvc://, s3://, gs://, oci:// or file://",
    ),
    *_forms(*SCHEMES),
]
# What a Job reads rows from.
DataUri = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Cel("self.matches('^(hf|pvc|s3|gs)://[^/ ]')", "a dataset lies at hf://, pvc://, s3:// or gs://"),
    *_forms("hf", "pvc", "s3", "gs"),
]
# Which of a Hugging Face dataset's configurations: what its page calls subsets.
Subset = Annotated[str, Field(min_length=1, max_length=128)]
# Where a Job puts a checkpoint: a folder that it may replace whole, so never the top of a claim or bucket.
OutputUri = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Cel(
        "self.matches('^(pvc|s3|gs)://[^/@]+/[^/@]+(/[^/@]+)*/?$')",
        "an output lies at pvc://CLAIM/PATH, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, without a digest",
    ),
    *_forms("pvc", "s3", "gs"),
]


class WeightsSource(ApiModel):
    """A checkpoint, the Secret that opens it, and how pods get it."""

    uri: Uri
    """hf://ORG/NAME@REVISION, s3:// or gs://BUCKET/PREFIX, oci://REGISTRY/REPOSITORY:TAG, pvc://CLAIM/PATH, file:///PATH"""
    credentials_secret_ref: NameRef | None = None
    """Secret in the same namespace, for the download alone; docs/weights.md names its keys for each scheme."""
    download: Download | None = None


@dataclass(frozen=True)
class WeightsUri:
    """A URI taken apart."""

    scheme: str
    location: str  # ORG/NAME, the claim, the bucket, REGISTRY/REPOSITORY, or the path of a file:// with its slash
    path: str = ""  # pvc, s3, gs: path in it, without slashes around it
    revision: str = ""  # hf: branch, tag or commit; s3, gs, oci: sha256:HEX; oci: else the tag; empty when not given

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
    form, text = _FORMS[scheme]
    if not re.fullmatch(form, uri):
        raise ValueError(f"weights URI {uri!r}: {text}")
    location, _, revision = rest.partition("@")
    if scheme == "file":
        return WeightsUri(scheme, location.rstrip("/"))
    if scheme == "oci":
        repository, _, tag = location.rpartition(":")
        if "/" in tag or not repository:  # the colon, if any, is a port's
            repository, tag = location, ""
        return WeightsUri(scheme, repository, revision=revision or tag)
    if scheme == "hf":
        return WeightsUri(scheme, location, revision=revision)
    root, _, path = location.partition("/")
    return WeightsUri(scheme, root, path=path.strip("/"), revision=revision)
