"""Start a program of this folder on several ranks of ``torch.distributed``: plain processes, a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 100.0
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch: make frameworks installs it and runs this"
)
one_worker = pytest.mark.xdist_group("torch")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: the exit status of every rank, and what they printed."""

    statuses: tuple[int, ...]
    output: str


def run(name: str, ranks: int, *args: str, limit_s: float = LIMIT_S) -> Ended:
    """Run ``tests.programs.torch.<name>`` on so many ranks to its end, or to the limit."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        processes = []
        for rank in range(ranks):
            env = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "STORE": f"file://{folder}/store",
                "OMP_NUM_THREADS": "1",
                "PYTHONWARNINGS": "ignore",
            }
            command = [sys.executable, "-m", f"tests.programs.torch.{name}", *args]
            processes.append(
                subprocess.Popen(command, cwd=ROOT, env=env, stdout=said, stderr=subprocess.STDOUT)
            )
        end = time.monotonic() + limit_s
        for process in processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        size = os.fstat(said.fileno()).st_size
        output = os.pread(said.fileno(), size, 0).decode(errors="replace")
        return Ended(tuple(process.returncode for process in processes), output)


def must_pass(name: str, ranks: int, *args: str, limit_s: float = LIMIT_S) -> str:
    """What a program printed, whose ranks all ended well."""
    done = run(name, ranks, *args, limit_s=limit_s)
    assert set(done.statuses) == {0}, f"{done.statuses}\n{done.output}"
    return done.output
