"""The job of ``python -m bench torch``: DTensors of one size moved by redist and by PyTorch, and weights.

Times and memory are measured in jobs of their own: memory shows at its peak only if PyTorch's allocator gives
everything back at once (``MIMALLOC_PURGE_DELAY=0``), which costs time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Partial

import redist.torch
from bench.peers.torch import slowest_s
from bench.report.figures import in_turn, timed
from bench.report.job import say
from examples.weight_refit import State, cut_of, refit, running_placements, trained
from redist.torch.calls import MoveOptions, Target
from redist.torch.redistribute import prepare
from tests.programs.torch.peak import Work, peak_bytes
from tests.programs.torch.together import join

ROWS = 4096
POOLED = "redist"
"""The way that uses pools."""
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial("sum")
ONE_DIM = [(S0, S1), (S1, S0), (S0, R), (S1, R), (R, S0), (R, S1), (P, R), (P, S0), (P, S1)]
TWO_DIMS = [
    *(((S0, S1), (S1, S0)), ((S0, R), (R, S1)), ((S0, S1), (R, S0)), ((S0, S0), (S1, S1))),
    ((P, S0), (S0, S1)),
]
TARGETS = ([2, 3], [1, 2, 3])


def measure(n_bytes: int, layers: int, width: int, repeat: int, only: str) -> dict[str, Any]:
    """Moves and refits; if there is nothing to repeat, it is memory that is measured. **Collective.**"""
    join()
    found = {
        "ranks": dist.get_world_size(),
        "torch": torch.__version__.partition("+")[0],
        "bytes": n_bytes,
        "repeat": repeat,
        "layers": layers,
        "moves": [] if only == "refit" else measure_moves(n_bytes, repeat),
        "refit": [] if only == "moves" else measure_refits(layers, width, repeat),
    }
    dist.barrier()
    dist.destroy_process_group()
    return found


def race(works: dict[str, Work], repeat: int) -> dict[str, Any]:
    """**Collective.** Several ways in turn: seconds of the slowest rank, the first repetition left out.

    If there is nothing to repeat: bytes of the fullest rank at most, allocated beyond what was there before;
    of redist through shared memory also its pools, whenever they were made.
    """
    if repeat == 0:
        return {"peak": {name: peak_bytes(work, name == POOLED) for name, work in works.items()}}
    seconds = in_turn(works, repeat + 1, slowest_s)
    return {"seconds": {name: taken[1:] for name, taken in seconds.items()}}


def differing(works: dict[str, Work], first: str, same: Callable[[Any, Any], bool]) -> list[str]:
    """**Collective.** The ways whose result is not that of the first on some rank: all ranks run all."""
    want = works[first]()
    wrong = torch.tensor([not same(work(), want) for work in works.values()], dtype=torch.int32)
    dist.all_reduce(wrong, dist.ReduceOp.MAX)
    return [name for name, bad in zip(works, wrong.tolist(), strict=True) if bad]


def cases(n_ranks: int) -> list[tuple[DeviceMesh, tuple[Any, ...], tuple[Any, ...]]]:
    """**Collective.** Meshes and placements, before and after."""
    line = init_device_mesh("cpu", (n_ranks,), mesh_dim_names=("x",))
    grid = init_device_mesh("cpu", (2, n_ranks // 2), mesh_dim_names=("x", "y"))
    found: list[Any] = [(line, (a,), (b,)) for a, b in ONE_DIM]
    return found + [(grid, a, b) for a, b in TWO_DIMS]


def text(placements: tuple[Any, ...]) -> str:
    """Placements in short: ``S0 R``."""
    words = {"Replicate": "R", "Partial": "P"}
    return " ".join(words.get(type(p).__name__) or f"S{p.dim}" for p in placements)


def by_torch(source: DTensor, mesh: DeviceMesh, after: Any) -> torch.Tensor:
    """PyTorch's own way."""
    local: Any = source.redistribute(mesh, after)._local_tensor
    return local.wait() if hasattr(local, "wait") else local


def by_redist(source: DTensor, mesh: DeviceMesh, after: Any, by: str) -> torch.Tensor:
    """Ours, by a transport."""
    out: DTensor = redist.torch.redistribute(source, mesh, after, transport=by)
    return out._local_tensor


def measure_moves(n_bytes: int, repeat: int) -> list[dict[str, Any]]:
    """**Collective.** Every case: ours, ours by messages only, and PyTorch's, results compared first."""
    rows = []
    for mesh, before, after in cases(dist.get_world_size()):
        shape = [ROWS, n_bytes // 4 // ROWS]
        for k, placement in enumerate(before):
            if placement.is_shard():
                shape[placement.dim] //= mesh.size(k)
        torch.manual_seed(0)
        local = torch.randint(0, 99, shape).float()
        source = DTensor.from_local(local, mesh, before, run_check=False)
        works: dict[str, Work] = {
            "PyTorch": partial(by_torch, source, mesh, after),
            "redist": partial(by_redist, source, mesh, after, "auto"),
            "messages": partial(by_redist, source, mesh, after, "messages"),
        }
        wrong = bool(differing(works, "PyTorch", torch.equal))
        ends = [Target(mesh, after)], [""], [source]
        transfer = prepare(MoveOptions(), *ends)[1]
        by_group = prepare(MoveOptions(transport="messages"), *ends)[1]
        received = torch.tensor(transfer.received_bytes)
        dist.all_reduce(received)
        about = {"mesh": "x".join(map(str, mesh.mesh.shape)), "before": text(before)}
        rows.append(
            {
                **about, "after": text(after), "wrong": wrong, **race(works, repeat),
                "source": source._local_tensor.nbytes, "received": int(received),
                "certified": {"redist": transfer.peak_bytes, "messages": by_group.peak_bytes},
            }
        )  # fmt: skip
        say(f"torch: {rows[-1]}")
    return rows


def measure_refits(layers: int, width: int, repeat: int) -> list[dict[str, Any]]:
    """**Collective.** Every way, for every mesh that runs the model; results compared first."""
    training = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    state = trained(training, layers, width)
    folder = [tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)]
    dist.broadcast_object_list(folder)
    rows = []
    for ranks in TARGETS:
        running = DeviceMesh("cpu", ranks, mesh_dim_names=("tp",))
        first_s = timed(partial(refit, state, running))[0]
        works: dict[str, Callable[[], State]] = {
            "redist": partial(refit, state, running),
            "full tensors": partial(by_full_tensors, state, running),
            "DCP": partial(by_files, state, running, folder[0]),
        }
        wrong = differing(works, "redist", partial(_same, running))
        try:
            name, weight = next(iter(state.items()))
            weight.redistribute(running, running_placements(tuple(weight.shape), cut_of(name)))
            own = "works"
        except Exception as problem:
            own = type(problem).__name__
        rows.append(
            {
                "ranks": len(ranks), "weights": len(state), "wrong": wrong, "own": own, "first_s": first_s,
                "bytes": sum(w.numel() * w.element_size() for w in state.values()),
                **race(works, repeat), "received": received(state, running),
            }
        )  # fmt: skip
        say(f"torch: {rows[-1]}")
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
    moved = refit(state, running)
    is_there = running.get_coordinate() is not None
    read = torch.tensor(sum(w._local_tensor.nbytes for w in moved.values()) if is_there else 0)
    dist.all_reduce(read)
    return {
        "redist": int(ours),
        "full tensors": dist.get_world_size() * whole - int(local),
        "DCP": whole + int(read),
    }


def _same(running: DeviceMesh, a: State, b: State) -> bool:
    """Whether this rank's tiles are equal; a rank that does not run the model has none."""
    if running.get_coordinate() is None:
        return True
    return all(torch.equal(a[name]._local_tensor, b[name]._local_tensor) for name in b)
