"""The first step of all on a machine that has nothing but Debian's Python: uv, from PyPI, into the state's folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Stands in for python3: what it is asked to make, a folder with a pip, notes what that pip is asked for.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > "%s/asked"; : > "%s/bin/uv"\\n' "$3" "$3" > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""


def test_a_machine_without_uv_gets_it_in_an_environment_of_its_own(tmp_path: Path) -> None:
    python, folder = tmp_path / "python3", tmp_path / "state" / "uv"
    python.write_text(PYTHON)
    python.chmod(0o755)
    path = os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if not (Path(one) / "uv").exists())
    done = subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", str(folder / "bin" / "uv")],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "SUNFLEET_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "uv==" in (folder / "asked").read_text()
