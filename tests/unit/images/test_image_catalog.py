"""The catalogue and the Dockerfiles in the tree say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sunfleet_cluster.images.catalog import Image, images, on_request
from sunfleet_cluster.images.settings import Engine

ROOT = Path(__file__).resolve().parents[3]
EVERY = {
    f"{image.name}-{dict(image.args).get('ENGINE', '')}": image
    for engine in (Engine.CPU, Engine.CUDA, Engine.MOUNTED)
    for image in images(engine)
}
ALL = pytest.mark.parametrize("image", EVERY.values(), ids=EVERY.keys())
# The part that fetches packages stands in every Dockerfile alike, so that builders share its layer.
TOOLS = re.compile(r"^FROM \$\{BASE_IMAGE\} AS tools\n.*?\n\n", re.MULTILINE | re.DOTALL)


def dockerfile(image: Image) -> str:
    return (ROOT / image.dockerfile).read_text()


@ALL
def test_the_packages_that_are_hashed_are_the_ones_that_are_installed(image: Image) -> None:
    extra = re.sub(r"^engine-.*", "engine-${ENGINE}", image.extra)
    assert not extra or re.search(rf'--extra "?{re.escape(extra)}"?\s', dockerfile(image))


@ALL
def test_every_copied_source_exists_and_is_let_through_by_dockerignore(image: Image) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = image.sources(ROOT)
    assert Path("crds/sunfleet_api") in sources
    for source in sources:
        assert (ROOT / source).exists()
        assert str(source) in allowed


@ALL
def test_the_lock_file_does_not_count_as_a_source(image: Image) -> None:
    assert not {Path("uv.lock"), Path("pyproject.toml")} & set(image.sources(ROOT))


@ALL
def test_an_image_runs_as_nobody_and_finds_our_code(image: Image) -> None:
    text = dockerfile(image)
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)
    assert "PYTHONPATH=/app" in text
    assert text.rindex("USER ") > text.rindex("RUN "), "nothing runs as root after the user is set"


@ALL
def test_no_secret_of_a_build_becomes_an_argument_or_a_layer(image: Image) -> None:
    text = dockerfile(image)
    assert not re.search(r"^(?:ARG|ENV|COPY).*(?:CERT|INDEX|PROXY|secret)", text, re.MULTILINE | re.IGNORECASE)
    for run in re.findall(r"^RUN (?:.*\\\n)*.*$", text, re.MULTILINE):
        assert ("pip install" not in run) or ("id=ca-bundle" in run and "id=network-env" in run), run


def test_the_stage_with_the_tools_is_the_same_everywhere() -> None:
    stages = {TOOLS.findall(dockerfile(image))[0] for image in EVERY.values()}
    assert len(stages) == 1


def test_only_worker_and_tuner_depend_on_the_engine() -> None:
    cpu, mounted = images(Engine.CPU), images(Engine.MOUNTED)
    assert [one.name for one, other in zip(cpu, mounted, strict=True) if one != other] == ["worker", "tuner"]


def test_a_mounted_engine_needs_no_packages_in_the_image() -> None:
    found = {image.name: image.extra for image in images(Engine.MOUNTED)}
    assert (found["worker"], found["tuner"]) == ("", "")


def test_an_undecided_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="decided"):
        images(Engine.AUTO)


def test_a_copy_from_another_stage_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM base\nCOPY --from=lock /r /r\nCOPY pyproject.toml uv.lock /lock/\nCOPY --chmod=755 a b /app/\nCOPY c /c\n"
    )
    image = Image("one", Path("Dockerfile"), "")
    assert image.sources(tmp_path) == (Path("a"), Path("b"), Path("c"))


@pytest.mark.parametrize("image", on_request(), ids=lambda image: image.name)
def test_an_image_for_one_suite_is_nobody_elses_and_runs_as_nobody(image: Image) -> None:
    assert image not in images(Engine.MOUNTED)
    assert re.search(r"^USER 65532:65532$", dockerfile(image), re.MULTILINE)
    assert not image.sources(ROOT)
