"""Redistribute a DTensor or a state dict, as PyTorch does, but also between meshes and under a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from redist.errors import NoPlanError, RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import synthesize
from redist.runtime.ranks.long_wait import TIMEOUT_S
from redist.text.units import format_bytes, least_limit
from redist.torch.calls import MoveOptions, Target, call_of, how_in_words, ranks_of
from redist.torch.layouts import (
    averaged_over,
    one_cut_less,
    placed_type,
    summed_type_of,
)
from redist.torch.requests import Ends, Request
from redist.torch.transfer import TensorTransfer
from redist.torch.trees import rebuilt
from redist.torch.world import GroupWorld, world_of


def redistribute(
    dtensor: Any, device_mesh: DeviceMesh | None = None, placements: Any = None,
    limit_bytes: int | float | str | None = None, *, objective: str = "time",
    transport: str = "auto", timeout_s: float | None = TIMEOUT_S,
) -> Any:  # fmt: skip
    """**Collective over the ranks of both meshes.** Give a DTensor other placements, or another mesh.

    In a job that ``torchrun`` started::

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        other = DeviceMesh("cpu", [1, 2, 3], mesh_dim_names=("gen",))
        rows = distribute_tensor(weight, mesh, [Shard(0), Replicate()])
        columns = redist.torch.redistribute(rows, mesh, [Replicate(), Shard(1)])
        there = redist.torch.redistribute(rows, other, [Shard(0)], limit_bytes="1GiB")

    The meshes may be the same, overlap or be disjoint; tiles may be uneven and reductions pending.
    ``device_mesh`` is the DTensor's own by default.

    A dict of DTensors moves as one operation, with few messages. It may be a state dict, even an
    optimizer's, with nested dicts and lists. Ranks match its tensors by name, in whatever order each rank
    has them. ``placements`` is then one list for all, or a dict of them: an entry applies to a name or to
    the whole branch below it, also in dotted names (``"layers"`` applies to ``"layers.0.weight"``); the
    longest match wins, and None leaves a tensor where it is. Where one list applies to many tensors, those
    of 0 dims are replicated. Anything that is not a DTensor (numbers, plain tensors, None) is returned
    unchanged.

    The result is a DTensor, or a dict; if nothing has to move, it shares memory with the input, as with
    PyTorch's own method. Gradients flow back the same way. ``limit_bytes``, a number or text, bounds the
    tiles and the staging on the fullest rank, source and target included. ``transport="messages"`` uses only
    messages of the process group; the default copies through shared memory if all ranks are on one host and
    the tensors are in memory.
    """
    options = MoveOptions(limit_bytes, objective, transport, timeout_s)
    call = call_of(dtensor, device_mesh, placements, options)
    moved: dict[int, DTensor] = {}
    if call.go:
        found = move(call.options, call.targets, call.names, call.tensors)
        moved = dict(zip(map(id, call.go), found, strict=True))
    return rebuilt(dtensor, (moved.get(id(leaf), leaf.tensor) for leaf in call.leaves))


def plan_for(
    dtensor: Any, device_mesh: DeviceMesh | None = None, placements: Any = None,
    limit_bytes: int | float | str | None = None, *, objective: str = "time",
    transport: str = "auto", timeout_s: float | None = TIMEOUT_S,
) -> Any:  # fmt: skip
    """**Collective**, like the move. The plan by which :func:`redistribute` would move a DTensor.

    For a dict, returns the plans of the tensors that would move, by dotted names. Nothing moves, but the
    move that follows is already prepared::

        plans = redist.torch.plan_for(model.state_dict(), mesh, [Shard(0)])
        most = max(plan.peak_bytes for plan in plans.values())

    Ranks in a plan are numbered by their places among the ranks that make the call.
    """
    options = MoveOptions(limit_bytes, objective, transport, timeout_s)
    call = call_of(dtensor, device_mesh, placements, options)
    plans: tuple[Plan, ...] = ()
    if call.go:
        plans = prepare(call.options, call.targets, call.names, call.tensors)[1].plans
    return plans[0] if isinstance(dtensor, DTensor) else dict(zip(call.names, plans, strict=True))


def move(
    options: MoveOptions, targets: Sequence[Target], names: Sequence[str], tensors: Sequence[DTensor]
) -> Sequence[DTensor]:  # fmt: skip
    """**Collective.** Move DTensors, with gradients if they ask for them."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return tuple(MoveWithGradient.apply(options, targets, names, *tensors))
    return move_data(options, targets, names, tensors)


class MoveWithGradient(torch.autograd.Function):  # type: ignore[misc]
    """A move as PyTorch's autograd sees it: gradients move back to where the values came from."""

    @staticmethod
    def forward(
        ctx: Any, options: MoveOptions, targets: Sequence[Target], names: Sequence[str],
        *tensors: DTensor,
    ) -> tuple[DTensor, ...]:  # fmt: skip
        """Move, and note where the values came from."""
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
    options: MoveOptions, targets: Sequence[Target], names: Sequence[str], tensors: Sequence[DTensor]
) -> Sequence[DTensor]:  # fmt: skip
    """**Collective.** Move the values of DTensors."""
    world, transfer = prepare(options, targets, names, tensors)
    locals_ = [
        local_of(tensor) if transfer.shape_of(item, False) is not None else None
        for item, tensor in enumerate(tensors)
    ]
    results = world.run(transfer, locals_)
    for item, (result, tensor) in enumerate(zip(results, tensors, strict=True)):
        n = averaged_over(tensor)
        if n > 1 and result is not None:
            is_source = result is locals_[item]
            results[item] = torch.div(result, n) if is_source else result.div_(n)
    return [
        _wrap(result, target, tensor)
        for result, target, tensor in zip(results, targets, tensors, strict=True)
    ]


def prepare(
    options: MoveOptions, targets: Sequence[Target], names: Sequence[str], tensors: Sequence[DTensor]
) -> tuple[GroupWorld, TensorTransfer]:  # fmt: skip
    """**Collective.** The prepared move of a request, and the world that runs it."""
    ranks = ranks_of([target.device_mesh for target in targets], tensors)
    world = world_of(None, options.timeout_s, ranks)
    request: Request | None = None
    error: RedistError | None = None
    device = targets[0].device_mesh.device_type
    try:
        ends = [
            _types(name, tensor, target, device, ranks)
            for name, tensor, target in zip(names, tensors, targets, strict=True)
        ]
        averages = [name for name, t in zip(names, tensors, strict=True) if averaged_over(t) > 1]
        how = how_in_words(device, options)
        if averages:
            how += f", averages of {', '.join(averages)}"
        request = Request(tuple(names), tuple(ends), how)
    except RedistError as problem:
        error = problem

    def make_plans(topology: Topology, ends: Sequence[Ends]) -> list[Plan]:
        return [
            _plan(name, a, b, options, topology) for name, (a, b) in zip(names, ends, strict=True)
        ]

    return world, world.find(request, error, device, options.transport, make_plans)


def _plan(
    name: str, source: ArrayType, target: ArrayType, options: MoveOptions, topology: Topology
) -> Plan:
    """**Local.** The plan of one DTensor; an error that names it if no plan keeps the limit."""
    limit, objective = options.limit_bytes, options.objective
    try:
        return synthesize(source, target, limit_bytes=limit, objective=objective, topology=topology)
    except NoPlanError as problem:
        which = f"{name!r}, " if name else ""
        raise NoPlanError(
            f"cannot move {which}{source} to {target}, within limit_bytes={limit} "
            f"({format_bytes(limit or 0)}) on a rank: tiles and staging take more; "
            f"the least that works is {least_limit(problem.least_bytes)}",
            problem.least_bytes,
        ) from problem


def _types(
    name: str, tensor: DTensor, target: Target, device: str, ranks: tuple[int, ...]
) -> tuple[ArrayType, ArrayType]:
    """**Local.** The types of both ends; an error that names the tensor if they make no sense."""
    mesh, placements = tensor.device_mesh, tuple(tensor.placements)
    advice = "redistribute it first, with x.redistribute(placements={less})"
    try:
        source = summed_type_of(tensor, ranks)
        mesh, placements = target.device_mesh, target.placements
        advice = "move it to {less}, and then .redistribute(placements={all})"
        there = placed_type(mesh, placements, tensor.dtype, tuple(tensor.shape), ranks)
    except RedistError as problem:
        said = f"{name}: {problem}" if name else str(problem)
        less = one_cut_less(mesh, placements, tensor.dtype, tuple(tensor.shape))
        if less is not None and "at once" in said:
            said += f"; here: {advice.format(less=_words(less), all=_words(placements))}"
        raise RequestError(said) from problem
    kinds = [tensor.device_mesh.device_type, target.device_mesh.device_type]
    if kinds != [device, device]:
        raise RequestError(
            f"cannot move {name or 'a DTensor'} between devices: meshes of {' and '.join(kinds)}; "
            "copy it to one kind of device first"
        )
    shape = tile_shapes(source).get(ranks.index(dist.get_rank()))
    local = local_of(tensor)
    if shape is not None and tuple(local.shape) != shape and local.numel() + math.prod(shape):
        raise RequestError(
            f"cannot move {name or 'a DTensor'} {source}: its local tensor has shape {list(local.shape)}, "
            f"but its placements put {list(shape)} on rank {dist.get_rank()}"
        )
    return source, there


def _words(placements: Sequence[Any]) -> str:
    """Placements as a user writes them."""
    words = [f"Shard({p.dim})" if type(p) is Shard else repr(p) for p in placements]
    return f"[{', '.join(words)}]"


def local_of(tensor: DTensor) -> torch.Tensor:
    """The local tensor of a DTensor, once it has arrived."""
    local: Any = tensor._local_tensor
    wait = getattr(local, "wait", None)
    return local if wait is None else wait()


def _wrap(result: torch.Tensor | None, target: Target, like: DTensor) -> DTensor:
    """A DTensor of the result; on ranks outside the mesh it has an empty local tensor, as PyTorch's."""
    if result is None:
        device = "cpu" if target.device_mesh.device_type == "cpu" else torch.cuda.current_device()
        shape = (0,) * max(1, like.ndim)  # gradients need as many dims as the DTensor has
        result = torch.empty(shape, dtype=like.dtype, device=device)
    spec = _meta_of(target.device_mesh, target.placements, like.shape, like.dtype)
    return DTensor(result, spec, requires_grad=False)


@lru_cache(maxsize=4096)
def _meta_of(
    device_mesh: DeviceMesh, placements: tuple[Any, ...], shape: torch.Size, dtype: torch.dtype
) -> DTensorSpec:
    strides = torch.empty(shape, device="meta").stride()
    return DTensorSpec(device_mesh, placements, tensor_meta=TensorMeta(shape, strides, dtype))
