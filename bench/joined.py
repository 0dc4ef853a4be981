"""Do ranks that joined move data as quickly as those of mpirun, and how long does joining take? Needs mpirun.

Jobs of both kinds take turns, and one of mpirun runs twice in each: how far its two jobs lie apart is the
noise that the joined ranks are held against.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles, slowest_s
from bench.report.jobs import ROOT, Start, found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist.measure.job import mpi_name
from tests.launch.plain import variables

RANKS, STARTED = 4, 8
MOVES = {
    "rows to columns, 32 MiB": ("f64[2048{x}, 2048]", "f64[2048, 2048{x}]"),
    "rows to columns, 64 KiB": ("f64[64{x}, 128]", "f64[64, 128{x}]"),
    "all-gather, 8 MiB": ("f64[1024{x}, 1024]", "f64[1024, 1024]"),
}
JOB = ("redist.cli", "join", "-m", "bench.report.job")
STARTUP = (
    "import time, redist; start = time.time(); comm = redist.join(); end = time.time(); "
    "print('JOINED', start, end, flush=True)"
)


def run(n: int = 5, repeat: int = 30) -> Tables:
    """Measure moves on 4 ranks of mpirun and on 4 that joined, and joining on 8.

    n: turns of jobs; repeat: moves of each kind in a job.
    """
    turns: dict[str, list[dict[str, Any]]] = {"mpirun": [], "joined": [], "again": []}
    for _ in range(n):
        for name, found in turns.items():
            start = joined(RANKS) if name == "joined" else on_ranks(RANKS)
            found.append(found_by(start, "bench.joined", repeat=repeat))
    about = turns["mpirun"][0]["mpi"]
    rows = [row(what, turns) for what in MOVES]
    machine = f"{RANKS} ranks, {about}, {os.cpu_count()} cores"
    title = f"Moves of joined ranks beside mpirun's, {machine}"
    note = (
        f"medians of {repeat} moves, and of {n} jobs of each kind in turn; joined, again: ratio to the "
        "job of mpirun in the same turn, with quartiles; again is a second job of mpirun: its ratio is noise"
    )
    took = sorted(joining_s(STARTED) for _ in range(n))
    low, middle, high = quartiles(took)
    line = (
        f"Joining took {middle:.2f} s ({low:.2f}-{high:.2f}) for {STARTED} processes, from when the last "
        f"called redist.join() until all were ranks; aim 0.5: {met(middle <= 0.5)}"
    )
    return (Table.of("moves", title, rows, note, line),)


def row(what: str, turns: dict[str, list[dict[str, Any]]]) -> Row:
    """Milliseconds under mpirun, and the ratios of the other jobs of each turn."""
    ms = {
        name: np.array([1e3 * one["times"][what] for one in found]) for name, found in turns.items()
    }
    shown: dict[str, Any] = {"move": what, "mpirun ms": float(np.median(ms["mpirun"]))}
    for name in ("joined", "again"):
        low, middle, high = quartiles((ms[name] / ms["mpirun"]).tolist())
        shown |= {name: middle, f"{name}: quartiles": f"{low:.2f}-{high:.2f}"}
    return shown


def joined(ranks: int) -> Start:
    """Start jobs in plain processes that join."""

    def start(words: list[str]) -> object:
        assert words[:2] == ["-m", JOB[-1]], words
        command = [sys.executable, "-m", *JOB, *words[2:]]
        started = [subprocess.Popen(command, cwd=ROOT, env=env) for env in variables(ranks)]
        return [one.wait() for one in started]

    return start


def joining_s(ranks: int) -> float:
    """Seconds from when the last process calls ``redist.join`` until all have their job."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", STARTUP], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
        )
        for env in variables(ranks)
    ]
    said = [one.communicate()[0].split() for one in started]
    if any(words[:1] != ["JOINED"] for words in said):
        raise WrongPlanError(f"cannot measure joining: {said}")
    return max(float(end) for _, _, end in said) - max(float(begin) for _, begin, _ in said)


def measure(repeat: int) -> dict[str, Any]:
    """Time moves whose results are compared first. **Collective over all ranks of the job.**"""
    comm = MPI.COMM_WORLD
    mesh = redist.Mesh(x=comm.size)
    times = {}
    for what, (source, target) in MOVES.items():
        own, want = (
            own_part(redist.ArrayType.parse(text, mesh), comm.rank) for text in (source, target)
        )
        out = np.empty_like(want)
        work = partial(redist.prepare(source, target, comm, mesh=mesh), own, out=out)
        work()
        if not comm.allreduce(int(np.array_equal(out, want)), MPI.MIN):
            raise WrongPlanError(f"cannot time {what}: the result is wrong")
        times[what] = float(np.median([slowest_s(comm, work) for _ in range(repeat)]))
    return {"mpi": mpi_name(), "times": times}


def own_part(kind: redist.ArrayType, rank: int) -> NDArray[np.float64]:
    """**Local.** What a rank has of an array that counts its elements."""
    box = redist.box_of(kind, rank)
    assert box is not None
    whole = np.arange(float(np.prod(kind.shape))).reshape(kind.shape)
    (low, high), (left, right) = box
    return np.ascontiguousarray(whole[low:high, left:right])
