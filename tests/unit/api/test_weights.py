"""Weights URIs: taken apart, pinned or floating, refused with the form that is expected."""

import pytest

from sunfleet_api.weights import WeightsUri, parse_uri

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hf://org/name", WeightsUri("hf", "org/name")),
        (f"hf://org/name@{COMMIT}", WeightsUri("hf", "org/name", revision=COMMIT)),
        ("hf://org/name@refs/pr/1", WeightsUri("hf", "org/name", revision="refs/pr/1")),
        ("pvc://claim", WeightsUri("pvc", "claim")),
        ("pvc://claim/a/b.c/", WeightsUri("pvc", "claim", path="a/b.c")),
        (f"s3://bucket/a/key@{DIGEST}", WeightsUri("s3", "bucket", path="a/key", revision=DIGEST)),
        ("gs://bucket/", WeightsUri("gs", "bucket")),
        ("file:///models/x", WeightsUri("file", "/models/x")),
        ("oci://registry:5000/a/b:1", WeightsUri("oci", "registry:5000/a/b", revision="1")),
        ("oci://registry:5000/a/b", WeightsUri("oci", "registry:5000/a/b")),
        (f"oci://registry/b:1@{DIGEST}", WeightsUri("oci", "registry/b", revision=DIGEST)),
    ],
)
def test_a_uri_is_taken_apart(uri: str, expected: WeightsUri) -> None:
    assert parse_uri(uri) == expected


@pytest.mark.parametrize(
    ("uri", "pinned"),
    [
        (f"hf://org/name@{COMMIT}", True),
        ("hf://org/name@main", False),
        ("hf://org/name", False),
        (f"hf://org/name@{COMMIT[:12]}", False),
        (f"s3://bucket/key@{DIGEST}", True),
        (f"oci://registry/a@{DIGEST}", True),
        ("oci://registry/a:1", False),
        ("pvc://claim/x", False),
    ],
)
def test_only_a_commit_or_a_digest_pins(uri: str, pinned: bool) -> None:
    assert parse_uri(uri).pinned is pinned


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("org/name", "expected one of hf://, pvc://"),
        ("http://x/y", "expected one of"),
        ("hf://", "expected one of"),
        ("hf://name", "write hf://ORGANISATION/NAME"),
        ("hf://org/name@", "write hf://ORGANISATION/NAME"),
        ("pvc://Claim", "write pvc://CLAIM"),
        ("pvc://claim/a//b", "write pvc://CLAIM"),
        ("pvc://claim/../other", r"\. or \.\. segments"),
        ("s3://bucket/key@1", "@sha256:DIGEST"),
        ("s3://bucket/a//b", "s3://BUCKET/PREFIX"),
        ("gs://B/key", "gs://BUCKET/PREFIX"),
        ("oci://registry", "oci://REGISTRY/REPOSITORY"),
        ("oci://registry/Upper", "oci://REGISTRY/REPOSITORY"),
        ("file://host/path", "file:///PATH"),
        ("hf://org/name@../x", r"\. or \.\. segments"),
        ("file:///a/./b", r"\. or \.\. segments"),
    ],
)
def test_a_wrong_uri_is_refused_with_the_form_that_is_expected(uri: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_uri(uri)
