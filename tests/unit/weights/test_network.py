"""Proxies and a company's own authority: every client goes through the one and trusts the other."""

from __future__ import annotations

import errno
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
import pytest

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.bucket import FakeBuckets
from sunfleet_fakes.checkpoints import model_files, write
from sunfleet_fakes.hub.server import FakeHub
from sunfleet_fakes.proxy import FakeProxy
from sunfleet_fakes.registry import FakeRegistry

Run = Callable[..., tuple[int, ResolverReport]]
Server = FakeHub | FakeBuckets | FakeRegistry
URIS = {
    "hf": "hf://acme/maths",
    "s3": "s3://acme/models/maths",
    "gs": "gs://acme/models/maths",
    "oci": "oci://{host}/acme/maths:v1",
}
DAMAGED = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _plain_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No proxy or authority of this machine, and no connection that an earlier test opened."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@contextmanager
def serving(scheme: str, certificate: Path | None = None) -> Iterator[Server]:
    """A place that holds one checkpoint."""
    with server_of(scheme, certificate) as server:
        yield server
        huggingface_hub.close_session()  # before the server goes: it would wait for this one's connections


def server_of(scheme: str, certificate: Path | None) -> Server:
    if scheme == "hf":
        hub = FakeHub(certificate)
        hub.commit("acme/maths", model_files(1))
        return hub
    if scheme == "oci":
        registry = FakeRegistry(certificate)
        registry.push("acme/maths", registry.files(model_files(1)))
        return registry
    store = FakeBuckets(certificate)
    store.put("acme", "models/maths", model_files(1))
    return store


def reach(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Point every client there."""
    for name in ("HF_ENDPOINT", "AWS_ENDPOINT_URL", "GOOGLE_BASE_URL"):
        monkeypatch.setenv(name, url)
    for name in ("AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "OCI_PLAIN_HTTP"):
        monkeypatch.setenv(name, "true" if url.startswith("http:") or "SKIP" in name else "false")
    monkeypatch.setattr("sunfleet_weights.sources._RETRIES", {"max_retries": 0})


@pytest.mark.parametrize("scheme", sorted(URIS))
def test_the_proxy_is_used_and_hosts_can_be_left_out(scheme: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(scheme) as server, FakeProxy(server.host) as proxy:
        reach(monkeypatch, "http://store.test")
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        uri = URIS[scheme].format(host="store.test")
        code, report = run("resolve", uri)
        assert (code, report.error_message) == (0, "")
        assert "store.test" in proxy.hosts
        huggingface_hub.close_session()
        proxy.hosts.clear()
        reach(monkeypatch, server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        assert run("resolve", URIS[scheme].format(host=server.host))[0] == 0
        assert proxy.hosts == []


@pytest.mark.parametrize("scheme", sorted(URIS))
def test_a_companys_own_authority_is_trusted_once_it_is_named(
    scheme: str, run: Run, monkeypatch: pytest.MonkeyPatch, authority: Path, certificate: Path
) -> None:
    with serving(scheme, certificate) as server:
        reach(monkeypatch, server.url)
        uri = URIS[scheme].format(host=server.host)
        said = run("resolve", uri)[1]
        assert said.error_reason == "SourceUnreachable"
        assert "CA bundle" in said.error_message
        huggingface_hub.close_session()
        monkeypatch.setenv("SUNFLEET_WEIGHTS_CA_FILE", str(authority))
        code, report = run("resolve", uri)
        assert (code, report.error_message) == (0, "")


def test_the_usual_authorities_stay_trusted(tmp_path: Path, authority: Path) -> None:
    from sunfleet_weights.trust import trust

    usual = tmp_path / "usual.pem"
    usual.write_bytes(b"usual\n" + authority.read_bytes())
    bundle = trust(authority, str(usual), tmp_path)
    assert bundle.read_bytes() == usual.read_bytes() + b"\n" + authority.read_bytes()


@pytest.mark.parametrize("content", [None, "words", DAMAGED], ids=["absent", "words", "damaged"])
def test_a_bundle_that_cannot_be_read_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    bundle = tmp_path / "ca.crt"
    if content:
        bundle.write_text(content)
    monkeypatch.setenv("SUNFLEET_WEIGHTS_CA_FILE", str(bundle))
    report = run("resolve", "hf://acme/base")[1]
    assert report.error_reason == "InvalidBundle"
    assert "caBundle, ca.crt" in report.error_message


@pytest.mark.parametrize("content", [None, "words", DAMAGED], ids=["absent", "words", "damaged"])
@pytest.mark.parametrize("besides", [False, True], ids=["alone", "beside a company's own"])
@pytest.mark.parametrize("scheme", sorted(URIS))
def test_usual_certificates_that_cannot_be_read_are_no_fault_of_a_disk(
    scheme: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Path, besides: bool,
    content: str | None,
) -> None:  # fmt: skip
    usual = tmp_path / "usual.pem"
    if content:
        usual.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(usual))
    if besides:
        monkeypatch.setenv("SUNFLEET_WEIGHTS_CA_FILE", str(authority))
    report = run("resolve", URIS[scheme].format(host="store.test"))[1]
    assert report.error_reason == "InvalidBundle"
    assert f"SSL_CERT_FILE, {usual}" in report.error_message


@pytest.mark.parametrize("uri", ["pvc://models/base", "file:///models/base"])
def test_where_nothing_is_loaded_over_a_network_its_certificates_do_not_matter(
    uri: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    code, report = run("resolve", uri, "--to", str(write(tmp_path / "base", model_files(1))))
    assert (code, report.error_message) == (0, "")


@pytest.mark.parametrize(
    "error",
    [
        ssl.SSLError(1, "[SSL] record layer failure"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        TimeoutError("timed out"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_fails_where_nobody_expects_it_is_no_fault_of_a_disk(
    error: OSError, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("sunfleet_weights.cli.inspect", fails)
    report = run("resolve", "file:///models/base")[1]
    assert report.error_reason == "SourceUnreachable"
    assert (error.strerror or "timed out") in report.error_message


def test_a_disk_of_the_network_that_times_out_is_a_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out", "/models/base/config.json")

    monkeypatch.setattr("sunfleet_weights.cli.inspect", fails)
    report = run("resolve", "file:///models/base")[1]
    assert report.error_reason == "DiskFailed"
    assert "/models/base/config.json" in report.error_message


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate of an authority that nobody knows, with its key beside it."""
    folder = tmp_path_factory.mktemp("authority")
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
        "/CN=company", "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.crt"),
    )  # fmt: skip
    return folder / "ca.crt"


@pytest.fixture(scope="module")
def certificate(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of this machine, vouched for by the authority."""
    folder = tmp_path_factory.mktemp("server")
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
        "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=CA:FALSE",
        "-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")),
        "-keyout", str(folder / "key.pem"), "-out", str(folder / "crt.pem"),
    )  # fmt: skip
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "crt.pem").read_bytes())
    return both


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
