"""Redistribute DTensors, one or a state dict: as PyTorch does, also between meshes, within a limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from redist.errors import RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import synthesize
from redist.runtime.ranks.long_wait import TIMEOUT_S
from redist.text.units import limit_from
from redist.torch.layouts import checked_placements, mesh_ranks, placed_type, type_of
from redist.torch.transfer import TensorTransfer
from redist.torch.world import GroupWorld, world_of


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How to move, apart from what and where to."""

    limit_bytes: int | None = None
    objective: str = "time"
    transport: str = "auto"
    timeout_s: float | None = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Target:
    """Where a DTensor goes."""

    device_mesh: DeviceMesh
    placements: tuple[Any, ...]


def redistribute(
    dtensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Any = None,
    limit_bytes: int | str | None = None,
    *,
    objective: str = "time",
    transport: str = "auto",
    timeout_s: float | None = TIMEOUT_S,
) -> Any:
    """**Collective over the ranks of both meshes.** Give a DTensor other placements, or another mesh.

    In a job that ``torchrun`` started::

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        other = DeviceMesh("cpu", [1, 2, 3], mesh_dim_names=("gen",))
        rows = distribute_tensor(weight, mesh, [Shard(0), Replicate()])
        columns = redist.torch.redistribute(rows, mesh, [Replicate(), Shard(1)])
        there = redist.torch.redistribute(rows, other, [Shard(0)], limit_bytes="1GiB")

    The meshes may be the same, overlap or be disjoint; tiles may be uneven and reductions pending.
    ``device_mesh`` is the DTensor's own by default. A dict of DTensors moves as one operation, with few
    messages: a state dict, also of an optimizer, with dicts and lists inside. ``placements`` is then one list
    for all, or a dict like it with a list for each name. What is not a DTensor (numbers, plain tensors,
    None) is handed on unchanged. The result is a DTensor, or a dict; where nothing has to move it shares
    memory, as PyTorch's own does. Gradients go back the same way. ``limit_bytes``, a number or text, bounds
    the tiles and the staging of the fullest rank, source and target included. ``transport="messages"``
    uses only messages of the process group; the default copies through shared memory if all ranks are on
    one host and the tensors in memory.
    """
    options = MoveOptions(limit_from(limit_bytes), objective, transport, timeout_s)
    if not isinstance(dtensor, (DTensor, Mapping, list, tuple)):
        kind = type(dtensor).__name__
        raise RequestError(
            f"cannot move a {kind}: it is no DTensor; make it one with distribute_tensor(tensor, mesh, "
            "placements)"
        )
    found = list(_dtensors("", dtensor, placements))
    targets = [_target(tensor, device_mesh, there) for _, tensor, there in found]
    names, tensors = [name for name, _, _ in found], [tensor for _, tensor, _ in found]
    results = move(options, targets, names, tensors) if found else ()
    return _rebuilt(dtensor, iter(results))


def _dtensors(name: str, value: Any, placements: Any) -> Iterator[tuple[str, DTensor, Any]]:
    """Every DTensor in dicts and lists, by its name there, with the placements that are given for it."""
    if isinstance(value, DTensor):
        yield name, value, placements
    elif isinstance(value, (Mapping, list, tuple)):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in pairs:
            inner = f"{name}.{key}" if name else str(key)
            given = placements
            if isinstance(placements, Mapping) and _has_dtensors(part):
                if key not in placements:
                    raise RequestError(
                        f"cannot move {inner!r}: placements has no entry for it; add one"
                    )
                given = placements[key]
            yield from _dtensors(inner, part, given)


def _has_dtensors(value: Any) -> bool:
    if isinstance(value, (Mapping, list, tuple)):
        return any(map(_has_dtensors, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, DTensor)


def _rebuilt(value: Any, results: Iterator[DTensor]) -> Any:
    """The same dicts and lists with the results in the places of DTensors."""
    if isinstance(value, DTensor):
        return next(results)
    if isinstance(value, Mapping):
        return {key: _rebuilt(part, results) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_rebuilt(part, results) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _target(tensor: DTensor, device_mesh: DeviceMesh | None, placements: Any) -> Target:
    mesh = tensor.device_mesh if device_mesh is None else device_mesh
    if not isinstance(mesh, DeviceMesh):
        raise RequestError(f"cannot move to {mesh!r}: it is no DeviceMesh")
    if placements is None:
        placements = tuple(Replicate() for _ in range(mesh.ndim))
    return Target(mesh, checked_placements(placements, tensor.ndim))


def move(
    options: MoveOptions,
    targets: Sequence[Target],
    names: Sequence[str],
    tensors: Sequence[DTensor],
) -> Sequence[DTensor]:
    """**Collective.** Move DTensors, with gradients if they ask for them."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return tuple(MoveWithGradient.apply(options, targets, names, *tensors))
    return move_data(options, targets, names, tensors)


class MoveWithGradient(torch.autograd.Function):  # type: ignore[misc]
    """A move as PyTorch's autograd knows it: gradients move back, to where the values came from."""

    @staticmethod
    def forward(
        ctx: Any,
        options: MoveOptions,
        targets: Sequence[Target],
        names: Sequence[str],
        *tensors: DTensor,
    ) -> tuple[DTensor, ...]:
        """Move, and note where from."""
        ctx.set_materialize_grads(False)
        ctx.options, ctx.names = options, names
        ctx.sources = [Target(t.device_mesh, tuple(t.placements)) for t in tensors]
        return tuple(move_data(options, targets, names, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Move the gradients back; a sum that was pending gets the same gradient on every rank."""
        some = [k for k, gradient in enumerate(gradients) if gradient is not None]
        back = [_gradient_target(gradients[k], ctx.sources[k]) for k in some]
        moved: Sequence[Any] = ()
        if some:
            names = [ctx.names[k] for k in some]
            moved = move(ctx.options, back, names, [gradients[k] for k in some])
        found = dict(zip(some, moved, strict=True))
        return (None, None, None, *(found.get(k) for k in range(len(gradients))))


def _gradient_target(gradient: DTensor, source: Target) -> Target:
    """Where a gradient goes: to the placements of the source, replicated where that was pending.

    As PyTorch has it: the value is the sum over ranks, so each has the whole gradient. Only a gradient
    that is itself pending over the same dim of the mesh stays so.
    """
    same_mesh = gradient.device_mesh == source.device_mesh
    placements = []
    for dim, placement in enumerate(source.placements):
        stays = same_mesh and gradient.placements[dim].is_partial()
        placements.append(Replicate() if placement.is_partial() and not stays else placement)
    return Target(source.device_mesh, tuple(placements))


def move_data(
    options: MoveOptions,
    targets: Sequence[Target],
    names: Sequence[str],
    tensors: Sequence[DTensor],
) -> Sequence[DTensor]:
    """**Collective.** Move the values of DTensors."""
    world, transfer = prepare(options, targets, names, tensors)
    locals_ = [
        _local(tensor) if transfer.shape_of(item, False) is not None else None
        for item, tensor in enumerate(tensors)
    ]
    results = world.run(transfer, locals_)
    return [
        _wrap(result, target, tensor)
        for result, target, tensor in zip(results, targets, tensors, strict=True)
    ]


def prepare(
    options: MoveOptions,
    targets: Sequence[Target],
    names: Sequence[str],
    tensors: Sequence[DTensor],
) -> tuple[GroupWorld, TensorTransfer]:
    """**Collective.** The prepared move of a request, and the world that runs it."""
    meshes = {id(mesh): mesh for t in targets for mesh in (t.device_mesh,)}
    meshes |= {id(tensor.device_mesh): tensor.device_mesh for tensor in tensors}
    ranks = tuple(sorted({rank for mesh in meshes.values() for rank in mesh_ranks(mesh)}))
    world = world_of(None, options.transport, options.timeout_s, ranks)
    text: str | None = None
    error: RedistError | None = None
    ends: list[tuple[ArrayType, ArrayType]] = []
    device = targets[0].device_mesh.device_type
    try:
        for name, tensor, target in zip(names, tensors, targets, strict=True):
            ends.append(_types(name, tensor, target, device, ranks))
        said = ", ".join([_text(a, b) for a, b in ends])
        text = f"{said} on {device}, limit {options.limit_bytes}, {options.objective}"
    except RedistError as problem:
        error = problem

    def make_plans(topology: Topology) -> list[Plan]:
        limits = {"limit_bytes": options.limit_bytes, "objective": options.objective}
        return [synthesize(a, b, topology=topology, **limits) for a, b in ends]  # type: ignore[arg-type]

    return world, world.find(text, error, device, make_plans)


def _types(
    name: str, tensor: DTensor, target: Target, device: str, ranks: tuple[int, ...]
) -> tuple[ArrayType, ArrayType]:
    """**Local.** The types of both ends; an error that names the tensor if they make no sense."""
    try:
        source = type_of(tensor, ranks)
        there = placed_type(
            target.device_mesh, target.placements, tensor.dtype, tuple(tensor.shape), ranks
        )
    except RedistError as problem:
        raise RequestError(f"{name}: {problem}" if name else str(problem)) from problem
    kinds = [tensor.device_mesh.device_type, target.device_mesh.device_type]
    if kinds != [device, device]:
        raise RequestError(
            f"cannot move {name or 'a DTensor'} between devices: meshes of {' and '.join(kinds)}; "
            "copy it to one kind of device first"
        )
    shape = tile_shapes(source).get(ranks.index(_my_rank()))
    local = _local(tensor)
    if shape is not None and tuple(local.shape) != shape and local.numel() + math.prod(shape):
        raise RequestError(
            f"cannot move {name or 'a DTensor'} {source}: its local tensor has shape {list(local.shape)}, "
            f"but its placements put {list(shape)} on rank {_my_rank()}"
        )
    return source, there


@lru_cache(maxsize=4096)
def _text(source: ArrayType, target: ArrayType) -> str:
    return f"{source} on {source.mesh} -> {target} on {target.mesh}"


def _my_rank() -> int:
    return int(torch.distributed.get_rank())


def _local(tensor: DTensor) -> torch.Tensor:
    """The local tensor of a DTensor, once it has arrived."""
    local: Any = tensor._local_tensor
    wait = getattr(local, "wait", None)
    return local if wait is None else wait()


def _wrap(result: torch.Tensor | None, target: Target, like: DTensor) -> DTensor:
    """A DTensor of the result; on ranks outside the mesh it has an empty local tensor, as PyTorch's."""
    if result is None:
        device = "cpu" if target.device_mesh.device_type == "cpu" else torch.cuda.current_device()
        result = torch.empty(0, dtype=like.dtype, device=device)
    spec = _meta_of(target.device_mesh, target.placements, like.shape, like.dtype)
    return DTensor(result, spec, requires_grad=False)


@lru_cache(maxsize=4096)
def _meta_of(
    device_mesh: DeviceMesh, placements: tuple[Any, ...], shape: torch.Size, dtype: torch.dtype
) -> DTensorSpec:
    strides = torch.empty(shape, device="meta").stride()
    return DTensorSpec(device_mesh, placements, tensor_meta=TensorMeta(shape, strides, dtype))
