"""jax.Arrays moved by plans, against the values themselves; gradients; errors; bytes and memory.

Needs JAX; a process of its own has 8 CPU devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from redist.launch.launcher import find_launcher
from redist.launch.outside import environment
from tests.programs.launch import alone, one_worker
from tests.tiers import sample

ROOT = Path(__file__).parents[2]
CHECKS = (
    "values",
    "inside_jit",
    "gradients",
    "bytes",
    "memory",
    "donated",
    "limits",
    "errors",
    "meshes",
)

pytestmark = pytest.mark.skipif(
    find_spec("jax") is None, reason="needs jax: make frameworks has an environment with it"
)


@pytest.mark.parametrize("check", CHECKS)
def test_jax(check: str) -> None:
    count = str(sample(24, of=300))
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.jax.moves", check, "--n", count],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@one_worker
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_memory_is_shared_with_global_arrays(n_ranks: int) -> None:
    command = find_launcher().command(n_ranks, ["-m", "tests.programs.jax.shared"])
    with alone():
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
