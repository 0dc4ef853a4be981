"""What one call asks for: which DTensors move, where to and how; all ranks learn of a wrong argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from redist.errors import RedistError, RequestError
from redist.runtime.ranks.long_wait import TIMEOUT_S
from redist.text.units import limit_from
from redist.torch.layouts import checked_placements, mesh_ranks
from redist.torch.requests import Request
from redist.torch.trees import Leaf, leaves_of
from redist.torch.world import check_transport, world_of


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How to move, apart from what moves and where to."""

    limit_bytes: Any = None
    objective: str = "time"
    transport: str = "auto"
    timeout_s: float | None = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Target:
    """Where a DTensor goes."""

    device_mesh: DeviceMesh
    placements: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """All DTensors of a call, those that move, and the target and the name of each of these."""

    options: MoveOptions
    leaves: Sequence[Leaf]
    go: Sequence[Leaf]
    targets: Sequence[Target]
    names: Sequence[str]

    @property
    def tensors(self) -> list[DTensor]:
        """The DTensors that move."""
        return [leaf.tensor for leaf in self.go]


def call_of(
    dtensor: Any, device_mesh: DeviceMesh | None, placements: Any, options: MoveOptions
) -> Call:
    """**Collective** if something is wrong, or if nothing moves. What a call asks for."""
    leaves, wrong = leaves_of(dtensor, placements)
    go = sorted((leaf for leaf in leaves if not leaf.stays), key=lambda leaf: leaf.path)
    try:
        options = replace(options, limit_bytes=limit_from(options.limit_bytes))
        check_transport(options.transport)
        if not isinstance(dtensor, (DTensor, Mapping, list, tuple)):
            raise RequestError(_why_not(dtensor))
        if wrong is not None:
            raise RequestError(wrong)
        targets = [_target(leaf, device_mesh, placements is None) for leaf in go]
        call = Call(options, leaves, go, targets, _names(go))
    except RedistError as problem:
        tell_all(problem, options.timeout_s, device_mesh, [leaf.tensor for leaf in go])
        raise
    if not go:
        agree_on_nothing(options, device_mesh)
    return call


def _why_not(value: Any) -> str:
    if isinstance(value, torch.nn.Module):
        return (
            f"cannot move a {type(value).__name__}: it is a module; move module.state_dict(), and load what "
            "comes back with module.load_state_dict(moved, assign=True)"
        )
    if value is None:
        return (
            "cannot move None: a rank outside the source's mesh, too, gives a DTensor; make one with "
            "DTensor.from_local(torch.empty(0, dtype=...), source_mesh, [Shard(0)], run_check=False, "
            "shape=..., stride=...)"
        )
    return (
        f"cannot move a {type(value).__name__}: it is not a DTensor; make it one with "
        "distribute_tensor(tensor, mesh, placements)"
    )


def _target(leaf: Leaf, device_mesh: DeviceMesh | None, has_none: bool) -> Target:
    mesh = leaf.tensor.device_mesh if device_mesh is None else device_mesh
    if not isinstance(mesh, DeviceMesh):
        ways = (
            "redistribute(x, mesh, placements), or redistribute(x, placements=...) on its own mesh"
        )
        raise RequestError(f"cannot move to {mesh!r}: it is not a DeviceMesh; write {ways}")
    if has_none:
        raise RequestError(
            "cannot move without placements: they are needed, as [Shard(0)], or [Replicate()] for all of it "
            "on every rank"
        )
    return Target(mesh, checked_placements(leaf.placements, leaf.tensor.ndim, leaf.name))


def _names(leaves: Sequence[Leaf]) -> list[str]:
    """Names that tell tensors apart: with dots, or, where that leaves two alike, as lists of keys."""
    if len({leaf.path for leaf in leaves}) < len(leaves):
        twice = next(a.name for a, b in pairwise(leaves) if a.path == b.path)
        raise RequestError(f"cannot move two DTensors that are both called {twice!r}; rename one")
    names = [leaf.name for leaf in leaves]
    return names if len(set(names)) == len(names) else [str(list(leaf.path)) for leaf in leaves]


def tell_all(
    problem: RedistError, timeout_s: float | None, device_mesh: Any, tensors: Sequence[DTensor]
) -> None:
    """**Collective.** Raise an error about this rank's arguments on all ranks that make the call.

    This does nothing if the arguments do not say which ranks make the call, unless these are all ranks.
    """
    if not dist.is_initialized():
        return
    is_mesh = isinstance(device_mesh, DeviceMesh)
    ranks = ranks_of([device_mesh] if is_mesh else [], tensors)
    is_sure = bool(tensors) and (is_mesh or device_mesh is None)
    if (is_sure and dist.get_rank() in ranks) or len(ranks) == dist.get_world_size():
        world_of(None, timeout_s, ranks).agree(None, problem)


def agree_on_nothing(options: MoveOptions, device_mesh: Any) -> None:
    """**Collective** if the mesh has all ranks. Raise an error if other ranks do move something."""
    if isinstance(device_mesh, DeviceMesh) and device_mesh.size() == dist.get_world_size():
        ranks = ranks_of([device_mesh], [])
        world = world_of(None, options.timeout_s, ranks)
        world.agree(Request((), (), how_in_words(device_mesh.device_type, options)), None)


def ranks_of(meshes: Sequence[DeviceMesh], tensors: Sequence[DTensor]) -> tuple[int, ...]:
    """The ranks of a call: those of all its meshes."""
    every = {id(mesh): mesh for mesh in (*meshes, *(t.device_mesh for t in tensors))}
    return tuple(sorted({rank for mesh in every.values() for rank in mesh_ranks(mesh)}))


def how_in_words(device: str, options: MoveOptions) -> str:
    """What ranks agree on besides names and types."""
    return f"on {device}, limit {options.limit_bytes}, {options.objective}, transport {options.transport}"
