"""What the examples print under mpirun, beside what they print in ranks that were started another way."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

from redist.launch.launcher import environment, find_launcher
from tests.launch.plain import ROOT
from tests.programs.launch import alone
from tests.test_examples import SMALL

MODULE = "tests.programs.joined.examples"
JOIN = ("redist.cli", "join", "--timeout", "300", "-m", MODULE)
COUNTS = (1, 2, 4)
LIMIT_S = 600.0
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "REDIST_JOIN_TOKEN": "of tests"}


def results_in(output: str) -> list[dict[str, str]]:
    """What every rank printed of every example."""
    _, found, rest = output.partition("PRINTED ")
    assert found, output[-4000:]
    told: list[dict[str, str]] = json.loads(rest.partition("\n")[0])
    return told


def results_of(command: list[str], env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Run a command that runs the examples."""
    with alone():
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment(), **THREADS, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    assert done.returncode == 0, done.stdout[-4000:]
    return results_in(done.stdout)


@cache
def under_mpirun(size: int) -> list[dict[str, str]]:
    """The same under mpirun."""
    return results_of(find_launcher().command(size, ["-m", MODULE]))


def must_equal_mpirun(
    found: list[dict[str, str]], size: int, want: list[dict[str, str]] | None = None
) -> None:
    """Every rank prints of every example what it prints under mpirun."""
    want = want or under_mpirun(size)
    assert len(found) == len(want) == size
    assert {*found[0]} == {*SMALL} and all(found[0].values())
    apart = [
        (rank, name, text, want[rank][name])
        for rank, own in enumerate(found)
        for name, text in own.items()
        if text != want[rank][name]
    ]
    assert not apart, apart


def python(*words: str) -> list[str]:
    """A command of this Python."""
    return [sys.executable, *words]
