"""Programs of ranks that succeed or fail together, and never last for ever."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable

from mpi4py import MPI

LIMIT_S = 120.0


def main(program: Callable[[], int]) -> None:
    """Run a program to its exit status; a rank that fails ends the job, one that hangs says where."""
    limit_s = float(os.environ.get("REDIST_TEST_LIMIT_S", LIMIT_S))
    faulthandler.dump_traceback_later(limit_s, exit=True)
    try:
        status = program()
    except SystemExit:
        raise
    except BaseException:
        print(f"rank {MPI.COMM_WORLD.rank} failed", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
        raise
    faulthandler.cancel_dump_traceback_later()
    sys.exit(MPI.COMM_WORLD.allreduce(status, op=MPI.MAX))


def meet(comm: MPI.Comm) -> None:
    """**Collective.** Wait without burning the processor that the others need."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(2e-4)


def all_well(comm: MPI.Comm, what: str, wrong: str | None) -> bool:
    """**Collective.** Whether nothing is wrong on any rank; rank 0 prints what is."""
    meet(comm)
    said = comm.allgather(wrong)
    if comm.rank == 0:
        for rank, text in enumerate(said):
            if text is not None:
                print(f"WRONG {what}: rank {rank}: {text}", flush=True)
                break
    return all(text is None for text in said)
