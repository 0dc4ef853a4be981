"""Say what was detected: of one process, or of all ranks of a job and every pair of them.

``python -m redist.doctor`` is what ``redist doctor`` starts; under mpirun it prints the table
of pairs too, over several machines as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from redist.doctor.process import READS, Fact, facts
from redist.doctor.report import fact_lines, likely_lines, pairing_lines
from redist.doctor.started import launcher_fact, started_as


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
    from redist.doctor.pairs import likely, pair_ranks
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
