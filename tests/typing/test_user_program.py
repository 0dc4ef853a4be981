"""A user's type checker knows operators, functions and methods of global arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".mypy_cache" / "users"
"""Of its own, because these options are not the project's."""


def check(*files: Path, cache: Path) -> str:
    """What mypy says of files, at its strictest and without the project's settings."""
    options = ["--strict", "--follow-imports=silent", "--explicit-package-bases"]
    command = [sys.executable, "-m", "mypy", *options, "--config-file=", f"--cache-dir={cache}"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    return done.stdout + done.stderr


@pytest.mark.slow("make types checks the program with the project's settings")
def test_a_user_program_is_checked_as_it_should() -> None:
    examples = [
        path
        for path in sorted((ROOT / "examples").glob("*.py"))
        if "import torch" not in path.read_text(encoding="utf-8")  # its types are PyTorch's own
    ]
    said = check(ROOT / "tests" / "typing" / "user_program.py", *examples, cache=CACHE)
    assert said.startswith("Success"), said
