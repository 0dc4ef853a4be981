"""The calls of a plan as functions of JAX, for one device inside ``shard_map``."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from redist.jax.types import name_of
from redist.layout.mesh import Mesh
from redist.lower.calls import (
    Arrange,
    Axes,
    Calls,
    Collect,
    CombineAll,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
)

REDUCE = {"sum": jnp.sum, "prod": jnp.prod, "max": jnp.max, "min": jnp.min}


def run_calls(calls: Calls, x: Any) -> Any:
    """What a device holds after all calls."""
    mesh = calls.source.mesh
    for call in calls.calls:
        match call:
            case Arrange(shape, order):
                x = jnp.transpose(x.reshape(shape), order)
            case Select(axes, shape, at):
                starts = [jnp.int32(0)] * len(shape)
                for k, axis in zip(at, axes, strict=True):
                    starts[k] = _place(mesh, (axis,))
                sizes = [1 if k in at else n for k, n in enumerate(shape)]
                x = lax.dynamic_slice(x.reshape(shape), starts, sizes)
                x = jnp.squeeze(x, at)
            case Swap(axes, shape):
                blocks = _blocks(x, axes, shape)
                x = lax.all_to_all(blocks, _names(mesh, axes), 0, 0, tiled=True)
                x = _unfolded(x, axes)
            case Collect(axes, shape):
                x = _unfolded(lax.all_gather(x.reshape(shape), _names(mesh, axes), axis=0), axes)
            case Scatter(axes, shape, "sum"):
                blocks = _blocks(x, axes, shape)
                x = lax.psum_scatter(blocks, _names(mesh, axes), scatter_dimension=0)
            case Scatter(axes, shape, op):
                blocks = _blocks(x, axes, shape)
                swapped = lax.all_to_all(blocks, _names(mesh, axes), 0, 0, tiled=True)
                x = REDUCE[op](swapped, axis=0).astype(x.dtype)
            case CombineAll(axes, op):
                x = _combine(x, _names(mesh, axes), op)
            case Embed(axes, shape, op):
                empty = jnp.full((_count(axes), *shape), _identity(op, x.dtype), x.dtype)
                x = lax.dynamic_update_index_in_dim(empty, x.reshape(shape), _place(mesh, axes), 0)
                x = _unfolded(x, axes)
            case Keep(axes, op):
                x = jnp.where(_place(mesh, axes) == 0, x, _identity(op, x.dtype))
            case Permute():
                x = _permute(call, calls, x)
    return x.reshape(calls.target.tile_shape)


def _names(mesh: Mesh, axes: Axes) -> tuple[str, ...]:
    return tuple(name_of(mesh, axis) for axis in axes)


def _count(axes: Axes) -> int:
    return int(np.prod([axis.size for axis in axes], dtype=np.int64))


def _blocks(x: Any, axes: Axes, shape: tuple[int, ...]) -> Any:
    """The tile as a row of blocks: its leading dims, one for each axis, become one."""
    return x.reshape(_count(axes), *shape[len(axes) :])


def _unfolded(x: Any, axes: Axes) -> Any:
    """A row of blocks, with a dim for every axis again."""
    return x.reshape(*(axis.size for axis in axes), *x.shape[1:])


def _place(mesh: Mesh, axes: Axes) -> Any:
    """This device's place in its group."""
    return lax.axis_index(_names(mesh, axes))


def _combine(x: Any, names: tuple[str, ...], op: str) -> Any:
    match op:
        case "sum":
            return lax.psum(x, names)
        case "max":
            return lax.pmax(x, names)
        case "min":
            return lax.pmin(x, names)
        case _:
            return jnp.prod(lax.all_gather(x, names), axis=0).astype(x.dtype)


def _identity(op: str, dtype: Any) -> Any:
    match op:
        case "sum":
            return np.zeros((), dtype)
        case "prod":
            return np.ones((), dtype)
        case _:
            if dtype == np.bool_:
                return np.bool_(op == "min")
            info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype)
            lowest = -np.inf if jnp.issubdtype(dtype, jnp.floating) else info.min
            highest = np.inf if jnp.issubdtype(dtype, jnp.floating) else info.max
            return np.asarray(lowest if op == "max" else highest, dtype)


def _permute(call: Permute, calls: Calls, x: Any) -> Any:
    """Boxes change hands: each device cuts its own out, and puts what it gets in place."""
    mesh = calls.source.mesh
    x = x.reshape(call.source_shape)
    me = _place(mesh, calls.atoms)
    n = mesh.n_devices
    fill = 0 if call.op is None else _identity(call.op, x.dtype)
    out = jnp.full(call.target_shape, fill, x.dtype)
    names = _names(mesh, calls.atoms)
    for row in call.rows:
        shape = row[0].source.shape
        starts = np.zeros((2, n, len(shape)), np.int32)
        gets = np.zeros(n, np.bool_)
        for move in row:
            starts[0, move.sender] = move.source.start
            starts[1, move.receiver] = move.target.start
            gets[move.receiver] = True
        box = lax.dynamic_slice(x, list(jnp.asarray(starts[0])[me]), shape)
        pairs = [(move.sender, move.receiver) for move in row]
        if any(a != b for a, b in pairs):
            box = lax.ppermute(box, names, pairs)
        at = list(jnp.asarray(starts[1])[me])
        if row[0].order or not gets.all():
            there = lax.dynamic_slice(out, at, shape)
            if row[0].order:
                joined = REDUCE[call.op or "sum"](jnp.stack([there, box]), axis=0)
                box = jnp.where(jnp.asarray(gets)[me], joined.astype(x.dtype), there)
            else:
                box = jnp.where(jnp.asarray(gets)[me], box, there)
        out = lax.dynamic_update_slice(out, box, at)
    return out
