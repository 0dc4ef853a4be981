"""Programs of ranks that succeed or fail together, report every check, and never last for ever."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from mpi4py import MPI

from tests.tiers import THOROUGH

LIMIT_S = 360.0 if THOROUGH else 120.0
REPORT = "REDIST_TEST_REPORT"
"""The file, if any, to which rank 0 adds a line of JSON for every check."""


def watch() -> None:
    """Let a program that lasts too long end from here on, saying where it hangs."""
    limit_s = float(os.environ.get("REDIST_TEST_LIMIT_S", LIMIT_S))
    faulthandler.dump_traceback_later(limit_s, exit=True)


def freeze() -> None:
    """Let modules out of the collector's sight: many checks collect garbage, and walk what is left."""
    gc.collect()
    gc.freeze()


def main(program: Callable[[], int]) -> None:
    """Run a program to its exit status; a rank that fails ends the job, one that hangs says where."""
    watch()
    freeze()
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


def all_well(comm: MPI.Comm, check: str, wrong: str | None, case: str = "") -> bool:
    """**Collective.** Whether nothing is wrong on any rank; rank 0 prints what is, and reports it.

    ``check`` is a name that the program lists in its ``CHECKS``; ``case`` says which of many.
    """
    meet(comm)
    said = comm.allgather(wrong)
    first = next(((rank, text) for rank, text in enumerate(said) if text is not None), (None, None))
    if comm.rank == 0:
        rank, text = first
        report(check=check, case=case, rank=rank, text=text)
        if text is not None:
            print(f"WRONG {check} {case}: rank {rank}: {text}", flush=True)
    return all(text is None for text in said)


def report(**line: Any) -> None:
    """**Local.** Add a line to the file of reports, if the job has one."""
    path = os.environ.get(REPORT)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def run_named(checks: Mapping[str, Callable[[], str | None]]) -> int:
    """**Collective.** 0 if every check says None on all ranks."""
    said = [all_well(MPI.COMM_WORLD, name, check()) for name, check in checks.items()]
    return int(not all(said))
