"""Make an API key: ``python -m sunfleet_router.keys NAME --task 'acme/*' | kubectl apply -f -``.

The Secret goes to standard output and holds only the key's SHA-256; the key itself goes to standard error, once.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from hashlib import sha256
from typing import Any, Final

import yaml

from sunfleet_api import names
from sunfleet_router.keys.keyring import KeyFormatError, of_fields

_PREFIX: Final = "sk-sunfleet-"  # so that scanners find a key that leaked
_LIMITS: Final = {
    "maxInFlight": "requests at once",
    "requestsPerMinute": "requests that may begin within a minute",
    "tokensPerMinute": "prompt and output tokens within a minute",
    "priority": "the most urgent priority that it may ask for: a lower number is served sooner (default 0)",
}


def secret(name: str, namespace: str, fields: dict[str, str]) -> dict[str, Any]:
    """The manifest of a key's Secret; raises :class:`KeyFormatError` for fields that the router would not take."""
    of_fields(name, fields)
    metadata = {"name": name, "namespace": namespace, "labels": {names.LABEL_API_KEY: "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": fields}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for arguments that make no key."""
    parser = argparse.ArgumentParser(prog="python -m sunfleet_router.keys", description=__doc__)
    parser.add_argument("name", help="of the Secret, and of the key in metrics and logs")
    parser.add_argument("--task", action="append", required=True, help="a model or a pattern such as 'acme/*'; repeat")
    parser.add_argument("--namespace", default="sunfleet-system", help="the router's")
    for field, meaning in _LIMITS.items():
        parser.add_argument(f"--{_flag(field)}", dest=field, help=meaning)
    given = vars(parser.parse_args(arguments))
    key = _PREFIX + secrets.token_urlsafe(32)
    fields = {"sha256": sha256(key.encode()).hexdigest(), "tasks": ",".join(given["task"])}
    fields |= {field: given[field] for field in _LIMITS if given[field] is not None}
    try:
        manifest = secret(given["name"], given["namespace"], fields)
    except KeyFormatError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(yaml.safe_dump(manifest, sort_keys=False))
    sys.stderr.write(f"The key, which is stored nowhere: {key}\n")
    return 0


def _flag(field: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in field)
