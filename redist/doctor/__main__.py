"""Say what was detected: of one process, or of all ranks of a job and every pair of them.

``python -m redist.doctor`` is what ``redist doctor`` starts; under mpirun it prints the table
of pairs too, over several machines as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from redist.doctor.process import Fact, facts
from redist.doctor.report import fact_lines, likely_lines, pairing_lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print everything as soon as it is known; 1 if MPI cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m redist.doctor")
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--launcher", default="")
    args = parser.parse_args(argv)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        print("\n".join(fact_lines([*facts()])))
        return 1
    comm = MPI.COMM_WORLD
    found: list[Fact] = []
    if comm.rank == 0:
        found += facts()
        launcher = Fact("launcher", *args.launcher.partition(": ")[::2])
        at = [fact.name for fact in found].index("MPI") + 1
        found[at:at] = [launcher] if args.launcher else []
        print("\n".join(fact_lines(found)), flush=True)
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
