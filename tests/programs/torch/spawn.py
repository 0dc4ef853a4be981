"""Start a module on several ranks of ``torch.distributed``: plain processes, a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: the exit status of every rank, and what they printed."""

    statuses: tuple[int, ...]
    output: str


def run(
    program: list[str],
    ranks: int,
    limit_s: float,
    variables: Mapping[str, str] | None = None,
    shown: bool = False,
) -> Ended:
    """Run Python with these words on so many ranks to its end, or to the limit.

    What they print is kept, or ``shown`` as it comes; then the first rank that fails ends all others, too.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        processes = []
        for rank in range(ranks):
            env = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "STORE": f"{folder}/store",
                "OMP_NUM_THREADS": "1",
                "PYTHONWARNINGS": "ignore",
                "PYTHONPATH": str(ROOT),
                **(variables or {}),
            }
            command = [sys.executable, *program]
            out = None if shown else said
            processes.append(
                subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)
            )
        end = time.monotonic() + limit_s
        while shown and any(process.poll() is None for process in processes):
            if time.monotonic() > end or any(process.poll() for process in processes):
                end = 0.0
                break
            time.sleep(POLL_S)
        for process in processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        size = os.fstat(said.fileno()).st_size
        output = os.pread(said.fileno(), size, 0).decode(errors="replace")
        return Ended(tuple(process.returncode for process in processes), output)
