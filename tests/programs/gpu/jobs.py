"""Whether there is a GPU to test on, and jobs that need one."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi, run

ASK = "import cupy; assert cupy.cuda.runtime.getDeviceCount()"


@lru_cache(maxsize=1)
def missing() -> str:
    """Why nothing can be run on a GPU; empty if it can. Another process asks: this one stays clean."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=120)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"needs a GPU ({lines[-1] if lines else 'none found'})"


needs_gpu = pytest.mark.skipif(bool(missing()), reason=missing() or "has one")
needs_linux = pytest.mark.skipif(not Path("/dev/shm").exists(), reason="needs Linux")
needs_mpi = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


def must_succeed(module: str, ranks: int, *args: str, limit_s: float = 300.0) -> str:
    """Run ``tests.programs.gpu.<module>``, or a module ``<folder>.<module>``, under mpirun; what it printed.

    Programs end after as long by themselves: kernels are compiled on the way.
    """
    where = module if "." in module else f"gpu.{module}"
    variables = {"REDIST_TEST_LIMIT_S": str(limit_s)}
    done = run(f"tests.programs.{where}", ranks, *args, variables=variables, limit_s=limit_s + 10)
    assert done.status == 0, done.output
    return done.output
