"""Random redistributions, redist and JAX in turn, inside an MPI job: ``python -m bench.races.jax_job``.

Started by ``python -m bench jax``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mpi4py import MPI

from bench.peers import CONTENDERS as PEERS
from redist.layout.array_type import ArrayType
from redist.measure.cases import Case
from redist.measure.compare import compare
from redist.measure.contenders.registry import choose_contenders
from redist.measure.job import mpi_name
from redist.measure.results.results import Results
from redist.measure.timing import Stopwatch
from redist.text.progress import track
from tests.problems.problems import Problem, problems

ROUGH = 16
"""Dims are doubled until the array is this many times too small; one more factor does the rest."""


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("n", "seed", "bytes", "repeat"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    ways = choose_contenders(
        ("redist", "redist-any"), {key: PEERS[key] for key in ("jax-jit", "jax-put")}
    )
    watch = Stopwatch.on(comm)
    outcomes = []
    asked: Iterable[Case] = cases(args.n, args.seed, args.bytes, comm.size)
    for case in track(asked, args.n, "bench jax") if comm.rank == 0 else asked:
        outcomes.append(compare(case, args.bytes, ways, watch, args.repeat, with_memory=False))
    results = Results(mpi_name(), comm.size, args.repeat, tuple(outcomes))
    if comm.rank == 0:
        args.json.write_text(results.to_json(), encoding="utf-8")
    return 0 if results.is_right else 1


def cases(n: int, seed: int, total_bytes: int, n_ranks: int) -> Iterator[Case]:
    """Random problems that JAX can express, as arrays of about so many bytes.

    >>> [case.source.global_elems * case.source.dtype.itemsize for case in cases(2, 0, 2**20, 8)]
    [1048576, 1048576]
    """
    found = 0
    for problem in problems(4 * n + 20, seed, kinds=("even",), devices=(n_ranks,)):
        case = scale(problem, total_bytes, f"random {found + 1}")
        if found < n and PEERS["jax-jit"][0].cannot(case) is None:
            found += 1
            yield case


def scale(problem: Problem, total_bytes: int, name: str) -> Case:
    """Make the array of a problem larger and keep its cuts; dims that were even stay even."""
    shape = list(problem.source.shape)
    item = problem.source.dtype.itemsize

    def n_bytes() -> int:
        out = item
        for n in shape:
            out *= n
        return out

    while n_bytes() * ROUGH < total_bytes:
        shape[shape.index(min(shape))] *= 2
    factor = max(1, round(total_bytes / n_bytes()))
    shape[shape.index(min(shape))] *= factor
    ends = [
        ArrayType(t.mesh, t.dtype, tuple(shape), t.dims, t.pending_op, t.pending_axes)
        for t in (problem.source, problem.target)
    ]
    return Case(name, ends[0], ends[1])


if __name__ == "__main__":
    sys.exit(main())
