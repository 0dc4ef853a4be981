"""Workloads on Heat's arrays over MPI: ``mpirun -n 4 python -m bench.layouts.with_heat``.

Heat has no Einstein sums: chains of matrices are products here, other sums say that they cannot be. It
does not tell what it receives, so that there are times only.
"""

from __future__ import annotations

import sys
import time
from functools import reduce
from typing import Any

import heat
import torch
from mpi4py import MPI

from bench.layouts.rival import RivalRow, ask, check, measured
from bench.layouts.workload import Workload, arrays_in, error_of
from bench.problems.installed import version
from bench.report.figures import quartiles


class HeatNames:
    """Heat under the names that workloads use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(heat, name)

    @staticmethod
    def mean(x: Any, axis: int, keepdims: bool) -> Any:
        """The mean along a dim, which is kept."""
        return heat.sum(x, axis=axis, keepdims=keepdims) / x.shape[axis]

    @staticmethod
    def einsum(notation: str, *operands: Any) -> Any:
        """A chain of products of matrices, from left to right."""
        terms = notation.partition("->")[0].split(",")
        if any(len(term) != 2 for term in terms):
            raise NotImplementedError("it has no Einstein sums")
        return reduce(heat.matmul, operands)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """The same values as another dtype."""
        return x.astype(dtype)

    @staticmethod
    def maximum(x: Any, least: float) -> Any:
        """No value below a number."""
        return heat.clip(x, least, float("inf"))


def main() -> int:
    """Check and time every workload; rank 0 writes. **Collective over all ranks of the job.**"""
    asked = ask(__doc__)
    torch.set_num_threads(1)
    library = f"Heat {version('heat')}"

    def measure(workload: Workload) -> RivalRow:
        return heat_row(workload, library, asked.repeat)

    rows = [measured(one, library, measure) for one in asked.chosen]
    if MPI.COMM_WORLD.rank == 0:
        asked.write(rows)
    return 0


def heat_row(workload: Workload, library: str, repeat: int) -> RivalRow:
    """Run a workload eagerly. **Collective.**"""
    comm = MPI.COMM_WORLD
    pairs = zip(workload.make(), workload.cuts, strict=True)
    arrays = [heat.array(array, split=cut) for array, cut in pairs]
    function = workload.of(HeatNames())
    results = [one.numpy() for one in arrays_in(function(*arrays))]
    check(workload, error_of(results, workload.reference()))
    seconds = []
    for _ in range(repeat + 1):
        comm.Barrier()
        start = time.perf_counter()
        function(*arrays)
        seconds.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    return RivalRow(workload.name, library, seconds=quartiles(seconds[1:]) if repeat else None)


if __name__ == "__main__":
    sys.exit(main())
