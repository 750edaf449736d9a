"""Certificates of a control plane: three authorities and the identities they vouch for, made with the openssl program.

A set is made in a folder beside its place and renamed into it, so it is complete or absent. It is made anew when its
description changed or one of its certificates ends within `RENEW_DAYS`; authorities and the key of service accounts
that are still good are kept, so that pods which trust them go on.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sunfleet_cluster.errors import ClusterError

VALID_DAYS = 3650
RENEW_DAYS = 30
AUTHORITIES = ("ca", "etcd-ca", "front-proxy-ca")
_STAMP = "stamp.json"
_SERVICE_ACCOUNT_KEYS = ("service-account.key", "service-account.pub")


@dataclass(frozen=True)
class Identity:
    """A certificate to make: file name, common name, groups, and the host names or addresses it serves (`IP:...`,
    `DNS:...`).
    """

    name: str
    common_name: str
    organization: str = ""
    hosts: tuple[str, ...] = ()
    authority: str = "ca"

    @property
    def subject(self) -> str:
        """The subject as openssl wants it."""
        organization = f"/O={self.organization}" if self.organization else ""
        return f"{organization}/CN={self.common_name}"


def control_plane_identities(api_hosts: Iterable[str], node: str, node_hosts: Iterable[str]) -> tuple[Identity, ...]:
    """Identities of every component; the API server answers to `api_hosts`, kubelet to `node_hosts`."""
    local = ("DNS:localhost", "IP:127.0.0.1")
    return (
        Identity("etcd", "etcd", hosts=local, authority="etcd-ca"),
        Identity("etcd-client", "kube-apiserver-etcd-client", authority="etcd-ca"),
        Identity("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
        Identity("apiserver", "kube-apiserver", hosts=(*local, *api_hosts)),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("kubelet", f"system:node:{node}", "system:nodes", hosts=tuple(node_hosts)),
        Identity("proxy", "system:kube-proxy"),
        Identity("policy", "system:kube-router"),
    )


def ensure(folder: Path, identities: tuple[Identity, ...]) -> bool:
    """Make `folder` hold valid certificates of `identities`; True when they were made anew."""
    stamp = _stamp(identities)
    fresh, old = folder.with_suffix(".new"), folder.with_suffix(".old")
    if not folder.exists() and (fresh / _STAMP).exists():
        fresh.rename(folder)  # complete, and interrupted just before its last step
    for leftover in (fresh, old) if folder.exists() else (fresh,):
        shutil.rmtree(leftover, ignore_errors=True)
    if _current(folder, identities, stamp):
        return False
    fresh.mkdir(parents=True, mode=0o700)
    for authority in AUTHORITIES:
        good = _still_valid(folder / f"{authority}.crt")
        if not (good and _keep(folder, fresh, f"{authority}.crt", f"{authority}.key")):
            _authority(fresh, authority)
    for identity in identities:
        _certificate(fresh, identity)
    if not _keep(folder, fresh, *_SERVICE_ACCOUNT_KEYS):
        _service_account_key(fresh)
    (fresh / _STAMP).write_text(stamp)
    if folder.exists():
        folder.rename(old)  # both stand beside each other until the new one is in place
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _keep(old: Path, fresh: Path, *names: str) -> bool:
    """Take over the files `names` of the set `old`, if it holds all of them."""
    if not all(_has_content(old / name) for name in names):
        return False
    for name in names:
        shutil.copy2(old / name, fresh / name)
    return True


def _has_content(file: Path) -> bool:
    """A power cut can leave a file empty that was complete when the machine ran."""
    return file.is_file() and file.stat().st_size > 0


def _stamp(identities: tuple[Identity, ...]) -> str:
    text = json.dumps([asdict(identity) for identity in identities], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _current(folder: Path, identities: tuple[Identity, ...], stamp: str) -> bool:
    try:
        if (folder / _STAMP).read_text() != stamp:
            return False
    except FileNotFoundError:
        return False
    names = [*AUTHORITIES, *(identity.name for identity in identities)]
    keys = [*(f"{name}.key" for name in names), *_SERVICE_ACCOUNT_KEYS]
    return all(_has_content(folder / key) for key in keys) and all(
        _still_valid(folder / f"{name}.crt") for name in names
    )


def _still_valid(certificate: Path) -> bool:
    command = ["openssl", "x509", "-noout", "-checkend", str(RENEW_DAYS * 86400), "-in", str(certificate)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _authority(folder: Path, name: str) -> None:
    usage = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign")
    _openssl(*_request(folder, name, f"/CN=sunfleet-{name}"), *usage)


def _certificate(folder: Path, identity: Identity) -> None:
    authority = folder / identity.authority
    extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature"]
    extensions.append("extendedKeyUsage=serverAuth,clientAuth")
    if identity.hosts:
        extensions.append(f"subjectAltName={','.join(identity.hosts)}")
    signer = ("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")
    added = [word for extension in extensions for word in ("-addext", extension)]
    _openssl(*_request(folder, identity.name, identity.subject), *signer, *added)


def _service_account_key(folder: Path) -> None:
    private, public = (folder / name for name in _SERVICE_ACCOUNT_KEYS)
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(private))
    _openssl("pkey", "-in", str(private), "-pubout", "-out", str(public))


def _request(folder: Path, name: str, subject: str) -> list[str]:
    """Options for a new key and a certificate of it."""
    # Elliptic keys: made in a millisecond, so that every test's control plane can have its own.
    key = [
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        f"{folder}/{name}.key",
    ]
    return [*key, "-x509", "-out", f"{folder}/{name}.crt", "-days", str(VALID_DAYS), "-subj", subject]


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(
            f"openssl {arguments[0]} failed: {done.stderr.strip()}\nIt needs OpenSSL 3: apt-get install openssl"
        )
