"""Hands the host's way to its package indexes to a build, as files that are mounted while it runs and never stored."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sunfleet_cluster.images.settings import HostNetwork

# Where the Dockerfiles mount the secret `ca-bundle`.
BUNDLE_IN_BUILD = "/run/build/ca-bundle.pem"


@contextmanager
def build_secrets(network: HostNetwork) -> Iterator[dict[str, Path]]:
    """Files of the build secrets, by id; they vanish with the block."""
    secrets: dict[str, Path] = {}
    variables = dict(network.index_variables)
    if network.ca_bundle is not None:
        secrets["ca-bundle"] = network.ca_bundle
        variables |= {"SSL_CERT_FILE": BUNDLE_IN_BUILD, "PIP_CERT": BUNDLE_IN_BUILD}
    with TemporaryDirectory(prefix="sunfleet-build-") as folder:  # mode 0700
        if variables:
            secrets["network-env"] = Path(folder) / "network-env"
            secrets["network-env"].write_text(assignments(variables))
        yield secrets


def assignments(variables: Mapping[str, str]) -> str:
    """`NAME=value` lines for a POSIX shell, quoted."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
