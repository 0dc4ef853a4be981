"""Repeat values: each rank repeats its own, and elements move if tiles become uneven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, IndexKeyError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.indexing import dispatch
from redist.pgas.indexing.integer import gather_small
from redist.pgas.kinds import number_kind
from redist.pgas.tiles.arguments import takes_array, takes_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike, copy_to_host
from redist.pgas.tiles.layouts import (
    Dims,
    Shape,
    default_dims,
    dtype_of,
    idle_parts,
    make_type,
    meet,
    operand_type,
    place_axes,
    with_dtype,
)
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tiled
from redist.pgas.watch.seam import traffic
from redist.runtime.cuda.loops import functions_for
from redist.runtime.elements.by_position import rounds_of


@asked
@takes_array
def broadcast_to(x: T, /, shape: Sequence[int]) -> T:
    """**Collective** if a stretched dim is cut. Repeat values along dims of size 1 and along new dims.

    Axes that ``x`` does not use cut the result: each rank makes its part by itself.
    """
    x = resolve_pending(x)
    sizes = tuple(int(n) for n in shape)
    missing = len(sizes) - x.ndim
    if missing < 0 or any(n not in (1, m) for n, m in zip(x.shape, sizes[missing:], strict=True)):
        raise ArgumentError(f"cannot broadcast {x.shape} to {sizes}")
    own = tuple(
        d if n == m else () for n, m, d in zip(x.shape, sizes[missing:], x.type.dims, strict=True)
    )
    dims: Dims = ((),) * missing + own
    if sizes == x.shape:
        return spread(x, x.type)
    return spread(x, place_axes(x.type, sizes, dims, idle_parts(x.type, dims)))


def spread(x: T, t: ArrayType) -> T:
    """**Collective** if x must move. Broadcast values to an array of type ``t``."""
    x = move(x, operand_type(x.type, t))
    tile = new_tile(x, t)
    if tile is not None and x.tile is not None:
        tile[...] = x.tile
    return x.new(t, tile)


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """**Local.** The shape to which arrays of these shapes broadcast.

    >>> broadcast_shapes((8, 1, 3), (4, 1))
    (8, 4, 3)
    """
    try:
        return np.broadcast_shapes(*(tuple(shape) for shape in shapes))
    except ValueError:
        together = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ArgumentError(f"cannot broadcast shapes {together} together") from None


@asked
@takes_arrays
def broadcast_arrays(*arrays: T) -> tuple[T, ...]:
    """**Collective** if arrays must move. Broadcast arrays to one shape and one layout."""
    if not arrays:
        return ()
    broadcast_shapes(*(x.shape for x in arrays))
    _check(arrays)
    *_, t = meet(tuple(x.type for x in arrays))
    return tuple(spread(resolve_pending(x), with_dtype(t, x.type.dtype)) for x in arrays)


@asked
@takes_arrays
def meshgrid(*arrays: T, indexing: str = "xy") -> tuple[T, ...]:
    """**Collective** if arrays must move. Make the coordinates of a grid from those along each dim."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"unknown indexing {indexing!r}; known: 'xy', 'ij'")
    if not arrays:
        return ()
    if any(x.ndim > 1 for x in arrays):
        raise ArgumentError("cannot make a grid from arrays of more than one dim")
    if len({x.dtype for x in arrays}) > 1:
        raise ArgumentError("cannot make a grid from arrays of several dtypes")
    _check(arrays)
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    sizes = [x.size for x in arrays]
    shape = tuple(sizes[order.index(i)] for i in range(len(arrays)))
    mesh = arrays[0].mesh
    out = []
    for x, at in zip(arrays, order, strict=True):
        own = tuple(sizes[order.index(i)] if i == at else 1 for i in range(len(arrays)))
        t = make_type(mesh, x.type.dtype, shape, default_dims(mesh, shape))
        out.append(spread(reshape(x, own), t))
    return tuple(out)


@asked
@takes_array
def repeat(x: T, repeats: Any, /, *, axis: int | None = None) -> T:
    """**Collective** if tiles become uneven. Repeat each element, one copy after another."""
    x = resolve_pending(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    if not -x.ndim <= axis < x.ndim:
        raise IndexKeyError(f"there is no dim {axis}: the array has {x.ndim}")
    dim, n = axis % x.ndim, x.shape[axis]
    if isinstance(repeats, Tiled):
        check_alike("repeat", x, repeats)
        if repeats.memory.on_device and repeats.size > 1:
            _check_counts(repeats, n)
            return dispatch.get(x, (*(slice(None),) * dim, _listed_on_gpu(repeats)))
        repeats = gather_small(resolve_pending(copy_to_host(repeats)))
    counts = np.asarray(repeats)
    _check_counts(counts, n)
    if counts.size and int(counts.min()) < 0:
        raise ArgumentError(NEGATIVE)
    if counts.size != 1:
        which = np.repeat(np.arange(n), counts)
        return dispatch.get(x, (*(slice(None),) * dim, which))
    times = int(counts.reshape(-1)[0])
    return _times(x, {dim: times}, behind=True)


NEGATIVE = "cannot repeat less than 0 times"


def _check_counts(counts: Any, n: int) -> None:
    """Raise if these cannot be how often each of ``n`` elements is repeated."""
    if number_kind(counts.dtype) not in "iu":
        raise ArgumentTypeError(f"cannot repeat {counts.dtype} times: use integers")
    if counts.ndim > 1 or (counts.ndim == 1 and counts.size not in (1, n)):
        raise ArgumentError(f"cannot repeat {n} elements by counts of shape {counts.shape}")


def _listed_on_gpu(counts: T) -> T:
    """**Collective.** Which element is at each place once they are repeated, whole on every GPU."""
    traffic().require_data("a repetition by an array", "its size depends on values")
    counts = resolve_pending(counts)
    whole = make_type(counts.mesh, counts.type.dtype, counts.shape, ((),))
    own = move(counts, whole).tile
    wrong = own is not None and int(own.min()) < 0
    total = 0 if own is None or wrong else int(own.sum())
    total, wrong = rounds_of(counts.comm, total, wrong, 1)  # the same on all ranks that have it
    if wrong:
        raise ArgumentError(NEGATIVE)
    t = make_type(counts.mesh, dtype_of(np.dtype(np.int64)), (total,), ((),))
    if own is None:
        return counts.new(t, None)
    ends = np.cumsum(own, dtype=np.int64)
    numbers = functions_for(own).arange(total)
    return counts.new(t, np.searchsorted(ends, numbers, side="right"))


@asked
@takes_array
def tile(x: T, repetitions: Sequence[int], /) -> T:
    """**Collective** if tiles become uneven. Repeat the whole array along every dim."""
    times = tuple(int(n) for n in repetitions)
    x = resolve_pending(x)
    if len(times) > x.ndim:
        x = reshape(x, (1,) * (len(times) - x.ndim) + x.shape)
    first = x.ndim - len(times)
    return _times(x, {first + i: n for i, n in enumerate(times)}, behind=False)


def _times(x: T, times: dict[int, int], behind: bool) -> T:
    """Repeat along dims: add a new dim beside each, then join both."""
    order: list[int] = []  # dims, and ~dim for the new one beside it
    for i in range(x.ndim):
        pair = [i] if times.get(i, 1) == 1 else [i, ~i]
        order += pair if behind else pair[::-1]
    shape = tuple(x.shape[i] if i >= 0 else 1 for i in order)
    wide = tuple(x.shape[i] if i >= 0 else times[~i] for i in order)
    dims = tuple(x.type.dims[i] if i >= 0 else () for i in order)
    t, t_wide = (make_type(x.mesh, x.type.dtype, sizes, dims) for sizes in (shape, wide))
    tile = x.tile
    if tile is not None:
        tile = tile.reshape([tile.shape[i] if i >= 0 else 1 for i in order])
    joined = tuple(n * times.get(i, 1) for i, n in enumerate(x.shape))
    return reshape(spread(x.new(t, tile), t_wide), joined)


def _check(arrays: Sequence[Tiled]) -> None:
    check_alike("broadcast", *arrays)
    for x in arrays[1:]:
        if x.comm != arrays[0].comm or x.mesh != arrays[0].mesh:
            raise RequestError(
                f"cannot broadcast arrays on {arrays[0].mesh} and on {x.mesh}: bring them to one "
                "mesh with .to(type)"
            )
