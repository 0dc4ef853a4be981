"""Rules of functions that arrange elements anew: each is undone, or what was repeated is summed."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas import reductions
from redist.pgas.creation import empty_like, eye, full_like, ones_like, zeros_like
from redist.pgas.elementwise.binary import where
from redist.pgas.global_array import Array
from redist.pgas.gradients.cotangents import along, full, unstretched
from redist.pgas.gradients.rules.table import Owed, constant, rule, rule_of_one, same
from redist.pgas.indexing import dispatch
from redist.pgas.indexing.adding import add_at
from redist.pgas.methods import imaginary_part, real_part
from redist.pgas.products.einsum import copied
from redist.pgas.shapes.diagonals import diagonal, tril, triu
from redist.pgas.shapes.join import concat, stack
from redist.pgas.shapes.permute import expand_dims, permute_dims, squeeze
from redist.pgas.shapes.repeat import broadcast_arrays, broadcast_to, meshgrid, repeat, tile
from redist.pgas.shapes.shift import flip, roll
from redist.pgas.shapes.take import unstack
from redist.pgas.tiles.arguments import dims_of
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.move import move_as_asked, settled
from redist.pgas.tiles.reshape import reshape

constant(empty_like, full_like, zeros_like, ones_like)


@rule(move_as_asked)
def _move(owed: Owed) -> list[Any]:
    """To another mesh: back to where the array was. On one mesh it is the same array."""
    (x,) = owed.operands
    if owed.y.mesh == x.mesh:
        return [owed.g]
    return [owed.whole.to(x.type.with_pending(None, ()))]


# An array has one meaning wherever it lies: so has its cotangent, which lies where a plan says.
rule(settled, Array.copy, copied, real_part)(same)
rule(imaginary_part)(lambda owed: [owed.g * -1j])
rule_of_one(reshape)(lambda g, y, x, *_, **__: reshape(g, x.shape))
rule_of_one(flip)(lambda g, y, x, **options: flip(g, **options))
rule_of_one(tril)(lambda g, y, x, **options: tril(g, **options))
rule_of_one(triu)(lambda g, y, x, **options: triu(g, **options))


@rule_of_one(Array.to_device)
def _to_device(g: Any, y: Any, x: Any, device: str, /, **_: Any) -> Any:
    return g.to_device(kind_of(x) or "cpu")


@rule(permute_dims)
def _permute_dims(owed: Owed) -> list[Any]:
    x, axes = _given(owed, "axes")
    order = dims_of(tuple(axes), x.ndim)
    return [permute_dims(owed.g, tuple(order.index(i) for i in range(x.ndim)))]


@rule(expand_dims)
def _expand_dims(owed: Owed) -> list[Any]:
    _, axis = _given(owed, "axis", 0)
    return [squeeze(owed.g, dims_of(axis, owed.y.ndim))]


@rule(squeeze)
def _squeeze(owed: Owed) -> list[Any]:
    x, axis = _given(owed, "axis")
    return [expand_dims(owed.g, axis=dims_of(axis, x.ndim))]


def _given(owed: Owed, name: str, instead: Any = None) -> tuple[Any, Any]:
    """The array, and an argument that has a name."""
    x, *rest = owed.args
    return x, rest[0] if rest else owed.options.get(name, instead)


@rule(broadcast_to)
def _broadcast_to(owed: Owed) -> list[Any]:
    return [unstretched(owed.g, owed.args[0].shape, owed.y.shape)]


@rule(broadcast_arrays)
def _broadcast_arrays(owed: Owed) -> list[Any]:
    return [
        None if g is None else unstretched(g, x.shape, y.shape)
        for g, y, x in zip(owed.g, owed.y, owed.args, strict=True)
    ]


@rule(meshgrid)
def _meshgrid(owed: Owed) -> list[Any]:
    found = []
    swaps = owed.options.get("indexing", "xy") == "xy" and len(owed.args) > 1
    for i, (g, y, x) in enumerate(zip(owed.g, owed.y, owed.args, strict=True)):
        dim = 1 - i if swaps and i < 2 else i
        rest = tuple(k for k in range(y.ndim) if k != dim)
        found.append(
            None if g is None else reshape(reductions.sum(full(g, y.shape), axis=rest), x.shape)
        )
    return found


@rule_of_one(roll)
def _roll(g: Any, y: Any, x: Any, shift: Any, **options: Any) -> Any:
    back: Any = -shift if isinstance(shift, (int, np.integer)) else tuple(-by for by in shift)
    return roll(g, back, **options)


@rule_of_one(repeat)
def _repeat(g: Any, y: Any, x: Any, repeats: Any, *, axis: int | None = None) -> Any:
    if isinstance(repeats, Array):
        repeats = repeats.gather()
    shape, dim = ((x.size,), 0) if axis is None else (x.shape, axis % x.ndim)
    counts = np.asarray(repeats).reshape(-1)
    if counts.size == 1:
        n = int(counts[0])
        apart = reshape(g, (*shape[: dim + 1], n, *shape[dim + 1 :]))
        return reshape(reductions.sum(apart, axis=dim + 1), x.shape)
    which = np.repeat(np.arange(shape[dim]), counts)
    return reshape(add_at(g, along(dim, which), shape), x.shape)


@rule_of_one(tile)
def _tile(g: Any, y: Any, x: Any, repetitions: Any) -> Any:
    times = (1,) * (x.ndim - len(repetitions)) + tuple(int(n) for n in repetitions)
    own = (1,) * (len(times) - x.ndim) + x.shape
    apart = reshape(g, tuple(n for pair in zip(times, own, strict=True) for n in pair))
    return reshape(reductions.sum(apart, axis=tuple(range(0, 2 * len(own), 2))), x.shape)


@rule(concat)
def _concat(owed: Owed) -> list[Any]:
    arrays = list(owed.args[0])
    axis = owed.options.get("axis", 0)
    dim, at, found = 0 if axis is None else axis % arrays[0].ndim, 0, []
    for i, x in enumerate(arrays):
        n = x.size if axis is None else x.shape[dim]
        if i in owed.needed:
            part = dispatch.get(owed.whole, along(dim, slice(at, at + n)))
            found.append(reshape(part, x.shape) if axis is None else part)
        else:
            found.append(None)
        at += n
    return found


@rule(stack)
def _stack(owed: Owed) -> list[Any]:
    dim = owed.options.get("axis", 0) % owed.y.ndim
    return [
        dispatch.get(owed.whole, along(dim, i)) if i in owed.needed else None
        for i in range(len(owed.operands))
    ]


@rule(unstack)
def _unstack(owed: Owed) -> list[Any]:
    parts = [
        zeros_like(y) if g is None else full(g, y.shape)
        for g, y in zip(owed.g, owed.y, strict=True)
    ]
    return [stack(parts, axis=owed.options.get("axis", 0) % owed.args[0].ndim)]


@rule_of_one(diagonal)
def _diagonal(g: Any, y: Any, x: Any, first: int, second: int, offset: int = 0) -> Any:
    """Put elements back on the diagonal: those of a row stand at its end, and the mask chooses one each."""
    rows, columns = x.shape[first], x.shape[second]
    above, n = min(rows, max(0, -offset)), y.shape[-1]  # none of a diagonal outside
    sizes = above, rows - above - n
    pads = [
        zeros_like(broadcast_to(g.sum(axis=-1, keepdims=True), (*y.shape[:-1], k))) for k in sizes
    ]
    if any(sizes):
        parts = [pads[0], g, pads[1]]
        g = concat([one for one in parts if one.shape[-1]], axis=-1)
    mask = eye(rows, columns, k=offset, dtype=bool, mesh=x.mesh, comm=x.comm, device=kind_of(x))
    wide = where(mask, expand_dims(g, axis=-1), g.dtype.type(0))
    order: list[int] = [i for i in range(x.ndim) if i not in (first, second)] + [first, second]
    return permute_dims(wide, tuple(order.index(i) for i in range(x.ndim)))
