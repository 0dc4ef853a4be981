"""How quick is redist beside JAX on the same random redistributions? Needs jax and mpirun."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from bench.problems.installed import version
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, most, quantile
from bench.report.job import is_first
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist.measure.cases import Case
from redist.text.progress import track
from tests.problems.problems import Problem, problems

RANKS = 8
ARRAY_BYTES = 64 * 2**20
REPEATS = 5
RIVALS = ("jax-jit", "jax-put")
OURS = ("redist", "redist-any")
ROUGH = 16
"""Dims are doubled until the array is this many times too small; one more factor does the rest."""


def run(n: int = 100, seed: int = 0) -> Tables:
    """Measure up to 100 random problems on 8 ranks and 8 CPU devices, contenders in turn."""
    asked = {"n": min(n, 100), "seed": seed, "n_bytes": ARRAY_BYTES, "repeat": REPEATS}
    return table(found_by(on_ranks(RANKS, one_thread=False), "bench.xla.race", **asked))


def measure(n: int, seed: int, n_bytes: int, repeat: int) -> Any:
    """Let all contenders take turns on every problem. **Collective over all ranks of the job.**"""
    from mpi4py import MPI

    from bench.peers import CONTENDERS
    from redist.measure.compare import compare
    from redist.measure.contenders.registry import choose_contenders
    from redist.measure.job import mpi_name
    from redist.measure.results.results import Results
    from redist.measure.timing import Stopwatch

    comm = MPI.COMM_WORLD
    ways = choose_contenders(OURS, {key: CONTENDERS[key] for key in RIVALS})
    watch = Stopwatch.on(comm)
    asked: Iterable[Case] = cases(n, seed, n_bytes, comm.size)
    outcomes = tuple(
        compare(case, n_bytes, ways, watch, repeat, with_memory=False)
        for case in (track(asked, n, "bench jax") if is_first() else asked)
    )
    return json.loads(Results(mpi_name(), comm.size, repeat, outcomes).to_json())


def cases(n: int, seed: int, total_bytes: int, n_ranks: int) -> Iterator[Case]:
    """Random problems that JAX can express, as arrays of about so many bytes.

    >>> [case.source.global_elems * case.source.dtype.itemsize for case in cases(2, 0, 2**20, 8)]
    [1048576, 1048576]
    """
    from bench.peers.jax import JaxJit

    found = 0
    for problem in problems(4 * n + 20, seed, kinds=("even",), devices=(n_ranks,)):
        case = scale(problem, total_bytes, f"random {found + 1}")
        if found < n and JaxJit.cannot(case) is None:
            found += 1
            yield case


def scale(problem: Problem, total_bytes: int, name: str) -> Case:
    """Make the array of a problem larger and keep its cuts; dims that were even stay even."""
    shape, item = list(problem.source.shape), problem.source.dtype.itemsize
    while math.prod(shape) * item * ROUGH < total_bytes:
        shape[shape.index(min(shape))] *= 2
    shape[shape.index(min(shape))] *= max(1, round(total_bytes / (math.prod(shape) * item)))
    source, target = (replace(t, shape=tuple(shape)) for t in (problem.source, problem.target))
    return Case(name, source, target)


def table(data: dict[str, Any]) -> Tables:
    """Ratios of times from what the job found; a wrong result is refused."""
    for case in data["cases"]:
        for entry in case["entries"]:
            if entry["is_wrong"]:
                raise WrongPlanError(
                    f"cannot compare {case['text']}: {entry['key']}: {entry['note']}"
                )
    rows: list[Row] = []
    for rival, own in ((rival, own) for rival in RIVALS for own in OURS):
        times = [
            {e["key"]: e["times"]["median_s"] for e in case["entries"] if e["times"]}
            for case in data["cases"]
        ]
        ratios = [one[rival] / one[own] for one in times if rival in one and own in one]
        spread = {name: quantile(ratios, share) for name, share in QUARTILES.items()}
        about: Row = {"JAX by": rival, "redist by": own, "cases": len(ratios)}
        ends: Row = {"least": min(ratios, default=None), "most": most(ratios)}
        wins = sum(ratio > 1 for ratio in ratios)
        rows.append({**about, "geomean": geomean(ratios), **spread, **ends, "redist wins": wins})
    title = (
        f"Time of JAX {version('jax')} ({data['ranks']} CPU devices) over time of redist "
        f"({data['ranks']} ranks, {data['mpi']}), {data['machine']['cores']} cores"
    )
    notes = (
        f"random even problems of about {ARRAY_BYTES // 2**20} MiB, median of {data['repeats']}, "
        "contenders in turn, results checked",
        "above 1: redist is quicker; low and high are quartiles; "
        "redist on its own buffers, redist-any on any NumPy arrays",
    )
    return (Table.of("random", title, rows, *notes, keys=2),)


QUARTILES = {"low": 0.25, "median": 0.5, "high": 0.75}
