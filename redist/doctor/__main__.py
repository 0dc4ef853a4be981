"""Report what was detected: for one process, or for all ranks of a job and every pair of them.

``redist doctor`` starts ``python -m redist.doctor``; under mpirun it also prints the table of pairs, over
several machines as well.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from redist.doctor.diagnosis import fact_lines, likely_lines, pairing_lines
from redist.doctor.process import NO, READS, Fact, facts, mpi_library
from redist.launch.launcher import MPICH, OPEN_MPI

# Tell whether the mpirun that started this process belongs to the MPI library that it uses.


KINDS = (MPICH, OPEN_MPI)

NUMBERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Where launchers tell a process its rank and how many there are: Open MPI, MPICH, Slurm."""


def started_as() -> tuple[int, int]:
    """**Local.** The rank and the number of ranks that the launcher meant; (0, 1) without a launcher."""
    for rank, size in NUMBERS:
        numbers = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(text.isdecimal() for text in numbers):
            return int(numbers[0]), int(numbers[1])
    return 0, 1


def launcher_fact(launcher: str, n_alone: int) -> list[Fact]:
    """**Local.** What to report about ``KIND: PATH``, the launcher; nothing if there is none.

    ``n_alone`` is the number of processes it started that do not know of each other.
    """
    from mpi4py import MPI

    kind, _, path = launcher.partition(": ")
    vendor, _ = MPI.get_vendor()
    path = path or "the launcher"
    if n_alone > 1:
        problem = f"{path} started {n_alone} processes, but each of them is rank 0 of 1"
    elif kind in KINDS and (kind == OPEN_MPI) != (vendor == OPEN_MPI):
        problem = f"{path} is {kind}'s, so ranks would not start, or each be rank 0 of 1"
    else:
        return [Fact("launcher", kind, path)] if launcher else []
    library = mpi_library()
    own = Path(library).parent.parent / "bin" / "mpirun"
    right = str(own) if library and own.exists() else f"an mpirun of {vendor}"
    return [Fact("launcher", NO, f"{problem}: mpi4py uses {vendor} ({library}); use {right}")]


def main(argv: Sequence[str] | None = None) -> int:
    """Print everything as soon as it is known; 1 if MPI cannot be used, or not by these ranks."""
    parser = argparse.ArgumentParser(prog="python -m redist.doctor")
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--launcher", default="")
    args = parser.parse_args(argv)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        if started_as()[0] == 0:
            print("\n".join(fact_lines([*facts()])))
        return 1
    comm = MPI.COMM_WORLD
    rank, size = started_as()
    alone = comm.size == 1 and size > 1
    found: list[Fact] = []
    if comm.rank == 0 and not (alone and rank):
        # Of process reads, ranks say what came of trying.
        found += (fact for fact in facts() if fact.name != READS or max(comm.size, size) == 1)
        at = [fact.name for fact in found].index("MPI") + 1
        found[at:at] = launcher_fact(args.launcher, size if alone else 1)
        print("\n".join(fact_lines(found)), flush=True)
    if alone:
        return 1
    from redist.doctor.among_ranks import likely, pair_ranks
    from redist.runtime.ranks.waiting import TIMEOUT_S

    if comm.size == 1:
        print("\n".join(["", *likely_lines(likely(found))]), flush=True)
        return 0
    done = pair_ranks(comm, args.node_size, TIMEOUT_S)
    if comm.rank == 0:
        print("\n".join(["", *pairing_lines(done)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
