"""Kernels of the user's own on the tiles of global arrays, with what they need said beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, ShapeError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_index
from redist.pgas.kinds import dtype_asked
from redist.pgas.shapes.shift import roll
from redist.pgas.tiles.arguments import check_arrays, dim_of, dims_of
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of, free_dims, with_dtype
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device

WRAP = "wrap"


@left_alone
def map_tiles(
    function: Callable[..., Any],
    *arrays: Any,
    whole: int | Sequence[int] = (),
    halo: Mapping[int, int] | None = None,
    edges: float | str = 0.0,
    dtype: Any = None,
) -> Any:
    """**Collective** if operands must move. Let a function of arrays work on the tiles: NumPy's, or CuPy's.

    In an SPMD program::

        smooth = pgas.map_tiles(lambda t: (t[:-2] + t[1:-1] + t[2:]) / 3, u, halo={0: 1})
        ranks = pgas.map_tiles(scipy.stats.rankdata, x, whole=1)

    Arrays have one shape, and are brought to the layout of the first. ``whole`` names dims that tiles must
    hold all of. ``halo`` says by how many elements tiles reach into their neighbours along a dim, on both
    sides; beyond the ends of the array they have the number ``edges``, or, with ``edges="wrap"``, the other
    end. Tiles are read-only; on GPUs the function gets copies of them, as CuPy arrays. It returns an array of
    the shape of its rank's tile without halo, on the same device; its dtype is ``dtype``, by default that of
    the first array.
    """
    if not callable(function) or not arrays:
        raise ArgumentTypeError("cannot map tiles: need a function, and arrays")
    check_arrays("map_tiles", *arrays)
    check_alike("map_tiles", *arrays)
    first = resolve_pending(arrays[0])
    if any(x.shape != first.shape or x.mesh != first.mesh for x in arrays):
        raise ShapeError("cannot map tiles of arrays of different shapes or meshes")
    dims = frozenset(dims_of(whole if isinstance(whole, int) else tuple(whole), first.ndim))
    first = move(first, free_dims(first.type, dims))
    operands = [first]
    for x in arrays[1:]:
        x = resolve_pending(x)
        operands.append(move(x, with_dtype(first.type, x.type.dtype)))
    reach = {dim_of(dim, first.ndim): n for dim, n in (halo or {}).items()}
    tiles = [_with_halo(x, reach, edges) for x in operands]
    kind = first.dtype if dtype is None else dtype_asked(dtype)
    t = with_dtype(first.type, dtype_of(kind))
    out = new_tile(first, t)
    if out is not None:
        first.memory.write(_run_kernel, out, function, *tiles)
    return first.new(t, out)


def _run_kernel(out: Tile, function: Callable[..., Any], *tiles: Tile) -> None:
    made = function(*map(_read_only, tiles))
    if is_device(made) != is_device(out):
        here, there = ("CuPy", "a GPU") if is_device(out) else ("NumPy", "the host")
        raise ArgumentTypeError(
            f"cannot use what the function made of a tile on {there}: {type(made).__name__}; "
            f"let it give an array of {here}"
        )
    made = made if is_device(made) else np.asarray(made)
    if made.shape != out.shape:
        raise ShapeError(
            f"cannot use what the function made of a tile: shape {made.shape}, not {out.shape}"
        )
    out[...] = made


def _read_only(tile: Tile) -> Tile:
    """A view that the function cannot write to: the tile is the array's own, or kept for another call.

    On a GPU there are no such views: a copy.
    """
    if is_device(tile):
        return tile.copy()
    view = tile.view()
    view.flags.writeable = False
    return view


def _with_halo(x: Tiled, reach: Mapping[int, int], edges: float | str) -> Tile | None:
    """**Collective.** The tile of an array with parts of its neighbours' on both sides of some dims."""
    t, tile = x.type, x.tile
    for dim, n in reach.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ArgumentError(
                f"cannot reach {n!r} elements far along dim {dim}: need an int >= 0"
            )
        sizes = np.diff(t.cut(dim).edges())
        if sizes.min(initial=n) < n:
            raise ArgumentError(
                f"cannot reach {n} elements far along dim {dim} of {t}: a tile has {sizes.min()}"
            )
    grown = list(t.shape)
    for dim, n in reach.items():
        if n:
            tile = _reach_along(x, tile, tuple(grown), dim, n, edges)
            grown[dim] += 2 * n * t.cuts[dim]
    return tile


def _reach_along(
    x: Tiled, tile: Tile | None, shape: tuple[int, ...], dim: int, n: int, edges: float | str
) -> Tile | None:
    """**Collective.** A tile and ``n`` slices of each neighbour along a dim.

    ``shape`` is that of all tiles together, with what they reach along other dims: corners come along.
    """
    t = x.type
    before = (slice(None),) * dim
    ends = (
        slice(-n, None),
        slice(n),
    )  # the last slices go to the next tile, the first to the one before
    slabs = []
    for end, shift in zip(ends, (1, -1), strict=True):
        slab = None if tile is None else tile[(*before, end)]
        slabs.append(_from_neighbour(x, slab, shape, dim, n, shift))
    if tile is None:
        return None
    index = tile_index(t, x.comm.rank)[dim]
    if edges != WRAP:
        slabs = [
            np.full_like(slab, edges) if index == last else slab
            for slab, last in zip(slabs, (0, t.cuts[dim] - 1), strict=True)
        ]
    return np.concatenate([slabs[0], tile, slabs[1]], axis=dim)


def _from_neighbour(
    x: Tiled, slab: Tile | None, shape: tuple[int, ...], dim: int, n: int, shift: int
) -> Any:
    """**Collective.** The slab of the tile before (shift 1) or behind (-1), as the ends were joined."""
    t = x.type
    if t.cuts[dim] == 1:
        return slab
    sizes = (t.cuts[dim], *shape[:dim], n, *shape[dim + 1 :])
    dims = (t.dims[dim], *t.dims[:dim], (), *t.dims[dim + 1 :])
    own = None if slab is None else x.memory.contiguous(slab[np.newaxis])
    rolled = roll(x.new(ArrayType(t.mesh, t.dtype, sizes, dims), own), shift, axis=0)
    return None if rolled.tile is None else rolled.tile[0]
