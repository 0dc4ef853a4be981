"""Wrong requests, failures, late ranks, killed ranks and Ctrl-C: errors for all, and no hang."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi, job, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")

TRANSPORTS = [["--transport", "auto"], ["--transport", "mpi"], ["--node-size", "2"]]
SOON_S = 20.0


def transports(*which: int) -> pytest.MarkDecorator:
    chosen = [TRANSPORTS[k] for k in which]
    return pytest.mark.parametrize("args", chosen, ids=[" ".join(args) for args in chosen])


@transports(0, 1)
def test_wrong_requests_are_one_error_on_every_rank(args: list[str]) -> None:
    done = run("faults", 4, *args)
    assert done.status == 0, done.output
    assert re.search(r"^(\d+) of \1 faults are handled$", done.output, re.MULTILINE)


@transports(0, 1, 2)
def test_an_exception_on_one_rank_reaches_the_others(args: list[str]) -> None:
    done = run("failures", 4, "raise", *args)
    assert done.status == 0, done.output
    assert re.search(r"^(\d+) of \1 failures reach everyone$", done.output, re.MULTILINE)


@transports(0, 1)
def test_nobody_waits_longer_than_the_time_limit(args: list[str]) -> None:
    done = run("failures", 4, "late", *args)
    assert done.status == 0, done.output


@transports(0, 1)
def test_a_killed_rank_ends_the_job_with_a_message(args: list[str]) -> None:
    with job("failures", 4, "kill", *args) as started:
        started.until(lambda said: said.count("moving") == 4, 60)
        start = time.monotonic()
        done = started.end(SOON_S)
    for name in re.findall(r"/dev/shm/\S+", done.output):  # a killed MPI library leaves its own
        Path(name).unlink(missing_ok=True)
    assert time.monotonic() - start < SOON_S, done.output
    assert done.status != 0 and not done.left
    assert re.search(r"(?i)killed|signal 9|exit code: 9|died", done.output), done.output


@transports(0, 1)
def test_interrupting_leaves_nothing_behind(args: list[str]) -> None:
    with job("failures", 4, "interrupt", *args) as started:
        started.until(lambda said: said.count("moving") == 4, 60)
        os.killpg(started.process.pid, signal.SIGINT)
        done = started.end(SOON_S)
    assert done.seconds < 60 + SOON_S and done.status != 0, done.output
    assert done.output.count("was interrupted") == 4, done.output
    assert not done.left
    named = re.findall(r"/dev/shm/\S+", done.output)
    assert not [name for name in named if Path(name).exists()]
    assert not [name for name in named if "redist" in name]
