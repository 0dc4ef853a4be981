"""DTensors of one size moved by redist and by PyTorch: what both can express."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Partial

import redist.torch
from bench.pytorch.measure import race
from redist.torch.calls import MoveOptions, Target
from redist.torch.redistribute import prepare

ROWS = 4096
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial("sum")
ONE_DIM = [(S0, S1), (S1, S0), (S0, R), (S1, R), (R, S0), (R, S1), (P, R), (P, S0), (P, S1)]
TWO_DIMS = [
    ((S0, S1), (S1, S0)),
    ((S0, R), (R, S1)),
    ((S0, S1), (R, S0)),
    ((S0, S0), (S1, S1)),
    ((P, S0), (S0, S1)),
]


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


def measure(n_bytes: int, repeat: int) -> list[dict[str, Any]]:
    """**Collective.** Every case: ours, ours by messages only, and PyTorch's, results compared first."""
    rows = []
    for mesh, before, after in cases(dist.get_world_size()):
        shape = [ROWS, n_bytes // 4 // ROWS]
        for k, placement in enumerate(before):
            if placement.is_shard():
                shape[placement.dim] //= mesh.size(k)
        torch.manual_seed(0)
        source = DTensor.from_local(
            torch.randint(0, 99, shape).float(), mesh, before, run_check=False
        )

        def theirs(source: DTensor = source, mesh: Any = mesh, after: Any = after) -> torch.Tensor:
            local: Any = source.redistribute(mesh, after)._local_tensor
            return local.wait() if hasattr(local, "wait") else local

        def ours(
            source: DTensor = source, mesh: Any = mesh, after: Any = after, by: str = "auto"
        ) -> torch.Tensor:
            out: DTensor = redist.torch.redistribute(source, mesh, after, transport=by)
            return out._local_tensor

        def by_messages(ours: Any = ours) -> torch.Tensor:
            found: torch.Tensor = ours(by="messages")
            return found

        wrong = not torch.equal(theirs(), ours()) or not torch.equal(theirs(), by_messages())
        found = race({"PyTorch": theirs, "redist": ours, "messages": by_messages}, repeat)
        ends = [Target(mesh, after)], [""], [source]
        transfer = prepare(MoveOptions(), *ends)[1]
        by_group = prepare(MoveOptions(transport="messages"), *ends)[1]
        received = torch.tensor(transfer.received_bytes)
        dist.all_reduce(received)
        rows.append(
            {
                "mesh": "x".join(map(str, mesh.mesh.shape)),
                "before": text(before),
                "after": text(after),
                "wrong": wrong,
                "seconds": {name: taken.seconds for name, taken in found.items()},
                "peak": {name: taken.peak_bytes for name, taken in found.items()},
                "source": source._local_tensor.nbytes,
                "certified": {"redist": transfer.peak_bytes, "messages": by_group.peak_bytes},
                "received": int(received),
                "planned": transfer.plans[0].received_bytes,
            }
        )
    return rows
