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
from redist.layout.tiles import Box
from redist.pgas.array import Array
from redist.pgas.device_array import DeviceArray
from redist.pgas.elementwise.apply import astype
from redist.pgas.memory import TileMemory
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.devices import is_gpu, kind_of
from redist.pgas.tiles.layouts import dtype_of, line_mesh, parse_dims
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.ownership import own_box
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, fill_with, to_device, to_host
from redist.runtime.ranks.world import Comm, comm_or_world

Type = str | ArrayType

PART_BYTES = 2**16
"""Tiles are written in parts of so many bytes."""
CARRIED_BYTES = 2**24
"""Tiles of GPUs are written in memory and carried over in parts of so many bytes."""


def make(
    shape: int | Sequence[int],
    dtype: Any,
    fill: Callable[[Tile, Box], None] | None,
    type: Type | None = None,
    mesh: Mesh | None = None,
    comm: Comm | None = None,
    device: Any = None,
    anywhere: bool = False,
) -> Array:
    """**Local.** An array whose tiles ``fill`` writes, given the tile and the box of its indices.

    It writes into memory, also for tiles on GPUs, unless it can write ``anywhere``.
    """
    kind = DeviceArray if is_gpu(device) else Array
    memory = kind._memory
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
    memory.check_room(t.tile_bytes)
    tile = None if own is None else memory.empty(own, t.dtype.to_numpy(), t.tile_bytes)
    made = kind(t, comm, tile)
    if tile is not None and fill is not None and tile.size:
        if anywhere and memory.on_device:
            fill(tile, own_box(made))
        elif memory.on_device:
            _carry_over(tile, own_box(made), fill, memory)
        else:
            for part, box in _parts(tile, own_box(made)):
                fill(part, box)
    return made


def _carry_over(
    tile: Tile, box: Box, fill: Callable[[Tile, Box], None], memory: TileMemory
) -> None:
    """Write a tile of a GPU: parts are made in memory, with the same values as there."""
    for part, inner in _parts(tile, box, CARRIED_BYTES):
        made = np.empty(part.shape, part.dtype)
        for small, its_box in _parts(made, inner):
            fill(small, its_box)
        part[...] = memory.asarray(made)


def _parts(tile: Tile, box: Box, most_bytes: int = PART_BYTES) -> Iterator[tuple[Tile, Box]]:
    """A tile in parts of at most so many bytes: what is made on the way takes no more."""
    if tile.nbytes <= most_bytes or tile.ndim == 0:
        yield tile, box
        return
    dim = next(i for i, n in enumerate(tile.shape) if n > 1)
    n = max(1, tile.shape[dim] * most_bytes // tile.nbytes)
    lo, hi = box[dim]
    for at in range(lo, hi, n):
        end = min(hi, at + n)
        part = tile[(slice(None),) * dim + (slice(at - lo, end - lo),)]
        yield from _parts(part, (*box[:dim], (at, end), *box[dim + 1 :]), most_bytes)


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
    """**Local.** An array with any contents; ``type``, ``mesh`` and ``comm`` say where it lies.

    ``device="cuda"`` puts the tiles onto the ranks' GPUs, here and in the functions below.
    """
    return make(shape, _float(dtype), None, device=device, **where)


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, **where: Any
) -> Array:
    """**Local.** An array of one value."""
    value = np.asarray(_numbers(fill_value), dtype=dtype)
    if value.ndim:
        raise TypeError(f"cannot fill with an array of shape {value.shape}: need one number")
    options = {"device": device, "anywhere": True, **where}
    return make(shape, value.dtype, lambda tile, box: fill_with(tile, value), **options)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None, **where: Any) -> Array:
    """**Local.** An array of zeros: ``pgas.zeros((4096, 4096), type="{x}, {}")``."""
    return full(shape, 0, dtype=_float(dtype), device=device, **where)


def ones(shape: Any, *, dtype: Any = None, device: Any = None, **where: Any) -> Array:
    """**Local.** An array of ones."""
    return full(shape, 1, dtype=_float(dtype), device=device, **where)


@takes_array
def empty_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, with any contents."""
    return _like(x, dtype, None, device)


@takes_array
def full_like(x: Tiled, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of one value."""
    value = np.asarray(_numbers(fill_value), dtype=x.dtype if dtype is None else dtype)
    if value.ndim:
        raise TypeError(f"cannot fill with an array of shape {value.shape}: need one number")
    return _like(x, value.dtype, lambda tile, box: fill_with(tile, value), device)


@takes_array
def zeros_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


@takes_array
def ones_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another, of ones."""
    return full_like(x, 1, dtype=dtype, device=device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    **where: Any,
) -> Array:  # fmt: skip
    """**Local.** Evenly spaced values, ``start + k * step`` below ``stop``."""
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

    return make((n,), kind, fill, device=device, **where)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True, **where: Any,
) -> Array:  # fmt: skip
    """**Local.** ``num`` evenly spaced values from start to stop."""
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

    return make(num, kind, fill, device=device, **where)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    device: Any = None, **where: Any,
) -> Array:  # fmt: skip
    """**Local.** Ones on a diagonal, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, n_cols))

    def fill(tile: Tile, box: Box) -> None:
        (r0, r1), (c0, c1) = box
        tile[...] = np.arange(r0, r1)[:, None] + k == np.arange(c0, c1)[None, :]

    return make((n_rows, n_cols), _float(dtype), fill, device=device, **where)


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
    local: Any, type: Type, *, mesh: Mesh | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** A global array from tiles that the ranks have, of NumPy or on GPUs; no copy.

    ``pgas.from_local(tile, "f64[4096{x}, 512]", mesh=redist.Mesh(x=4))``. A rank outside the mesh,
    which has no tile, says by ``device="cuda"`` that the others' are on GPUs.
    """
    comm = comm_or_world(comm)
    if isinstance(type, str):
        type = ArrayType.parse(type, line_mesh(comm.size) if mesh is None else mesh)
    on_device = is_device(local) if local is not None else is_gpu(device)
    if local is not None and device is not None and is_gpu(device) != on_device:
        raise ValueError(f"cannot use a tile that is not on {device!r} there: copy it first")
    if on_device and local is not None:
        local = as_device(local)
    elif local is not None and not isinstance(local, np.ndarray):
        raise TypeError(f"cannot use {local!r} as a tile: need a NumPy array, or None")
    shape = tile_shape(type, comm.rank)
    if (None if local is None else local.shape) != shape:
        have = "no tile" if local is None else f"a tile of shape {local.shape}"
        raise RequestError(f"cannot make {type} from {have}: rank {comm.rank} must give {shape}")
    if local is not None and local.dtype != type.dtype.to_numpy():
        raise RequestError(f"cannot make {type} from a tile of {local.dtype}")
    return (DeviceArray if on_device else Array)(type, comm, local)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None, **where: Any
) -> Array:
    """**Local.** A global array from what all ranks have alike: numbers, lists, NumPy arrays.

    Every rank keeps its part and moves nothing. A global array is returned as it is. Arrays on GPUs
    stay there unless ``device="cpu"`` is said.
    """
    if isinstance(obj, Tiled):
        kind = obj.dtype if dtype is None else np.dtype(dtype)
        if copy is False and kind != obj.dtype:
            raise ValueError(f"cannot turn {obj.dtype} into {kind} without a copy")
        if where:
            raise ValueError(f"cannot place {obj.type} anew by {', '.join(where)}=: use a.to(type)")
        array = obj if isinstance(obj, Array) else Array(obj.type, obj.comm, obj.local)
        if device is not None and is_gpu(device) != obj._memory.on_device:
            if copy is False:
                raise ValueError(f"cannot bring {obj.type} to {device!r} without a copy")
            array, copy = array.to_device(device), None
        if kind != obj.dtype:
            return astype(array, kind)
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(
            "cannot make a global array of it without a copy: pgas.from_local shares tiles"
        )
    if is_device(obj) and (device is None or is_gpu(device)):
        whole = as_device(obj)
        whole = whole if dtype is None else whole.astype(dtype, copy=False)
        device = "cuda"
    else:
        whole = _in_memory(to_host(obj) if is_device(obj) else obj, dtype)

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = whole[tuple(slice(lo, hi) for lo, hi in box)]

    anywhere = not isinstance(whole, np.ndarray)
    return make(whole.shape, whole.dtype, fill, device=device, anywhere=anywhere, **where)


def _in_memory(obj: Any, dtype: Any) -> Tile:
    try:
        return np.asarray(obj, dtype=dtype)
    except TypeError:
        return np.asarray(_numbers(obj), dtype=dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """**Local.** A global array from any library's array that all ranks have alike.

    It is whole on every rank and shares the memory, where no copy is asked for.
    """
    if isinstance(x, Tiled):
        return asarray(x, copy=copy, device=device)
    on_device = is_device(x)
    if device is not None and is_gpu(device) != on_device:
        if copy is False:
            raise ValueError(f"cannot bring it to {device!r} without a copy")
        x = to_host(x) if on_device else to_device(np.from_dlpack(x))
        on_device, copy = not on_device, None
    whole = as_device(x) if on_device else np.from_dlpack(x, copy=copy)
    whole = whole.copy() if on_device and copy else whole
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
    array = obj if isinstance(obj, Array) else Array(obj.type, obj.comm, obj.local)
    return array._element()


def _like(x: Tiled, dtype: Any, fill: Callable[[Tile, Box], None] | None, device: Any) -> Array:
    kind = x.dtype if dtype is None else np.dtype(dtype)
    t = ArrayType(x.mesh, dtype_of(kind), x.shape, x.type.dims)
    where = kind_of(x) if device is None else device
    return make(x.shape, kind, fill, t, comm=x.comm, device=where, anywhere=True)


def _float(dtype: Any) -> np.dtype[Any]:
    return np.dtype(float if dtype is None else dtype)
