"""Say what was detected: of one process, or of all ranks of a job and every pair of them.

``python -m redist.doctor.report`` is what ``redist doctor`` starts; under mpirun it prints the table
of pairs too, over several machines as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from redist.doctor.process import Fact, facts

TIMEOUT_S = 300.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print everything; 1 if MPI cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m redist.doctor.report")
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
    from redist.doctor.pairs import likely, pairing

    if comm.size == 1:
        ways = [("between ranks", "arrays in memory", "arrays of GPUs"), *likely(found)]
        print("\n" + "\n".join(table(ways)), flush=True)
    else:
        done = pairing(comm, args.node_size, TIMEOUT_S)
        if comm.rank == 0:
            rows = [("rank", "machine", "GPU")]
            rows += [(str(k), *where) for k, where in enumerate(done.ranks)]
            print("\n" + "\n".join(table(rows)))
            ways = [("between ranks", "arrays in memory", "arrays of GPUs")]
            ways += [(way.shown, way.in_memory, way.on_gpus or "-") for way in done.ways]
            print("\n" + "\n".join(table(ways)))
            print("\n" + "\n".join(table([("found among the ranks", ""), *done.why])), flush=True)
    return 0


def fact_lines(found: Sequence[Fact]) -> Iterator[str]:
    """One line for each fact, in columns.

    >>> print(*fact_lines([Fact("CuPy", "not installed", "pip"), Fact("GPUs", "1")]), sep="\\n")
    CuPy   not installed   pip
    GPUs   1
    """
    return table([(fact.name, fact.found, _plain(fact.why)) for fact in found])


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as lines with aligned columns."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "   ".join(cells).rstrip()


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
