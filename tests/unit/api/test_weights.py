"""Weights URIs: taken apart, pinned or floating, refused with the form that is expected."""

import pytest

from sunfleet_api.weights import WeightsUri, parse_uri

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hf://org/name", WeightsUri("hf", "org/name")),
        (f"hf://org/name@{COMMIT}", WeightsUri("hf", "org/name", revision=COMMIT)),
        ("hf://org/name@refs/pr/1", WeightsUri("hf", "org/name", revision="refs/pr/1")),
        ("pvc://claim", WeightsUri("pvc", "claim")),
        ("pvc://claim/a/b.c/", WeightsUri("pvc", "claim", path="a/b.c")),
        ("s3://bucket/key@sha256:ab", WeightsUri("s3", "bucket/key", revision="sha256:ab")),
        ("file:///models/x", WeightsUri("file", "/models/x")),
        ("oci://registry:5000/a/b:1", WeightsUri("oci", "registry:5000/a/b:1")),
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
        ("s3://bucket/key@sha256:ab", True),
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
        ("hf://name", "expected hf://ORGANISATION/NAME"),
        ("hf://org/name@", "expected hf://ORGANISATION/NAME"),
        ("pvc://Claim", "expected pvc://CLAIM"),
        ("pvc://claim/a//b", "expected pvc://CLAIM"),
        ("pvc://claim/../other", r"\. or \.\. segments"),
        ("hf://org/name@../x", r"\. or \.\. segments"),
        ("file:///a/./b", r"\. or \.\. segments"),
    ],
)
def test_a_wrong_uri_is_refused_with_the_form_that_is_expected(uri: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_uri(uri)
