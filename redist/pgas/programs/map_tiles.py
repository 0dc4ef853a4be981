"""The user's own kernels on the tiles of global arrays, with a statement of what they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, GradientError, ShapeError
from redist.layout.array_type import ArrayType
from redist.pgas.gradients.rules.table import Owed, rule
from redist.pgas.kinds import dtype_asked, number_kind
from redist.pgas.shapes.halo import with_halo
from redist.pgas.tiles.arguments import check_arrays, dim_of, dims_of, kind_of_value
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of, free_dims, make_type, with_dtype
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import shared
from redist.text.call_site import calling_line
from redist.text.units import parse_bytes


@left_alone
def map_tiles(
    function: Callable[..., Any],
    *arrays: Any,
    whole: int | Sequence[int] = (),
    halo: Mapping[int, int] | None = None,
    edges: float | str = 0.0,
    dtype: Any = None,
    room: int | str = 0,
    gradient: Callable[..., Any] | None = None,
) -> Any:
    """**Collective** if operands must move. Apply a function of NumPy or CuPy arrays to the tiles.

    In an SPMD program::

        smooth = pgas.map_tiles(lambda t: (t[:-2] + t[1:-1] + t[2:]) / 3, u, halo={0: 1})
        ranks = pgas.map_tiles(scipy.stats.rankdata, x, whole=1)
        cubes = pgas.map_tiles(lambda t: t**3, x, gradient=lambda g, t: (3 * g * t**2,))

    All arrays have the same number of dims and are brought to the layout of the first. An array whose size
    differs along a dim is cut there into the same number of tiles, all of one size. ``whole`` names the dims
    along which every tile must be whole. ``halo`` maps a dim to the number of elements by which tiles reach
    into their neighbours, on both sides; with several dims, this includes edges and corners. Beyond the ends
    of the array, the halo contains the number ``edges`` or, with ``edges="wrap"``, the elements of the other
    end. Tiles are read-only; on GPUs the function gets copies of them, as CuPy arrays. It must return an
    array of the shape of the rank's first tile without its halo, on the same device; on GPUs of CuPy or of
    another library that shares its memory (DLPack). The dtype is ``dtype``, by default that of the first
    array.

    ``room`` is the memory that the function takes beside operands and result, in bytes or as ``"1GiB"``: a
    memory limit counts it. ``gradient(g, *tiles)`` takes the tile of the result's cotangent and returns the
    tiles of the cotangents of all arrays, or None for some; without it, ``map_tiles`` cannot be
    differentiated.
    """
    if not callable(function) or not arrays:
        raise ArgumentTypeError("cannot map tiles: need a function, and arrays")
    check_arrays("map_tiles", *arrays)
    if gradient is not None and (not callable(gradient) or halo):
        why = "with a halo" if callable(gradient) else f"by {gradient!r}: need a function"
        raise ArgumentTypeError(f"cannot differentiate a function of tiles {why}")
    n_bytes = _bytes_of(room)
    operands = _side_by_side(arrays, whole)
    first = operands[0]
    reach = {dim_of(dim, first.ndim): n for dim, n in (halo or {}).items()}
    tiles = [with_halo(x, reach, edges) for x in operands]
    kind = first.dtype if dtype is None else dtype_asked(dtype)
    t = with_dtype(first.type, dtype_of(kind))
    _say_room(operands, [t], n_bytes)
    out = new_tile(first, t)
    if out is not None:
        is_own = any(reach.values()) and not first.memory.is_ghost
        first.memory.write(_run_kernel, out, function, is_own, *tiles)
    return first.new(t, out)


@rule(map_tiles)
def _gradient_of_tiles(owed: Owed) -> Sequence[Any]:
    gradient = owed.options.get("gradient")
    if gradient is None:
        raise GradientError(
            f"cannot differentiate map_tiles ({calling_line()}): it has no gradient; say what it is by "
            "gradient=, or apply pgas.stop_gradient to its arguments if they should count as constant"
        )
    options = {name: owed.options[name] for name in ("whole", "room") if name in owed.options}
    found = iter(gradient_of_tiles(gradient, owed.whole, *owed.operands, **options))
    return [next(found) if _has_slope(x) else None for x in owed.operands]


@left_alone
def gradient_of_tiles(
    gradient: Callable[..., Any],
    g: Any,
    *arrays: Any,
    whole: int | Sequence[int] = (),
    room: int | str = 0,
) -> tuple[Any, ...]:
    """**Collective** if operands must move. The cotangents of arrays, whose tiles a function makes."""
    operands = _side_by_side(arrays, whole)
    first = operands[0]
    own = move(resolve_pending(g), with_dtype(first.type, g.type.dtype))
    wanted = [x for x in operands if _has_slope(x)]
    _say_room([own, *operands], [x.type for x in wanted], _bytes_of(room))
    outs = [x.new(x.type, new_tile(x, x.type)) for x in wanted]
    if first.tile is not None:
        numbers = tuple(n for n, x in enumerate(operands) if _has_slope(x))
        tiles = [x.tile for x in (own, *operands)]
        first.memory.write(_run_gradient, [x.tile for x in outs], numbers, gradient, *tiles)
    return tuple(outs)


def _bytes_of(room: Any) -> int:
    found = parse_bytes(room) if isinstance(room, str) else room
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ArgumentError(
            f"cannot map tiles with room={room!r}: need bytes, as an int or as '1GiB'"
        )
    return found


def _has_slope(x: Tiled) -> bool:
    return number_kind(x.dtype) in "fc"


def _side_by_side(arrays: Sequence[Any], whole: int | Sequence[int]) -> list[Any]:
    """**Collective** if operands must move. Arrays in the layout of the first, whose named dims are whole."""
    check_alike("map_tiles", *arrays)
    first = resolve_pending(arrays[0])
    for x in arrays[1:]:
        if x.ndim != first.ndim or x.mesh != first.mesh:
            raise ShapeError(
                f"cannot map tiles of {first.type} and {x.type}: need as many dims, and one mesh"
            )
    dims = frozenset(dims_of(whole if isinstance(whole, int) else tuple(whole), first.ndim))
    first = move(first, free_dims(first.type, dims))
    operands = [first]
    for x in arrays[1:]:
        x = resolve_pending(x)
        if x.shape == first.shape:
            operands.append(move(x, with_dtype(first.type, x.type.dtype)))
            continue
        for dim, (n, m, cuts) in enumerate(zip(first.shape, x.shape, first.type.cuts, strict=True)):
            if n != m and (n % cuts or m % cuts or first.type.segments):
                raise ShapeError(
                    f"cannot map tiles of {first.type} and {x.type}: along dim {dim} sizes {n} and {m} are "
                    f"not cut into {cuts} equal tiles each; name the dim in whole="
                )
        t = make_type(x.mesh, x.type.dtype, x.shape, first.type.dims)
        operands.append(move(x, t))
    return operands


def _say_room(operands: Sequence[Any], made: Sequence[ArrayType], room: int) -> None:
    """**Local.** Say what a function takes: its results twice, and on GPUs copies of operands."""
    first = operands[0]
    copies = sum(x.type.tile_bytes for x in operands) if first.memory.on_device else 0
    first.memory.check_room(room + copies + 2 * sum(t.tile_bytes for t in made))


def _run_kernel(out: Tile, function: Callable[..., Any], is_own: bool, *tiles: Tile) -> None:
    """**Local.** ``is_own`` says that tiles were made for this call, and belong to no array."""
    _fill(out, function(*(t if is_own and is_device(t) else _read_only(t) for t in tiles)))


def _run_gradient(
    outs: Sequence[Tile], numbers: Sequence[int], gradient: Callable[..., Any], *tiles: Tile
) -> None:
    made = gradient(*map(_read_only, tiles))
    if not isinstance(made, (tuple, list)) or len(made) != len(tiles) - 1:
        raise GradientError(
            f"cannot differentiate map_tiles: its gradient gives {kind_of_value(made)}; let it give a tuple "
            f"of {len(tiles) - 1}: a tile, or None, for each array"
        )
    for out, number in zip(outs, numbers, strict=True):
        if made[number] is None:
            out.fill(0)
        else:
            _fill(out, made[number])


def _fill(out: Tile, made: Any) -> None:
    """**Local.** Write what a function made of tiles."""
    if is_device(made) != is_device(out):
        here, there = ("CuPy", "a GPU") if is_device(out) else ("NumPy", "the host")
        raise ArgumentTypeError(
            f"cannot use what the function made of a tile on {there}: {type(made).__name__}; "
            f"let it give an array of {here}"
        )
    made = shared(made) if is_device(made) else np.asarray(made)
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
