"""New global arrays: every rank makes its own tile, and nothing moves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from redist.errors import LayoutError, RequestError, ShapeError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.array import Array
from redist.pgas.boxes import Box, own_box
from redist.pgas.buffers import check_room
from redist.pgas.buffers import empty as empty_tile
from redist.pgas.elementwise import astype
from redist.pgas.moving import tile_shape
from redist.pgas.tiled import Tile, Tiled
from redist.pgas.types import dtype_of, line_mesh, parse_dims
from redist.runtime.comm import Comm, comm_or_world

Type = str | ArrayType

PART_BYTES = 2**16
"""Tiles are written in parts of so many bytes."""


def make(
    shape: int | Sequence[int],
    dtype: Any,
    fill: Callable[[Tile, Box], None] | None,
    type: Type | None = None,
    mesh: Mesh | None = None,
    comm: Comm | None = None,
) -> Array:
    """**Local.** An array whose tiles ``fill`` writes, given the tile and the box of its indices."""
    sizes = sizes_of(shape)
    comm = comm_or_world(comm)
    if isinstance(type, ArrayType):
        mesh = type.mesh
    mesh = line_mesh(comm.size) if mesh is None else mesh
    if max(mesh.ranks) >= comm.size:
        raise LayoutError(f"cannot use the mesh {mesh}: the communicator has {comm.size} ranks")
    t = parse_dims(type, mesh, dtype_of(np.dtype(dtype)), sizes)
    if t.pending_op is not None:
        raise RequestError(f"cannot make an array of type {t}: nothing is pending in a new one")
    own = tile_shape(t, comm.rank)
    check_room(t.tile_bytes)
    tile = None if own is None else empty_tile(own, t.dtype.to_numpy(), t.tile_bytes)
    made = Array(t, comm, tile)
    if tile is not None and fill is not None and tile.size:
        for part, box in _parts(tile, own_box(made)):
            fill(part, box)
    return made


def _parts(tile: Tile, box: Box) -> Iterator[tuple[Tile, Box]]:
    """A tile in parts of at most :data:`PART_BYTES`: what is made on the way takes no more."""
    if tile.nbytes <= PART_BYTES or tile.ndim == 0:
        yield tile, box
        return
    dim = next(i for i, n in enumerate(tile.shape) if n > 1)
    n = max(1, tile.shape[dim] * PART_BYTES // tile.nbytes)
    lo, hi = box[dim]
    for at in range(lo, hi, n):
        end = min(hi, at + n)
        part = tile[(slice(None),) * dim + (slice(at - lo, end - lo),)]
        yield from _parts(part, (*box[:dim], (at, end), *box[dim + 1 :]))


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as given: one int or several."""
    try:
        given = shape if isinstance(shape, (tuple, list)) else (shape,)
        sizes = tuple(operator.index(n) for n in given)
    except TypeError:
        raise TypeError(
            f"cannot use {shape!r} as a shape: need an int, or a tuple of ints"
        ) from None
    if min(sizes, default=0) < 0:
        raise ShapeError(f"cannot use {sizes} as a shape: a size is negative")
    return sizes


def empty(shape: Any, *, dtype: Any = None, device: Any = None, **where: Any) -> Array:
    """**Local.** An array with any contents; ``type``, ``mesh`` and ``comm`` say where it lies."""
    _check_device(device)
    return make(shape, _float(dtype), None, **where)


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, **where: Any
) -> Array:
    """**Local.** An array of one value."""
    _check_device(device)
    value = np.asarray(_numbers(fill_value), dtype=dtype)
    if value.ndim:
        raise TypeError(f"cannot fill with an array of shape {value.shape}: need one number")
    return make(shape, value.dtype, lambda tile, box: tile.fill(value[()]), **where)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None, **where: Any) -> Array:
    """**Local.** An array of zeros: ``pgas.zeros((4096, 4096), type="{x}, {}")``."""
    return full(shape, 0, dtype=_float(dtype), device=device, **where)


def ones(shape: Any, *, dtype: Any = None, device: Any = None, **where: Any) -> Array:
    """**Local.** An array of ones."""
    return full(shape, 1, dtype=_float(dtype), device=device, **where)


def empty_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, with any contents."""
    _check_device(device)
    return _like(x, dtype, None)


def full_like(x: Tiled, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of one value."""
    _check_device(device)
    value = np.asarray(_numbers(fill_value), dtype=x.dtype if dtype is None else dtype)
    if value.ndim:
        raise TypeError(f"cannot fill with an array of shape {value.shape}: need one number")
    return _like(x, value.dtype, lambda tile, box: tile.fill(value[()]))


def zeros_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of ones."""
    return full_like(x, 1, dtype=dtype, device=device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    **where: Any,
) -> Array:  # fmt: skip
    """**Local.** Evenly spaced values, ``start + k * step`` below ``stop``."""
    _check_device(device)
    start, stop, step = (_numbers(v) for v in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise RequestError("cannot make a range with step 0")
    exact = all(isinstance(v, (int, np.integer)) for v in (start, stop, step))
    if exact:
        start, stop, step = int(start), int(stop), int(step)
        n = max(0, -((start - stop) // step))
    else:
        n = max(0, math.ceil((stop - start) / step))
        step = (start + step) - start  # as NumPy rounds it
    kind = np.dtype(int if exact else float) if dtype is None else np.dtype(dtype)

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        tile[...] = start + step * np.arange(lo, hi)

    return make((n,), kind, fill, **where)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True, **where: Any,
) -> Array:  # fmt: skip
    """**Local.** ``num`` evenly spaced values from start to stop."""
    _check_device(device)
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"cannot make {num} values: need 0 or more")
    start, stop = _numbers(start), _numbers(stop)
    kind = np.linspace(start, stop, 2).dtype if dtype is None else np.dtype(dtype)
    step = (stop - start) / max(1, num - 1 if endpoint else num)

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        values = np.arange(lo, hi) * step + start
        if endpoint and num > 1 and hi == num:
            values[-1] = stop
        tile[...] = (np.floor(values) if kind.kind in "iu" else values).astype(kind)

    return make(num, kind, fill, **where)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    device: Any = None, **where: Any,
) -> Array:  # fmt: skip
    """**Local.** Ones on a diagonal, zeros elsewhere."""
    _check_device(device)
    n_cols = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, n_cols))

    def fill(tile: Tile, box: Box) -> None:
        (r0, r1), (c0, c1) = box
        tile[...] = np.arange(r0, r1)[:, None] + k == np.arange(c0, c1)[None, :]

    return make((n_rows, n_cols), _float(dtype), fill, **where)


def from_function(
    function: Callable[..., Any], shape: Any, *, dtype: Any = None, **where: Any
) -> Array:
    """**Local.** ``function(i, j, ...)`` of the indices, given as arrays that broadcast.

    ``pgas.from_function(lambda i, j: i + 10 * j, (4, 4), dtype="i8")``; float64 if no dtype is named.
    """
    sizes = sizes_of(shape)
    if dtype is None and 0 not in sizes:
        with np.errstate(all="ignore"):
            made = np.asarray(
                function(*(np.zeros((1,) * len(sizes), np.int64) for _ in sizes))
            ).dtype
        if made.kind == "c":
            raise TypeError(f"cannot keep values of {made} in float64: name a dtype")

    def fill(tile: Tile, box: Box) -> None:
        n = len(box)
        index = [
            np.arange(lo, hi).reshape([-1 if d == i else 1 for d in range(n)])
            for i, (lo, hi) in enumerate(box)
        ]
        tile[...] = function(*index)

    return make(shape, _float(dtype), fill, **where)


def from_local(
    local: Tile | None, type: Type, *, mesh: Mesh | None = None, comm: Comm | None = None
) -> Array:
    """**Local.** A global array from tiles that the ranks have; no copy.

    ``pgas.from_local(tile, "f64[4096{x}, 512]", mesh=redist.Mesh(x=4))``
    """
    comm = comm_or_world(comm)
    if isinstance(type, str):
        type = ArrayType.parse(type, line_mesh(comm.size) if mesh is None else mesh)
    if local is not None and not isinstance(local, np.ndarray):
        raise TypeError(f"cannot use {local!r} as a tile: need a NumPy array, or None")
    shape = tile_shape(type, comm.rank)
    if (None if local is None else local.shape) != shape:
        have = "no tile" if local is None else f"a tile of shape {local.shape}"
        raise RequestError(f"cannot make {type} from {have}: rank {comm.rank} must give {shape}")
    if local is not None and local.dtype != type.dtype.to_numpy():
        raise RequestError(f"cannot make {type} from a tile of {local.dtype}")
    return Array(type, comm, local)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None, **where: Any
) -> Array:
    """**Local.** A global array from what all ranks have alike: numbers, lists, NumPy arrays.

    Every rank keeps its part and moves nothing. A global array is returned as it is.
    """
    _check_device(device)
    if isinstance(obj, Tiled):
        kind = obj.dtype if dtype is None else np.dtype(dtype)
        if copy is False and kind != obj.dtype:
            raise ValueError(f"cannot turn {obj.dtype} into {kind} without a copy")
        if where:
            raise ValueError(f"cannot place {obj.type} anew by {', '.join(where)}=: use a.to(type)")
        array = obj if isinstance(obj, Array) else Array(obj.type, obj.comm, obj.local)
        if kind != obj.dtype:
            return astype(array, kind)
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(
            "cannot make a global array of it without a copy: pgas.from_local shares tiles"
        )
    try:
        whole = np.asarray(obj, dtype=dtype)
    except TypeError:
        whole = np.asarray(_numbers(obj), dtype=dtype)

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = whole[tuple(slice(lo, hi) for lo, hi in box)]

    return make(whole.shape, whole.dtype, fill, **where)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """**Local.** A global array from any library's array that all ranks have alike.

    It is whole on every rank and shares the memory, where no copy is asked for.
    """
    _check_device(device)
    if isinstance(x, Tiled):
        return asarray(x, copy=copy)
    whole = np.from_dlpack(x, copy=copy)
    comm = comm_or_world(None)
    t = ArrayType(line_mesh(comm.size), dtype_of(whole.dtype), whole.shape, ((),) * whole.ndim)
    return from_local(whole, t, comm=comm)


def _numbers(obj: Any) -> Any:
    """**Collective.** Nested lists with the numbers of global arrays without dims."""
    if isinstance(obj, (list, tuple)):
        return [_numbers(one) for one in obj]
    if not isinstance(obj, Tiled):
        return obj
    if obj.ndim:
        raise TypeError(
            f"cannot make an array from a list of arrays of {obj.shape}: use pgas.stack"
        )
    return Array(obj.type, obj.comm, obj.local).gather()[()]


def _like(x: Tiled, dtype: Any, fill: Callable[[Tile, Box], None] | None) -> Array:
    kind = x.dtype if dtype is None else np.dtype(dtype)
    t = ArrayType(x.mesh, dtype_of(kind), x.shape, x.type.dims)
    return make(x.shape, kind, fill, t, comm=x.comm)


def _float(dtype: Any) -> np.dtype[Any]:
    return np.dtype(float if dtype is None else dtype)


def _check_device(device: Any) -> None:
    if device not in (None, "cpu"):
        raise ValueError(f"cannot use device {device!r}: tiles lie in memory, on 'cpu'")
