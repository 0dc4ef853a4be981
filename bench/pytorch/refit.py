"""Weights of a model handed from the mesh that trains it to the mesh that runs it, by four ways."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from bench.pytorch.measure import race
from examples.weight_refit import State, cut_of, refit, running_placements, trained

TARGETS = ([2, 3], [1, 2, 3])


def measure(layers: int, width: int, repeat: int) -> list[dict[str, Any]]:
    """**Collective.** Every way, for every mesh that runs the model; results compared first."""
    training = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    state = trained(training, layers, width)
    folder = [tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)]
    dist.broadcast_object_list(folder)
    rows = []
    for ranks in TARGETS:
        running = DeviceMesh("cpu", ranks, mesh_dim_names=("tp",))
        start = time.perf_counter()
        refit(state, running)
        first_s = time.perf_counter() - start
        works: dict[str, Callable[[], State]] = {
            "redist": partial(refit, state, running),
            "full tensors": partial(by_full_tensors, state, running),
            "DCP": partial(by_files, state, running, folder[0]),
        }
        wrong = [name for name in works if not _same(works[name](), works["redist"]())]
        try:
            name, weight = next(iter(state.items()))
            weight.redistribute(running, running_placements(tuple(weight.shape), cut_of(name)))
            own = "works"
        except Exception as problem:
            own = type(problem).__name__
        found = race(works, repeat)
        rows.append(
            {
                "ranks": len(ranks),
                "weights": len(state),
                "bytes": sum(w.numel() * w.element_size() for w in state.values()),
                "wrong": wrong,
                "own": own,
                "first_s": first_s,
                "seconds": {name: taken.seconds for name, taken in found.items()},
                "peak": {name: taken.peak_bytes for name, taken in found.items()},
                "received": received(state, running),
            }
        )
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    return rows


def by_full_tensors(state: State, running: DeviceMesh) -> State:
    """**Collective.** Gather every weight on every rank, then cut it."""
    found = {}
    for name, weight in state.items():
        places = running_placements(tuple(weight.shape), cut_of(name))
        found[name] = distribute_tensor(weight.full_tensor(), running, places, src_data_rank=None)
    return found


def by_files(state: State, running: DeviceMesh, folder: str) -> State:
    """**Collective.** Save the weights with PyTorch's distributed checkpoints, and load them."""
    dcp.save(state, checkpoint_id=folder)
    dist.barrier()
    found = {
        name: torch.distributed.tensor.empty(
            *w.shape, dtype=w.dtype, device_mesh=running,
            placements=running_placements(tuple(w.shape), cut_of(name)),
        )
        for name, w in state.items()
    }  # fmt: skip
    if running.get_coordinate() is not None:
        dcp.load(found, checkpoint_id=folder, process_group=running.get_group())
    return found


def received(state: State, running: DeviceMesh) -> dict[str, int]:
    """**Collective.** Bytes that all ranks receive; of files, those written and read."""
    from redist.torch.calls import MoveOptions, Target
    from redist.torch.redistribute import prepare

    targets = [
        Target(running, tuple(running_placements(tuple(w.shape), cut_of(name))))
        for name, w in state.items()
    ]
    transfer = prepare(MoveOptions(), targets, list(state), list(state.values()))[1]
    ours = torch.tensor(transfer.received_bytes)
    dist.all_reduce(ours)
    whole = sum(w.numel() * w.element_size() for w in state.values())
    local = torch.tensor(sum(w._local_tensor.nbytes for w in state.values()))
    dist.all_reduce(local)
    read = torch.tensor(0)
    if running.get_coordinate() is not None:
        read += sum(w._local_tensor.nbytes for w in refit(state, running).values())
    else:
        refit(state, running)
    dist.all_reduce(read)
    return {
        "redist": int(ours),
        "full tensors": dist.get_world_size() * whole - int(local),
        "DCP": whole + int(read),
    }


def _same(a: dict[str, DTensor], b: dict[str, DTensor]) -> bool:
    return all(torch.equal(a[name]._local_tensor, b[name]._local_tensor) for name in b)
