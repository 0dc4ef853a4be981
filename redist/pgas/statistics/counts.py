"""Counts of values: each rank counts its own values, and the rest is a pending sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.conversion import asarray
from redist.pgas.elementwise.apply import apply
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.global_array import Array
from redist.pgas.kinds import number_kind, promote
from redist.pgas.tiles.arguments import check_arrays, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike, kind_of
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for


class Histogram(NamedTuple):
    """The result of :func:`histogram`: the number of values between edges, and the edges."""

    hist: Array
    bin_edges: Array


@in_f32
@asked
@takes_array
def histogram(
    x: Array, /, bins: int | Sequence[float] = 10, *, range: tuple[float, float] | None = None,
    density: bool = False, weights: Array | None = None,
) -> Histogram:  # fmt: skip
    """**Collective** if no range is given, or weights must move. Count values in bins.

    ``hist, edges = pgas.histogram(a, 50)``. The counts are a pending sum until someone needs them; every
    rank holds all counts and edges, and temporarily about 64 Ki values in addition to its tile.
    """
    x = resolve_pending(x)
    if number_kind(x.dtype) == "c":
        raise ArgumentTypeError(f"cannot make a histogram of {x.dtype}: need real numbers")
    own = None if weights is None else _beside("histogram", x, weights)
    dtype = np.dtype(np.int64) if own is None else _counted_dtype(own.dtype)
    tile = None if own is None else own.tile
    spread: Any = None
    if x.memory.is_ghost and range is None and isinstance(bins, int) and bins > 0 and x.size:
        made = _later_edges(x, bins)
        edges = made.tile
    else:
        spread, edges = _edges(x, bins, range)
        t = _whole(x, edges.shape, edges.dtype)
        made = asarray(edges, type=t, comm=x.comm, device=kind_of(x))
    hist = _counted(x, made.size - 1, dtype, _write_histogram, spread, edges, tile)
    if density:
        widths = apply(np.subtract, made[1:], made[:-1])
        hist = resolve_pending(hist)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = apply(np.true_divide, hist, widths)
            hist = apply(np.true_divide, shares, reductions.sum(hist))
    return Histogram(hist, made)


def _edges(x: Array, bins: Any, ends: Any) -> tuple[Any, Tile]:
    """How NumPy is told the edges, on every rank alike, and these."""
    if isinstance(bins, (str, Tiled)):
        raise ArgumentTypeError(f"cannot use bins={bins!r}: give their number, or edges as numbers")
    if np.ndim(bins) == 1:
        edges = np.asarray(bins)
        if (edges[1:] < edges[:-1]).any():
            raise ArgumentError("cannot make a histogram: edges must not fall")
        return (edges, None), edges
    if np.ndim(bins) or int(bins) != bins or bins < 1:
        raise ArgumentError(f"cannot make a histogram of {bins!r} bins: need an int >= 1, or edges")
    found = ends is None and x.size > 0
    if found:
        ends = reductions.min(x)._element(), reductions.max(x)._element()
        if number_kind(x.dtype) == "b":
            ends = int(ends[0]), int(ends[1])
    ends = (0.0, 1.0) if ends is None else tuple(ends)
    if found:
        _must_be_numbers(str(x.type), ends)
    if not np.isfinite(ends).all():
        raise ArgumentError(f"cannot make a histogram from {ends[0]} to {ends[1]}: give range=")
    if ends[0] > ends[1]:
        raise ArgumentError(f"cannot make a histogram from {ends[0]} to {ends[1]}: it falls")
    kind = np.dtype(np.uint8) if number_kind(x.dtype) == "b" else x.dtype
    return (int(bins), ends), np.histogram_bin_edges(np.empty(0, kind), int(bins), ends)


def _must_be_numbers(what: str, ends: tuple[Any, ...]) -> None:
    if not np.isfinite(ends).all():
        odd = "nan; a[~pgas.isnan(a)] leaves it out" if np.isnan(ends).any() else "infinity"
        raise ArgumentError(
            f"cannot make a histogram of {what}: the values contain {odd}; range=(low, high) counts "
            "what lies between"
        )


def _later_edges(x: Array, bins: int) -> Array:
    """**Collective.** Edges from the least to the largest value, known when a program runs."""
    low, high = (resolve_pending(one(x)) for one in (reductions.min, reductions.max))
    kind = np.dtype(np.uint8) if number_kind(x.dtype) == "b" else x.dtype
    like = np.histogram_bin_edges(np.empty(0, kind), bins, (0.0, 1.0))
    t = _whole(x, like.shape, like.dtype)
    if x.tile is None:
        return x.new(t, None)
    out = x.memory.empty(like.shape, like.dtype, t.tile_bytes)
    x.memory.write(_write_edges, out, low.tile, high.tile)
    return x.new(t, out)


def _write_edges(out: Tile, low: Tile, high: Tile) -> None:
    ends = tuple(to_host(one).reshape(-1)[0] for one in (low, high))
    kind = np.dtype(np.uint8) if number_kind(low.dtype) == "b" else low.dtype
    _must_be_numbers(str(low.dtype), ends)
    edges = np.histogram_bin_edges(np.empty(0, kind), len(out) - 1, tuple(map(kind.type, ends)))
    out[...] = to_device(edges) if is_device(out) else edges


def _write_histogram(
    out: Tile, values: Tile, spread: Any, edges: Tile, weights: Tile | None
) -> None:
    given = values.view(np.uint8) if values.dtype == np.bool_ else values
    if is_device(given):
        out[...] = _histogram_on_gpu(given, to_device(edges), weights)
        return
    bins, ends = (len(out), (edges[0], edges[-1])) if spread is None else spread
    out[...] = np.histogram(given, bins, ends, weights=weights)[0]


def _histogram_on_gpu(values: Tile, edges: Tile, weights: Tile | None) -> Tile:
    """**Local.** Counts between edges, the last of which belongs to the last bin, as NumPy's."""
    xp, n = functions_for(values), len(edges) - 1
    kind = promote(values.dtype, edges.dtype)
    values, edges = values.reshape(-1).astype(kind), edges.astype(kind)
    at = xp.searchsorted(edges, values, side="right") - 1
    at = xp.where(values == edges[-1:], n - 1, at)
    at = xp.where(
        (values >= edges[:1]) & (values <= edges[-1:]), at, n
    )  # what lies outside comes last
    return _bincount(at, None if weights is None else weights.reshape(-1), n + 1)[:n]


@in_f32
@asked
@takes_array
def bincount(x: Array, /, weights: Array | None = None, minlength: int = 0) -> Array:
    """**Collective.** Count each integer from 0 up in an array of one dim, or add up the weights of each.

    The result is a pending sum, and every rank holds all counts: at least one more than the largest value.
    """
    x = resolve_pending(x)
    if x.ndim != 1 or number_kind(x.dtype) not in "biu":
        raise ArgumentTypeError(f"cannot count values of {x.type}: need integers in one dim")
    if minlength < 0:
        raise ArgumentError(f"cannot give at least {minlength} counts: need an int >= 0")
    n = int(minlength)
    if x.size:
        if int(reductions.min(x)._element()) < 0:
            raise ArgumentError(f"cannot count values of {x.type}: some are negative")
        n = max(n, int(reductions.max(x)._element()) + 1)
    if weights is None:
        return _counted(x, n, np.dtype(np.int64), _write_counts, None)
    own = _beside("bincount", x, weights)
    return _counted(x, n, np.dtype(np.float64), _write_counts, own.tile)


def _write_counts(out: Tile, values: Tile, weights: Tile | None) -> None:
    out[...] = _bincount(values.astype(np.int64, copy=False), weights, len(out))


def _bincount(values: Tile, weights: Tile | None, n: int) -> Tile:
    """**Local.** Counts, or sums of weights, where the values lie."""
    count = functions_for(values).bincount
    if weights is None or number_kind(weights.dtype) != "c":
        return count(values, weights=weights, minlength=n)
    return count(values, weights=weights.real, minlength=n) + 1j * count(
        values, weights=weights.imag, minlength=n
    )


def _counted(
    x: Array, n: int, dtype: np.dtype[Any], write: Callable[..., None], *args: Any
) -> Array:
    """**Local.** Counts of a tile, of which those of all ranks are the sum."""
    used = x.type.used
    whole = _whole(x, (n,), dtype)
    t = whole if not used else whole.with_pending("sum", used)
    x.memory.check_room(t.tile_bytes)
    if x.tile is None:
        return x.new(t, None)
    out = x.memory.empty((n,), dtype, t.tile_bytes)
    x.memory.write(write, out, x.tile, *args)
    return x.new(t, out)


def _counted_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which NumPy adds up weights."""
    return np.histogram(np.zeros(1), 1, (0, 1), weights=np.ones(1, dtype))[0].dtype


def _whole(x: Tiled, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayType:
    return ArrayType(x.mesh, dtype_of(dtype), shape, ((),) * len(shape))


def _beside(name: str, x: Array, weights: Any) -> Array:
    """**Collective** if they must move. Weights that lie as the values do."""
    check_arrays(name, weights)
    check_alike(name, x, weights)
    if weights.shape != x.shape:
        raise ArgumentError(
            f"cannot use weights of shape {weights.shape} in {name} of shape {x.shape}: need the same shape"
        )
    return move(resolve_pending(weights), with_dtype(x.type, weights.type.dtype))
