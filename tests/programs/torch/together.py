"""Programs of ranks of ``torch.distributed``: they start, report, and end together."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist

from tests.fakes.nccl_hosts import host_of

LIMIT_S = float(os.environ.get("REDIST_TEST_LIMIT_S", "90"))
BACKEND = os.environ.get("REDIST_TEST_BACKEND", "gloo")
"""Or nccl, between ranks that share a GPU."""


def join() -> None:
    """**Collective.** Make the group of ranks that know by variables who they are and where they meet."""
    logging.disable(logging.WARNING)  # it warns of each fallback on each rank
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if "nccl" in BACKEND:
        os.environ.update(host_of(rank))
        torch.cuda.set_device(0)
    store = dist.FileStore(os.environ["STORE"], size)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size)


def main(program: Callable[[], int]) -> None:
    """Join the group, run a program, and end with its status; a rank that hangs says where."""
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    join()
    status = program()
    dist.barrier()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)  # gloo's threads may abort when a peer has gone first


def everywhere(wrong: str | None) -> list[str]:
    """**Collective.** What is wrong on any rank."""
    said: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(said, wrong)
    return [f"rank {rank}: {text}" for rank, text in enumerate(said) if text is not None]


def run_checks(checks: Mapping[str, Callable[[], None]], names: Iterable[str]) -> int:
    """**Collective.** Run checks one by one, each reported; 1 if one of them is wrong."""
    status = 0
    for name in names:
        wrong = None
        try:
            checks[name]()
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        status |= report(name, wrong)
    return status


def report(check: str, wrong: str | None) -> int:
    """**Collective.** Print whether a check went well; 1 if it did not."""
    found = everywhere(wrong)
    if dist.get_rank() == 0:
        print(f"WRONG {check}: {'; '.join(found)}" if found else f"well {check}", flush=True)
    return int(bool(found))
