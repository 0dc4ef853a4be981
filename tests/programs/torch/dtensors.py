"""Random DTensors moved between random device meshes, compared with PyTorch's own, gradients included.

As in ``python -m tests.programs.torch.dtensors --n 100 --seed 0``, on ranks that the launcher starts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Partial

import redist
import redist.torch
from tests.programs.torch.fuzz import bits
from tests.programs.torch.together import everywhere, main

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
OTHERS = (torch.int64, torch.uint8, torch.bool, torch.float8_e5m2, torch.int16)
GRIDS = ((1,), (2,), (3,), (4,), (2, 2), (1, 3), (2, 1), (1, 2, 2))


@dataclass(frozen=True)
class Case:
    """A full tensor, where it lies and where it goes."""

    full: torch.Tensor
    mesh: DeviceMesh
    placements: tuple[Any, ...]
    target: DeviceMesh
    target_placements: tuple[Any, ...]

    def __str__(self) -> str:
        a, b = self.mesh.mesh.tolist(), self.target.mesh.tolist()
        shape = f"{self.full.dtype}{list(self.full.shape)}"
        return f"{shape} {self.placements} on {a} -> {self.target_placements} on {b}"


def make_meshes(rng: Random, size: int) -> list[DeviceMesh]:
    """Meshes of every grid that so many ranks can play, some on ranks in another order."""
    found = []
    for grid in GRIDS:
        n = math.prod(grid)
        if n <= size:
            ranks = rng.sample(range(size), n) if rng.random() < 0.5 else list(range(n))
            names = tuple("abc"[: len(grid)])
            found.append(DeviceMesh("cpu", torch.tensor(ranks).reshape(grid), mesh_dim_names=names))
    return found


def random_case(rng: Random, meshes: Sequence[DeviceMesh], number: int) -> Case:
    """A case; values are small whole numbers, so that sums are exact in any order."""
    torch.manual_seed(number)
    ndim = rng.choice((1, 2, 2, 3))
    shape = [rng.choice((1, 2, 3, 4, 7, 8, 12)) for _ in range(ndim)]
    if rng.random() < 0.1:
        shape = [rng.choice((64, 240, 513)) for _ in range(ndim)]
    dtype = rng.choice(FLOATS if rng.random() < 0.7 else OTHERS)
    full = torch.randint(0, 7, shape).to(dtype)
    mesh = rng.choice(meshes)
    target = mesh if rng.random() < 0.6 else rng.choice(meshes)
    may_sum = dtype in (*FLOATS, torch.int64)
    return Case(
        full,
        mesh,
        tuple(_placement(rng, ndim, may_sum) for _ in range(mesh.ndim)),
        target,
        tuple(_placement(rng, ndim, may_sum and rng.random() < 0.4) for _ in range(target.ndim)),
    )


def _placement(rng: Random, ndim: int, may_sum: bool) -> Any:
    if may_sum and rng.random() < 0.3:
        return Partial("sum")
    return Shard(rng.randrange(ndim)) if rng.random() < 0.7 else Replicate()


def spread(full: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any]) -> DTensor:
    """**Collective.** A DTensor of a full tensor; if a sum is pending, one rank has it and others zero."""
    whole = [Replicate() if p.is_partial() else p for p in placements]
    found = distribute_tensor(full, mesh, whole, src_data_rank=None)
    if any(p.is_partial() for p in placements):
        local, at = found._local_tensor, mesh.get_coordinate()
        pending = [dim for dim, p in enumerate(placements) if p.is_partial()]
        if at is not None and any(at[dim] for dim in pending):
            local = torch.zeros_like(local)
        strides = torch.empty(full.shape, device="meta").stride()
        found = DTensor.from_local(
            local.clone(), mesh, placements, run_check=False, shape=full.shape, stride=strides
        )
    return found


def summed(out: DTensor) -> torch.Tensor:
    """**Collective over the mesh.** The local tensor with pending sums resolved, as PyTorch does it."""
    if not any(p.is_partial() for p in out.placements):
        return out._local_tensor
    whole = [Replicate() if p.is_partial() else p for p in out.placements]
    moved: Any = out.redistribute(out.device_mesh, whole)._local_tensor
    return moved.wait() if hasattr(moved, "wait") else moved


def is_refused(case: Case) -> bool:
    """Whether one end has tiles that redist cannot have: a dim cut by several dims of a mesh, unevenly."""
    for mesh, placements in ((case.mesh, case.placements), (case.target, case.target_placements)):
        sizes = mesh.mesh.shape
        for dim, n in enumerate(case.full.shape):
            cuts = [sizes[k] for k, p in enumerate(placements) if p.is_shard(dim)]
            if len([k for k in cuts if k > 1]) > 1 and n % math.prod(cuts):
                return True
    return False


def trial(case: Case, transport: str) -> str | None:
    """What is wrong on this rank; None if nothing is."""
    mine = case.target.get_coordinate() is not None
    dtensor = spread(case.full, case.mesh, case.placements)
    before = bits(dtensor._local_tensor)
    options: dict[str, Any] = {"transport": transport, "timeout_s": 60}
    out = redist.torch.redistribute(dtensor, case.target, case.target_placements, **options)
    want = spread(case.full, case.target, case.target_placements)
    if (
        out.shape != want.shape
        or out.placements != want.placements
        or out.stride() != want.stride()
    ):
        return f"{out.shape} {out.placements} {out.stride()}, wanted {want.shape} {want.placements}"
    if mine and bits(summed(out)) != bits(summed(want)):
        return "other values"
    if bits(dtensor._local_tensor) != before:
        return "the source was modified"
    return gradient(case, options) if case.full.dtype in FLOATS else None


def gradient(case: Case, options: dict[str, Any]) -> str | None:
    """What is wrong with the gradient of our move, or of PyTorch's own."""
    slope = case.full * 2 + 1
    whole = [Replicate() if p.is_partial() else p for p in case.target_placements]
    moves = [lambda x: redist.torch.redistribute(x, case.target, case.target_placements, **options)]
    ranks = case.mesh.mesh.flatten().tolist()  # PyTorch's collectives take them in ascending order
    ends_well = not any(p.is_partial() for p in case.target_placements)
    if case.mesh == case.target and ends_well and ranks == sorted(ranks):
        moves.append(lambda x: x.redistribute(case.target, case.target_placements))
    found = []
    for move in moves:
        x = spread(case.full, case.mesh, case.placements).requires_grad_()
        y = move(x)
        torch.autograd.backward([y], [spread(slope, case.target, whole)])
        found.append(x.grad)
    back = [Replicate() if p.is_partial() else p for p in case.placements]
    for name, grad in zip(("our", "PyTorch's"), found, strict=False):
        assert grad is not None
        if list(grad.placements) != back:
            return f"{name} gradient {grad.placements}, wanted {back}"
        want = spread(slope, case.mesh, back)
        mine = case.mesh.get_coordinate() is not None
        if mine and bits(grad._local_tensor) != bits(want._local_tensor):
            return f"other values in {name} gradient"
    return None


def program() -> int:
    """0 if every move agrees."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, wrong, refused, done = Random(args.seed), 0, 0, 0
    meshes = make_meshes(rng, dist.get_world_size())
    number = 0
    while done < args.n:
        number += 1
        case = random_case(rng, meshes, 1000 * args.seed + number)
        ranks = {int(r) for m in (case.mesh, case.target) for r in m.mesh.flatten()}
        said: str | None = None
        if dist.get_rank() in ranks:
            try:
                said = trial(case, ("auto", "messages", "views")[number % 3])
            except redist.RequestError as problem:
                said = None if is_refused(case) and "when cut" in str(problem) else repr(problem)
            except Exception as problem:
                said = repr(problem)
        refused += is_refused(case)
        done += not is_refused(case)
        found = everywhere(said)
        wrong += bool(found)
        if found and dist.get_rank() == 0:
            print(f"WRONG {number} {case}: {found[0]}", flush=True)
    if dist.get_rank() == 0:
        print(
            f"{done - wrong} of {done} DTensors agree, {refused} refused ({dist.get_world_size()} ranks)"
        )
    return int(wrong > 0)


if __name__ == "__main__":
    main(program)
