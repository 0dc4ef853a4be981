"""Several programs in one job: starting ranks takes longer than most programs do.

As in ``mpirun -n 3 python -m tests.programs.several pgas.algebra --n 6 + pgas.sorting --n 40``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import groupby

from mpi4py import MPI

from tests.programs.together import freeze, main, report, watch

BETWEEN = "+"


def program() -> int:
    """0 if every program says so; each begins and ends with a line in the report."""
    worst = 0
    runs = [list(run) for is_sign, run in groupby(sys.argv[1:], BETWEEN.__eq__) if not is_sign]
    for name, *args in runs:
        sys.argv = [name, *args]
        if MPI.COMM_WORLD.rank == 0:
            report(begins=[name, *args])
        watch()
        module = import_module(f"tests.programs.{name}")
        freeze()
        status = MPI.COMM_WORLD.allreduce(module.program(), op=MPI.MAX)
        if MPI.COMM_WORLD.rank == 0:
            report(ends=status)
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    main(program)
