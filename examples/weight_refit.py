"""Hand the weights of a model in training to the ranks that run it: no full tensor, no files, no MPI.

A model trained under FSDP x tensor parallelism on 4 ranks goes to a mesh of 2 and to one of 3 of them, by one
call each. Needs PyTorch::

    torchrun --nproc-per-node 4 examples/weight_refit.py --layers 48 --width 256
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import redist.torch

State = dict[str, DTensor]
COLUMNS, ROWS, ALIKE = "columns", "rows", "alike"
"""How a weight is cut for tensor parallelism: by what it gives, by what it takes, or not at all."""


def shapes(layers: int, width: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """The weights of a model by name: shape, and how tensor parallelism cuts them.

    Queries, keys and values are one weight with a dim of 3, so that each of them is cut.
    """
    found: dict[str, tuple[tuple[int, ...], str]] = {"embedding": ((8 * width, width), COLUMNS)}
    for k in range(layers):
        found |= {
            f"layers.{k}.norm": ((width,), ALIKE),
            f"layers.{k}.qkv": ((3, width, width), COLUMNS),
            f"layers.{k}.out": ((width, width), ROWS),
            f"layers.{k}.up": ((2, 4 * width, width), COLUMNS),
            f"layers.{k}.down": ((width, 4 * width), ROWS),
        }
    return found


def training_placements(shape: tuple[int, ...], cut: str, tp: int) -> list[Any]:
    """As FSDP places what tensor parallelism has cut: on ("fsdp", "tp")."""
    out = len(shape) - 2
    if cut == ALIKE:
        return [Shard(0), Replicate()]
    if cut == ROWS:
        return [Shard(0), Shard(len(shape) - 1)]
    return [_StridedShard(out, split_factor=tp), Shard(out)]


def running_placements(shape: tuple[int, ...], cut: str) -> list[Any]:
    """Tensor parallelism alone."""
    out = len(shape) - 2
    return [{ALIKE: Replicate(), COLUMNS: Shard(out), ROWS: Shard(len(shape) - 1)}[cut]]


def trained(mesh: DeviceMesh, layers: int, width: int) -> State:
    """**Collective.** Weights as they are after some training: every element has a value of its own."""
    state: State = {}
    for name, (shape, cut) in shapes(layers, width).items():
        placements = training_placements(shape, cut, mesh.size(1))
        local = [n // math.prod(mesh.size(k) for k, p in enumerate(placements) if p.is_shard(d)
                                or (isinstance(p, _StridedShard) and p.dim == d))
                 for d, n in enumerate(shape)]  # fmt: skip
        at = [
            k
            for k, p in zip(mesh.get_coordinate() or (), placements, strict=True)
            if not p.is_replicate()
        ]
        torch.manual_seed(hash((*at, len(state))) % 2**31)  # replicas have the same values
        strides = torch.empty(shape, device="meta").stride()
        state[name] = DTensor.from_local(
            torch.randn(local, dtype=torch.bfloat16), mesh, placements, run_check=False,
            shape=torch.Size(shape), stride=strides,
        )  # fmt: skip
    return state


def refit(state: State, mesh: DeviceMesh) -> State:
    """**Collective.** All weights on the ranks that run the model, in one call."""
    plain = {name: (tuple(w.shape), cut_of(name)) for name, w in state.items()}
    return redist.torch.redistribute(
        state, mesh, {name: running_placements(*what) for name, what in plain.items()}
    )


def cut_of(name: str) -> str:
    """How a weight is cut, by its name."""
    kind = name.rpartition(".")[2]
    return {"norm": ALIKE, "out": ROWS, "down": ROWS}.get(kind, COLUMNS)


def main() -> None:
    """Refit twice to each mesh, and compare every weight with the full tensor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    training = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    state = trained(training, args.layers, args.width)
    size = sum(w.numel() * w.element_size() for w in state.values())
    for ranks in ([2, 3], [1, 2, 3]):
        running = DeviceMesh("cpu", ranks, mesh_dim_names=("tp",))
        seconds = []
        for _ in range(2):
            dist.barrier()
            start = time.perf_counter()
            there = refit(state, running)
            dist.barrier()
            seconds.append(time.perf_counter() - start)
        for name, weight in state.items():
            full = weight.full_tensor()
            if running.get_coordinate() is not None:
                assert torch.equal(there[name].full_tensor(), full), name
        if dist.get_rank() == 0:
            print(f"weight refit: {len(state)} weights, {size / 2**20:.0f} MiB, to {len(ranks)} ranks: "
                  f"{seconds[0] * 1e3:.0f} ms, again {seconds[1] * 1e3:.0f} ms")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
