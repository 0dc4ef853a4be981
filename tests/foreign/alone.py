"""Start a program that starts ranks by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200


def must_pass_alone(name: str, size: int, variables: Mapping[str, str]) -> str:
    """What ``tests.programs.foreign.<name>`` printed, which must end well."""
    words = [sys.executable, "-m", f"tests.programs.foreign.{name}", str(size)]
    done = subprocess.run(
        words, cwd=ROOT, env=dict(variables), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0 and "WRONG" not in done.stdout, done.stdout + done.stderr
    return done.stdout
