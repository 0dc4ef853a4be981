"""How the check programs of global arrays run: random rounds, then what is checked once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mpi4py import MPI

from tests.programs.pgas.drawing import Draw
from tests.programs.together import all_well

Check = Callable[[Draw], str | None]


def names_of(checks: Sequence[Callable[..., object]]) -> tuple[str, ...]:
    """Names of check functions, each once.

    >>> names_of([max, min, max])
    ('max', 'min')
    """
    return tuple(dict.fromkeys(check.__name__ for check in checks))


def run_checks(often: Sequence[Check], once: Sequence[Check] = (), n: int = 40) -> int:
    """0 if every check says None on all ranks; ``--n`` and ``--seed`` come from the command line.

    ``--beside`` is a file of what another library says, for the checks that compare with it.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=n)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    draw = Draw(comm, args.seed, args.beside)
    bad = 0
    for number in range(args.n):
        for check in often:
            bad += not all_well(comm, check.__name__, check(draw), str(number))
    for check in once:
        bad += not all_well(comm, check.__name__, check(draw))
    if comm.rank == 0:
        total = args.n * len(often) + len(once)
        print(f"{total - bad} agree, {bad} do not ({comm.size} ranks)", flush=True)
    return 1 if bad else 0
