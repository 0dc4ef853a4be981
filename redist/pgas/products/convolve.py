"""Convolution along one dim: each rank has its tile, what lies before it, and all of the shorter operand.

::

    full[i] = sum of w[k] x[i - k]       x: f64[n{x}], w: f64[m], whole on every rank

A rank needs the ``m - 1`` elements before its tile, which its neighbour has, and nothing else moves. Where
tiles are shorter than that, ``w`` is cut in parts that are not, and their sums are shifted and added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.indexing import dispatch
from redist.pgas.kinds import promote
from redist.pgas.shapes.halo import with_halo
from redist.pgas.shapes.join import concat
from redist.pgas.shapes.pad import pad
from redist.pgas.tiles.arguments import beside, check_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import with_dtype
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import Tile, Tiled

MODES = ("full", "same", "valid")
LEAST = 64
"""Where a tile is shorter than both this and the reach, the array is small: each rank gets all of it."""


@in_f32
def convolve(a: Any, v: Any, /, *, mode: str = "full") -> Any:
    """**Collective** if an operand is cut. Convolve two arrays of one dim, like ``numpy.convolve``.

    ``pgas.convolve(signal, [0.25, 0.5, 0.25], mode="same")``. One of the two is a global array; the other may
    be a list or a NumPy array, the same on every rank. The whole of the shorter one is brought to every
    rank. As in NumPy, the time is proportional to the product of the two lengths, but the ranks share it: for
    two long arrays of floats, multiply their ``pgas.fft.rfft`` instead.
    """
    near = a if isinstance(a, Tiled) else v
    check_arrays("convolve", near)
    x, w = (beside(near, one, "convolve") for one in (a, v))
    check_alike("convolve", x, w)
    if mode not in MODES:
        raise ArgumentError(f"cannot convolve by mode {mode!r}: known are {', '.join(MODES)}")
    for one in (x, w):
        if one.ndim != 1 or not one.size:
            raise ArgumentError(f"cannot convolve {one.type}: need one dim that is not empty")
    kind = promote(x.dtype, w.dtype)
    x, w = (one if one.dtype == kind else astype(one, kind) for one in (x, w))
    if w.size > x.size:
        x, w = w, x
    reach = w.size - 1
    skipped = {"full": 0, "same": reach // 2, "valid": reach}[mode]  # of what begins before x does
    added = {"full": reach, "same": reach // 2, "valid": 0}[mode]
    out = slide(pad(x, (0, added)) if added else x, w, False)
    return dispatch.get(out, slice(skipped, None)) if skipped else out


@asked
def slide(x: Any, w: Any, ahead: bool) -> Any:
    """**Collective** if an operand is cut. Sums over k of ``w[k] x[i - k]``, or of ``w[k] x[i + k]``.

    Beyond the ends of ``x`` there are zeros.
    """
    x, w = _prepared(x), _prepared(w)
    w = move(w, w.type.with_dims(((),)))

    def part(x: Any, first: int, last: int) -> Any:
        taps = None if w.tile is None else w.tile[first:last]
        tile = _reaching(x, last - first - 1, ahead)
        t = with_dtype(x.type, w.type.dtype)
        out = new_tile(x, t)
        if out is not None:
            x.memory.write(_write_sums, out, tile, taps, ahead)
        return x.new(t, out)

    x = _long_enough(x, w.size - 1)
    total: Any = None
    for first, last in _parts(x, w.size):
        own = part(shifted(x, -first if ahead else first), first, last)
        total = own if total is None else apply(np.add, total, own)
    return total


@asked
def lags(x: Any, g: Any, m: int) -> Any:
    """**Collective** if an operand is cut. Up to ``k = m - 1`` the sum of ``g[i] x[i - k]`` over ``i``.

    It is a pending sum over the axes that cut ``x``.
    """
    x, g = _long_enough(_prepared(x), m - 1), _prepared(g)
    g = move(g, with_dtype(x.type, g.type.dtype))
    found = []
    for first, last in _parts(x, m):
        tile = _reaching(shifted(x, first), last - first - 1, False)
        parts = x.type.dims[0]
        t = ArrayType(x.mesh, x.type.dtype, (last - first,), ((),), "sum" if parts else None, parts)
        out = new_tile(x, t)
        if out is not None:
            x.memory.write(_write_lags, out, tile, g.tile)
        found.append(x.new(t, out))
    return found[0] if len(found) == 1 else concat(found)


def _prepared(x: Any) -> Any:
    """**Collective** if something is pending. An array with its values, in a plain type."""
    return as_plain(resolve_pending(x))


def _smallest(x: Tiled) -> int:
    """How many elements the shortest tile has."""
    return int(np.diff(x.type.cut(0).edges()).min())


def _long_enough(x: Any, reach: int) -> Any:
    """**Collective** if it is small. The array, whole on every rank if its tiles are very short."""
    if x.type.cuts[0] > 1 and _smallest(x) < min(reach, LEAST):
        return move(x, x.type.with_dims(((),)))
    return x


def _parts(x: Tiled, m: int) -> list[tuple[int, int]]:
    """Parts of ``m`` taps that reach no further than into the next tile."""
    n = m if x.type.cuts[0] == 1 else min(m, _smallest(x) + 1)
    return [(at, min(m, at + n)) for at in range(0, m, n)]


def shifted(x: Any, by: int) -> Any:
    """**Collective** if the array is cut. Elements shifted to higher indices, or lower ones, behind zeros."""
    if not by:
        return x
    if abs(by) >= x.size:
        return apply(np.multiply, x, x.dtype.type(0))
    zeros = (by, 0) if by > 0 else (0, -by)
    return pad(dispatch.get(x, slice(-by) if by > 0 else slice(-by, None)), (zeros,))


def _reaching(x: Any, reach: int, ahead: bool) -> Tile | None:
    """**Collective** if the array is cut. The own tile and ``reach`` elements before it, or behind it."""
    tile = with_halo(x, {0: reach}, 0)
    if tile is None or not reach:
        return tile
    return tile[reach:] if ahead else tile[:-reach]


def _write_sums(out: Tile, tile: Tile, taps: Tile, ahead: bool) -> None:
    if out.size:
        out[...] = np.convolve(tile, taps[::-1] if ahead else taps, "valid")


def _write_lags(out: Tile, tile: Tile, g: Tile) -> None:
    if g.size:
        out[...] = np.correlate(tile, np.conj(g), "valid")[::-1]
    else:
        out[...] = 0
