"""Which images there are and what each is built from."""

import re
from dataclasses import dataclass
from pathlib import Path

from sunfleet_cluster.images.settings import Engine

REPOSITORY = "localhost/sunfleet"
# The lock file reaches an image as its exported requirements: other rooms' packages must not change its tag.
_LOCK_FILES = {"pyproject.toml", "uv.lock"}
_COPY = re.compile(r"^COPY (?!--from)(?P<words>[^\n\\]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """One image.

    `extra`: the extra of pyproject.toml whose locked packages it holds, empty for none; `args`: build arguments.
    """

    name: str
    dockerfile: Path
    extra: str
    args: tuple[tuple[str, str], ...] = ()

    def sources(self, root: Path) -> tuple[Path, ...]:
        """What the Dockerfile copies from the source tree, relative to `root`; read from the Dockerfile itself."""
        copied = _COPY.findall((root / self.dockerfile).read_text())
        paths = [word for words in copied for word in words.split()[:-1] if not word.startswith("--")]
        return tuple(Path(path) for path in paths if path not in _LOCK_FILES)

    def ref(self, tag: str) -> str:
        """The image's full name with `tag`."""
        return f"{REPOSITORY}/{self.name}:{tag}"


def images(engine: Engine) -> tuple[Image, ...]:
    """Every image of the fleet; the worker contains `engine` (not AUTO)."""
    if engine is Engine.AUTO:
        raise ValueError("the worker's engine must be decided before its image is described")
    return (
        Image("operator", Path("operator/Dockerfile"), "operator"),
        Image("router", Path("router/Dockerfile"), "router"),
        Image("weights", Path("worker_images/weights/Dockerfile"), "weights"),
        Image(
            "worker",
            Path("worker_images/vllm/Dockerfile"),
            "" if engine is Engine.MOUNTED else f"engine-{engine}",
            (("ENGINE", str(engine)),),
        ),
        Image(
            "tuner",
            Path("worker_images/tuner/Dockerfile"),
            "" if engine is Engine.MOUNTED else "tuner",
            (("ENGINE", "mounted" if engine is Engine.MOUNTED else "bundled"),),
        ),
        Image("fake-engine", Path("tests/support/Dockerfile"), "router"),
    )


def on_request() -> tuple[Image, ...]:
    """Images that one suite wants and no installation: built only when they are named."""
    return (Image("prometheus", Path("e2e/autoscaling/Dockerfile"), ""),)
