"""Compile the pump: ``python build.py FOLDER`` writes ``_pump.*.so`` for this interpreter into FOLDER.

Exit status 0 too where there is no compiler or no Python.h: the router then uses asyncio's sockets, and says so.
``--required``: exit with 1 instead.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("buffer.c", "relay.c", "loop.c", "outline.c", "message.c", "ids.c", "module.c")
FLAGS = ("-std=gnu11", "-O3", "-g0", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fstack-protector-strong",
         "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra",
         "-Wno-missing-field-initializers", "-Wno-cast-function-type")  # fmt: skip


def command(target: Path) -> list[str]:
    """The compiler's command line."""
    include = f"-I{sysconfig.get_path('include')}"
    return ["cc", *FLAGS, include, *(str(HERE / name) for name in SOURCES), "-o", str(target)]


def build(folder: Path) -> str:
    """What went wrong; empty when the module is there."""
    target = folder / f"_pump{sysconfig.get_config_var('EXT_SUFFIX')}"
    begun = target.with_suffix(".new")
    try:
        done = subprocess.run(command(begun), capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no compiler: {error}"
    if done.returncode:
        return done.stderr
    begun.replace(target)  # at once: a running router has the old file open
    return ""


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--required"]
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    trouble = build(Path(arguments[0]))
    if trouble:
        sys.stderr.write(
            f"{trouble.strip()}\nthe router's native pump was not built (apt-get install gcc python3-dev)\n"
        )
    return 1 if trouble and "--required" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
