"""Certificates are complete, valid, and made anew only when they must be."""

import subprocess
from pathlib import Path

import pytest
import yaml

from sunfleet_cluster import kubeconfig, pki

IDENTITIES = pki.control_plane_identities(("IP:10.0.0.1",), "node", ("DNS:node",))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "pki"
    assert pki.ensure(folder, IDENTITIES)
    return folder


def copy(made: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-r", made, tmp_path / "pki"], check=True)
    return tmp_path / "pki"


def test_a_complete_set_is_kept(made: Path, tmp_path: Path) -> None:
    folder = copy(made, tmp_path)
    before = (folder / "ca.crt").read_bytes()
    assert not pki.ensure(folder, IDENTITIES)
    assert (folder / "ca.crt").read_bytes() == before


@pytest.mark.parametrize(
    "file", ["ca.key", "apiserver.crt", "service-account.key", "service-account.pub", "stamp.json"]
)
def test_an_incomplete_set_is_made_anew(made: Path, tmp_path: Path, file: str) -> None:
    folder = copy(made, tmp_path)
    (folder / file).unlink()
    assert pki.ensure(folder, IDENTITIES)
    assert (folder / file).exists()
    assert not pki.ensure(folder, IDENTITIES)


def test_a_set_for_other_addresses_is_made_anew(made: Path, tmp_path: Path) -> None:
    assert pki.ensure(copy(made, tmp_path), pki.control_plane_identities(("IP:10.9.9.9",), "node", ("DNS:node",)))


def test_a_set_with_another_identity_keeps_the_authorities_and_keys_that_pods_trust(made: Path, tmp_path: Path) -> None:
    folder = copy(made, tmp_path)
    assert pki.ensure(folder, (*IDENTITIES, pki.Identity("new", "system:new")))
    for name in ("ca.crt", "ca.key", "etcd-ca.crt", "front-proxy-ca.key", "service-account.key", "service-account.pub"):
        assert (folder / name).read_bytes() == (made / name).read_bytes()
    assert (folder / "new.crt").exists()
    assert all(key.stat().st_mode & 0o077 == 0 for key in folder.glob("*.key"))


def test_an_authority_without_its_key_is_made_anew_with_all_that_it_vouches_for(made: Path, tmp_path: Path) -> None:
    folder = copy(made, tmp_path)
    (folder / "ca.key").write_bytes(b"")  # a power cut
    assert pki.ensure(folder, IDENTITIES)
    assert (folder / "ca.crt").read_bytes() != (made / "ca.crt").read_bytes()
    command = ["openssl", "verify", "-CAfile", f"{folder}/ca.crt", f"{folder}/admin.crt"]
    subprocess.run(command, capture_output=True, check=True)


def test_keys_that_an_interrupted_replacement_left_are_removed(made: Path, tmp_path: Path) -> None:
    folder = copy(made, tmp_path)
    folder.with_suffix(".old").mkdir()
    assert not pki.ensure(folder, IDENTITIES)
    assert not folder.with_suffix(".old").exists()


def test_a_set_that_is_about_to_end_is_made_anew(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy(made, tmp_path)
    monkeypatch.setattr(pki, "RENEW_DAYS", pki.VALID_DAYS + 1)
    assert pki.ensure(folder, IDENTITIES)


def test_a_set_whose_last_step_was_interrupted_is_taken_up(made: Path, tmp_path: Path) -> None:
    folder = copy(made, tmp_path)
    folder.rename(folder.with_suffix(".new"))
    assert not pki.ensure(folder, IDENTITIES)
    assert (folder / "ca.crt").read_bytes() == (made / "ca.crt").read_bytes()


def test_a_set_interrupted_half_way_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "pki.new").mkdir()
    (tmp_path / "pki.new" / "ca.key").write_text("half")
    assert pki.ensure(tmp_path / "pki", IDENTITIES)
    assert not (tmp_path / "pki.new").exists()


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda identity: identity.name)
def test_each_certificate_is_vouched_for_by_its_authority_alone(made: Path, identity: pki.Identity) -> None:
    for authority in pki.AUTHORITIES:
        command = ["openssl", "verify", "-CAfile", f"{made}/{authority}.crt", f"{made}/{identity.name}.crt"]
        vouched = subprocess.run(command, capture_output=True, check=False).returncode == 0
        assert vouched == (authority == identity.authority)


def test_keys_are_readable_by_their_owner_alone(made: Path) -> None:
    assert made.stat().st_mode & 0o077 == 0
    assert all(key.stat().st_mode & 0o077 == 0 for key in made.glob("*.key"))


def test_a_kubeconfig_names_its_server_and_holds_everything(made: Path) -> None:
    document = yaml.safe_load(kubeconfig.render("https://10.0.0.1:6443", made, "admin"))
    assert document["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert set(document["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert document["current-context"] == document["contexts"][0]["name"]
