"""Killed ranks and Ctrl-C: errors for all, no hang, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi, job, one_worker

pytestmark = [one_worker, pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")]

SOON_S = 20.0
AGAIN = pytest.mark.slow("once more, by the other transport")


@pytest.mark.parametrize("transport", ["auto", pytest.param("mpi", marks=AGAIN)])
def test_a_killed_rank_ends_the_job_with_a_message(transport: str) -> None:
    with job("failures", 4, "kill", "--transport", transport) as started:
        started.until(lambda said: said.count("moving") == 4, 60)
        start = time.monotonic()
        done = started.end(SOON_S)
    for name in re.findall(r"/dev/shm/\S+", done.output):  # a killed MPI library leaves its own
        Path(name).unlink(missing_ok=True)
    assert time.monotonic() - start < SOON_S, done.output
    assert done.status != 0 and not done.left
    assert re.search(r"(?i)killed|signal 9|exit code: 9|died", done.output), done.output


@pytest.mark.parametrize("transport", [pytest.param("auto", marks=AGAIN), "mpi"])
def test_interrupting_leaves_nothing_behind(transport: str) -> None:
    with job("failures", 4, "interrupt", "--transport", transport) as started:
        started.until(lambda said: said.count("moving") == 4, 60)
        os.killpg(started.process.pid, signal.SIGINT)
        done = started.end(SOON_S)
    assert done.seconds < 60 + SOON_S and done.status != 0, done.output
    assert done.output.count("was interrupted") == 4, done.output
    assert not done.left
    named = re.findall(r"/dev/shm/\S+", done.output)
    assert not [name for name in named if Path(name).exists()]
    assert not [name for name in named if "redist" in name]
