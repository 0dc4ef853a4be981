"""Random problems run by MPI ranks and compared with the simulator, bit for bit.

As in ``mpirun -n 6 python -m tests.programs.mpi.fuzz --n 500 --seed 0``.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

from mpi4py import MPI

from tests.programs.mpi.cases import problems_for, segment_problems
from tests.programs.mpi.trial import WAYS, Case, Trial
from tests.programs.together import all_well, main

TIMEOUT_S = 60.0


CHECKS = WAYS


def cases_for(size: int, seed: int, segments: bool = False) -> Iterator[Case]:
    """Cases without end: every way in turn, now and then several problems at once."""
    stream = (segment_problems if segments else problems_for)(size, seed)
    rng = Random(seed)
    for number in itertools.count():
        way = WAYS[number % len(WAYS)]
        if number % 4 == 3:
            names = [f"a{k}" for k in range(rng.randint(2, 6))]
            yield Case({name: next(stream) for name in names}, way, number)
        else:
            yield Case({"": next(stream)}, way, number)


def run_cases(
    comm: MPI.Comm, n: int, seed: int, options: dict[str, Any], segments: bool = False
) -> int:
    """Run ``n`` cases; how many went wrong."""
    wrong = 0
    for case in itertools.islice(cases_for(comm.size, seed, segments), n):
        wrong += not all_well(comm, case.way, Trial(case, comm, options).wrong(), str(case))
    return wrong


def arguments(n: int, timeout_s: float) -> tuple[argparse.Namespace, dict[str, Any]]:
    """What the command line asks for, ``n`` cases if it says nothing, and a transfer's options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=n)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    parser.add_argument("--segments", action="store_true", help="dims have segments")
    parser.add_argument("--halves", action="store_true", help="two communicators (in memory only)")
    args = parser.parse_args()
    chosen = {"transport": args.transport, "node_size": args.node_size, "timeout_s": timeout_s}
    return args, chosen


def program() -> int:
    """0 if all ranks agree with the simulator on every problem."""
    args, options = arguments(100, TIMEOUT_S)
    comm = MPI.COMM_WORLD
    seed: int = args.seed
    part: MPI.Comm = comm
    if args.halves:  # two communicators, each with problems of its own, at the same time
        part = comm.Split(comm.rank % 2)
        seed += comm.rank % 2
    wrong = comm.allreduce(run_cases(part, args.n, seed, options, args.segments), op=MPI.MAX)
    if args.halves:
        wrong += run_cases(comm, 2, seed - comm.rank % 2, options)
        part.Free()
    if comm.rank == 0:
        print(f"{args.n - wrong} of {args.n} cases agree ({comm.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
