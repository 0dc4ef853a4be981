"""A process group across jobs: of processes that train and others that serve, each job a world of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def open_store(host: str, port: int, *, is_first: bool, timeout_s: float) -> Any:
    """**Local.** The place where processes of several jobs meet; the first hosts it for the others.

    With port 0 the first process takes a free port: ``store.port``.
    """
    wait = timedelta(seconds=timeout_s)
    return dist.TCPStore(host, port, is_master=is_first, timeout=wait, wait_for_workers=False)


def joint_group(
    store: Any, rank: int, size: int, backend: str | None = None, *, timeout_s: float
) -> Any:
    """**Collective over** all processes that join. A process group outside every world, with ranks from 0.

    ``torch.distributed`` makes groups only of the ranks of one world, so this uses two of its names that are
    not public. Without a ``backend``, it uses gloo, and NCCL for tensors on GPUs.
    """
    if backend is None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    name = f"redist {store.host}:{store.port}"
    wait = timedelta(seconds=timeout_s)
    group, _ = c10d._new_process_group_helper(
        size, rank, [], backend, store, group_name=name, timeout=wait
    )
    c10d._world.pg_group_ranks[group] = {k: k for k in range(size)}
    return group
