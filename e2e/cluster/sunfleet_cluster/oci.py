"""Make an image of one static program, without any image builder: a layer with one file is a few lines of tar and JSON.

The result depends on the program's bytes alone, so its tag is a hash and an unchanged program is never loaded twice.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

_NOBODY = "65532:65532"


def reference(name: str, program: Path) -> str:
    """Name of the image of `program`, for example `localhost/sunfleet/pause:3f9a0c2b1d4e`."""
    with program.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"localhost/sunfleet/{name}:{digest[:12]}"


def write_archive(target: Path, ref: str, program: Path) -> None:
    """Write an OCI archive to `target` with the image `ref`, which runs `program` as its entry point and as nobody."""
    layer = _layer(program)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": _NOBODY},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    annotations = {"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref.rpartition(":")[2]}
    index = _json({"schemaVersion": 2, "manifests": [{**entry, "annotations": annotations}]})
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", index)
        for blob in (config, manifest, layer):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add(layer, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
