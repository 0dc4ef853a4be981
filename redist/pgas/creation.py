"""New global arrays: every rank makes its own tile, and nothing moves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, LayoutError, RequestError, ShapeError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.global_array import Array
from redist.pgas.kinds import dtype_asked, is_stored, number_kind, tile_dtype
from redist.pgas.memory import DEVICE, TileMemory, memory_for
from redist.pgas.tiles.arguments import takes_any_array
from redist.pgas.tiles.arranging import asked, left_alone
from redist.pgas.tiles.devices import is_gpu, kind_of
from redist.pgas.tiles.layouts import MeshLike, dtype_of, mesh_of, must_be_type, parse_dims
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.tiled import Tile, Tiled, own_boxes
from redist.runtime.cuda.arrays import fill_with
from redist.runtime.mpi_library import why_alone
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.units import count_of

Type = str | ArrayType
Shape = int | Sequence[int]

PART_BYTES = 2**16
"""Tiles are written in parts of this many bytes."""
CARRIED_BYTES = 2**24
"""Tiles of GPUs are written in memory and carried over in parts of this many bytes."""


@left_alone
def make(
    shape: Shape,
    dtype: Any,
    fill: Callable[[Tile, Box], None] | None,
    type: Type | None = None,
    mesh: MeshLike | None = None,
    comm: Comm | None = None,
    device: Any = None,
    anywhere: bool = False,
) -> Array:
    """**Local.** Make an array whose tiles ``fill`` writes, given the tile and the box of its indices.

    It writes into memory, also for tiles on GPUs, unless it can write ``anywhere``.
    """
    memory = new_memory(is_gpu(device))
    sizes = sizes_of(shape)
    must_be_type(type)
    comm = _comm_of_new(comm)
    if isinstance(type, ArrayType):
        mesh = type.mesh
    mesh = mesh_of(mesh, comm.size)
    if max(mesh.ranks) >= comm.size:
        raise LayoutError(
            f"cannot use the mesh {mesh}: the communicator has {count_of(comm.size, 'rank')}; "
            f"start the program with 'mpirun -n {max(mesh.ranks) + 1}', or use a mesh of {comm.size}"
            f"{why_alone()}"
        )
    t = parse_dims(type, mesh, dtype_of(dtype_asked(dtype)), sizes)
    if t.pending_op is not None:
        raise RequestError(f"cannot make an array of type {t}: nothing is pending in a new one")
    own = tile_shape(t, comm.rank)
    memory.check_room(t.tile_bytes)
    tile = None if own is None else memory.empty(own, tile_dtype(t.dtype), t.tile_bytes)
    made = Array(t, comm, tile, memory)
    if tile is not None and fill is not None and tile.size:
        write = write_parts
        if memory.on_device:
            write = _write_at_once if anywhere else _carry_over
            if is_stored(tile_dtype(t.dtype)):  # there they are bytes
                write, fill = _carry_over, partial(_fill_bytes, fill, tile_dtype(t.dtype))
        for part, box in own_boxes(made):
            memory.write(write, part, box, fill)
    return made


def _comm_of_new(comm: Comm | None) -> Comm:
    """**Local.** The ranks of a new array: those named, or all; of a program, those that are pretended."""
    tape = current_tape() if comm is None else None
    return tape.comm if tape is not None and tape.comm is not None else comm_or_world(comm)


def new_memory(on_device: bool) -> TileMemory:
    """**Local.** The memory of new arrays: that of ghosts while a program is captured."""
    return memory_for(on_device) if current_tape() is None else ghosts_for(on_device)


def write_parts(tile: Tile, box: Box, fill: Callable[[Tile, Box], None]) -> None:
    """Let ``fill`` write a tile part by part."""
    for part, inner in _parts(tile, box):
        fill(part, inner)


def _write_at_once(tile: Tile, box: Box, fill: Callable[[Tile, Box], None]) -> None:
    fill(tile, box)


def _carry_over(tile: Tile, box: Box, fill: Callable[[Tile, Box], None]) -> None:
    """Write a tile of a GPU in parts that are made in memory, with the same values as there."""
    for part, inner in _parts(tile, box, CARRIED_BYTES):
        made = np.empty(part.shape, part.dtype)
        for small, its_box in _parts(made, inner):
            fill(small, its_box)
        part[...] = DEVICE.asarray(made)


def _fill_bytes(
    fill: Callable[[Tile, Box], None], dtype: np.dtype[Any], tile: Tile, box: Box
) -> None:
    fill(tile.view(dtype), box)


def _parts(tile: Tile, box: Box, most_bytes: int = PART_BYTES) -> Iterator[tuple[Tile, Box]]:
    """Cut a tile into parts of at most this many bytes, so that what is made on the way takes no more."""
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


def sizes_of(shape: Shape) -> tuple[int, ...]:
    """The sizes of a shape given as one int or several."""
    try:
        given = shape if isinstance(shape, (tuple, list)) else (shape,)
        sizes = tuple(operator.index(n) for n in given)
    except TypeError:
        raise ArgumentTypeError(
            f"cannot use {shape!r} as a shape: need an int, or a tuple of ints"
        ) from None
    if min(sizes, default=0) < 0:
        raise ShapeError(f"cannot use {sizes} as a shape: a size is negative")
    return sizes


def empty(
    shape: Shape, *, dtype: Any = None, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** An array with arbitrary contents; ``type``, ``mesh`` and ``comm`` say where it lies.

    ``device="cuda"`` puts the tiles on the ranks' GPUs, as in all functions that create arrays.
    """
    return make(shape, _float(dtype), None, type, mesh, comm, device)


def full(
    shape: Shape, fill_value: Any, *, dtype: Any = None, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** An array filled with one value."""
    value, fill = _filling(fill_value, None if dtype is None else dtype_asked(dtype))
    return make(shape, value.dtype, fill, type, mesh, comm, device, anywhere=True)


def _filling(fill_value: Any, dtype: Any) -> tuple[Tile, Callable[[Tile, Box], None]]:
    """A number as an array without dims, and what writes it to tiles."""
    value = np.asarray(to_numbers(fill_value), dtype)
    if value.ndim:
        raise ArgumentTypeError(
            f"cannot fill with an array of shape {value.shape}: need one number"
        )
    return value, lambda tile, box: fill_with(tile, value)


def zeros(
    shape: Shape, *, dtype: Any = None, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** An array of zeros: ``pgas.zeros((4096, 4096), type="{x}, {}")``."""
    kind = _float(dtype)
    return full(shape, 0, dtype=kind, type=type, mesh=mesh, comm=comm, device=device)


def ones(
    shape: Shape, *, dtype: Any = None, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** An array of ones."""
    kind = _float(dtype)
    return full(shape, 1, dtype=kind, type=type, mesh=mesh, comm=comm, device=device)


@asked
@takes_any_array
def empty_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another one, with arbitrary contents."""
    return _like(x, dtype, None, device)


@asked
@takes_any_array
def full_like(x: Tiled, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another one, filled with one value."""
    value, fill = _filling(fill_value, x.dtype if dtype is None else dtype_asked(dtype))
    return _like(x, value.dtype, fill, device)


@asked
@takes_any_array
def zeros_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another one, filled with zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


@asked
@takes_any_array
def ones_like(x: Tiled, /, *, dtype: Any = None, device: Any = None) -> Array:
    """**Local.** An array like another one, filled with ones."""
    return full_like(x, 1, dtype=dtype, device=device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None,
    type: Type | None = None, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** Evenly spaced values ``start + k * step``, up to but not including ``stop``."""
    start, stop, step = (to_numbers(v) for v in (start, stop, step))
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
    kind = np.dtype(int if exact else float) if dtype is None else dtype_asked(dtype)

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        tile[...] = start + step * np.arange(lo, hi)

    return make((n,), kind, fill, type, mesh, comm, device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, endpoint: bool = True,
    type: Type | None = None, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** ``num`` evenly spaced values from ``start`` to ``stop``."""
    num = operator.index(num)
    if num < 0:
        raise ArgumentError(f"cannot make {num} values: need 0 or more")
    start, stop = to_numbers(start), to_numbers(stop)
    kind = np.linspace(start, stop, 2).dtype if dtype is None else dtype_asked(dtype)
    step = (stop - start) / max(1, num - 1 if endpoint else num)

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        values = np.arange(lo, hi) * step + start
        if endpoint and num > 1 and hi == num:
            values[-1] = stop
        tile[...] = (np.floor(values) if number_kind(kind) in "iu" else values).astype(kind)

    return make(num, kind, fill, type, mesh, comm, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    type: Type | None = None, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** A matrix with ones on a diagonal and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, n_cols))

    def fill(tile: Tile, box: Box) -> None:
        (r0, r1), (c0, c1) = box
        tile[...] = np.arange(r0, r1)[:, None] + k == np.arange(c0, c1)[None, :]

    return make((n_rows, n_cols), _float(dtype), fill, type, mesh, comm, device)


def from_function(
    function: Callable[..., Any], shape: Shape, *, dtype: Any = None, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** An array of ``function(i, j, ...)``, called with the indices as arrays that broadcast.

    ``pgas.from_function(lambda i, j: i + 10 * j, (4, 4), dtype="i8")``; the default dtype is float64.
    """
    sizes = sizes_of(shape)
    if dtype is None and 0 not in sizes:
        with np.errstate(all="ignore"):
            made = np.asarray(
                function(*(np.zeros((1,) * len(sizes), np.int64) for _ in sizes))
            ).dtype
        if made.kind == "c":
            raise ArgumentTypeError(f"cannot keep values of {made} in float64: name a dtype")

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = function(*np.ix_(*(np.arange(lo, hi) for lo, hi in box)))

    return make(shape, _float(dtype), fill, type, mesh, comm, device)


def to_numbers(obj: Any) -> Any:
    """**Collective** if there are any. Put numbers for the global arrays without dims in nested lists."""
    if isinstance(obj, (list, tuple)):
        return [to_numbers(one) for one in obj]
    if not isinstance(obj, Tiled):
        return obj
    if obj.ndim:
        raise ArgumentTypeError(
            f"cannot make an array from a list of arrays of {obj.shape}: use pgas.stack"
        )
    array = obj if isinstance(obj, Array) else Array(obj.type, obj.comm, obj.tile)
    return array._element()


def _like(x: Tiled, dtype: Any, fill: Callable[[Tile, Box], None] | None, device: Any) -> Array:
    kind = x.dtype if dtype is None else dtype_asked(dtype)
    t = x.type.with_pending(None, ()).with_dtype(dtype_of(kind))
    where = kind_of(x) if device is None else device
    return make(x.shape, kind, fill, t, comm=x.comm, device=where, anywhere=True)


def _float(dtype: Any) -> np.dtype[Any]:
    return dtype_asked(float if dtype is None else dtype)
