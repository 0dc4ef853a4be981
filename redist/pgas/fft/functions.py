"""The Fourier transforms of the standard by name, frequencies and shifts; lines that lie within a tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.pgas.creation import Type, make
from redist.pgas.elementwise.in_f32 import gives_f32
from redist.pgas.fft import cut_lines
from redist.pgas.global_array import Array
from redist.pgas.memory import SHARED_FROM
from redist.pgas.shapes.shift import roll
from redist.pgas.tiles.arguments import Axis, check_arrays, dims_of
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import MeshLike, dtype_of, free_dims
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.runtime.ranks.world import Comm

# Fourier transforms along dims: whole dims are transformed in place, cut ones are freed first.


BLOCK_BYTES = 2**18
"""Lines of this many bytes are transformed together."""
NORMS = ("backward", "ortho", "forward")
WHOLE_BYTES = 2**20
"""An array without a dim to take the axes is whole on every rank up to this size."""


def transform_lengths(
    name: str, x: Tiled, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """The dims to transform and how long each becomes (None: as it is)."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    dims = tuple(axes)
    if any(not -x.ndim <= i < x.ndim for i in dims) or len({i % x.ndim for i in dims}) < len(dims):
        raise ArgumentError(
            f"cannot use dims {dims} in {name}: the array has {x.ndim}, each can be named once"
        )
    if s is not None and len(s) != len(dims):
        raise ArgumentError(
            f"cannot use {len(s)} lengths for {len(dims)} dims in {name}: give one for each"
        )
    return tuple(i % x.ndim for i in dims), tuple(s) if s is not None else (None,) * len(dims)


def check_transform(name: str, x: Any, norm: str) -> None:
    """Raise unless there is a global array and a known norm."""
    check_arrays(name, x)
    if norm not in NORMS:
        raise ArgumentError(f"unknown norm {norm!r}; known: {', '.join(NORMS)}")


def transform_dim(
    x: T, name: str, dim: int, n: int | None, norm: str, later: frozenset[int] = frozenset()
) -> T:
    """**Collective** if the dim is cut. Apply one of NumPy's transforms along one dim."""
    if x.type.pending_op is not None or x.type.dims[dim]:
        end = free_dims(x.type, frozenset({dim}), later)
        if _is_spread(x.type, end) or x.type.global_elems * x.dtype.itemsize <= WHOLE_BYTES:
            back = resolve_pending(x).type.dims[dim] if end.cuts == (1,) * end.ndim else ()
            out = _local(move(x, end), name, dim, n, norm)
            return move(out, _cut(out.type, dim, back)) if back else out
        x = resolve_pending(x)
        if x.type.dims[dim]:
            _shape_and_dtype(name, x.shape[dim], n, x.dtype)  # its errors
            return cut_lines.transform(x, name, dim, n, norm)
    return _local(x, name, dim, n, norm)


def transform_dims(
    x: T, names: Sequence[str], dims: Sequence[int], s: Sequence[int | None], norm: str
) -> T:
    """**Collective** if a dim is cut. Apply transforms along dims in the order that moves least."""
    left = list(zip(names, dims, s, strict=True))
    while left:
        whole = (
            [one for one in left if not x.type.dims[one[1]]] if x.type.pending_op is None else []
        )
        one = whole[-1] if whole else left[-1]
        left.remove(one)
        x = transform_dim(x, one[0], one[1], one[2], norm, frozenset(dim for _, dim, _ in left))
    return x


def _is_spread(source: ArrayType, end: ArrayType) -> bool:
    """Whether no tile becomes much larger."""
    return end.tile_bytes <= 2 * max(1, source.tile_bytes)


def _cut(t: ArrayType, dim: int, cut: Any) -> ArrayType:
    return t.with_dims([cut if i == dim else one for i, one in enumerate(t.dims)])


@lru_cache(maxsize=1024)
def _shape_and_dtype(name: str, size: int, n: int | None, dtype: np.dtype[Any]) -> tuple[int, Any]:
    function = getattr(np.fft, name)
    short = n if n is not None else size
    if (short if name not in ("irfft", "hfft") else (n if n is not None else 2 * (size - 1))) < 1:
        raise ArgumentError(f"cannot use a dim of size {size} in {name}: nothing to transform")
    made = function(np.zeros(2, dtype))
    if name in ("rfft", "ihfft"):
        return short // 2 + 1, made.dtype
    if name in ("irfft", "hfft"):
        return n if n is not None else 2 * (size - 1), made.dtype
    return short, made.dtype


def _local(x: T, name: str, dim: int, n: int | None, norm: str) -> T:
    """**Local.** Transform along a whole dim."""
    size, dtype = _shape_and_dtype(name, x.shape[dim], n, x.dtype)
    shape = tuple(size if i == dim else m for i, m in enumerate(x.shape))
    t = ArrayType(x.mesh, dtype_of(dtype), shape, x.type.dims)
    if x.tile is None:
        return x.new(t, None)
    own = tuple(size if i == dim else m for i, m in enumerate(x.tile.shape))
    if x.memory.on_device:
        x.memory.check_room(2 * t.tile_bytes)
        return x.new(t, _on_gpu(getattr(np.fft, name), x.tile, dim, n, norm, own, dtype))
    line_bytes = 16 * max(size, x.shape[dim])
    x.memory.check_room(t.tile_bytes + 3 * min(max(BLOCK_BYTES, line_bytes), t.tile_bytes))
    out = x.memory.empty(own, dtype, t.tile_bytes)
    if out.size:
        x.memory.write(_write_lines, out, getattr(np.fft, name), x.tile, dim, n, norm)
    return x.new(t, out)


def _on_gpu(
    function: Callable[..., Any], tile: Tile, dim: int, n: int | None, norm: str, shape: Any,
    dtype: Any,
) -> Tile:  # fmt: skip
    """**Local.** Transform the lines of a tile on a GPU, all at once."""
    if 0 in shape:
        return np.zeros_like(tile, dtype, shape=shape)
    out: Tile = function(tile, n=n, axis=dim, norm=norm)
    return out if out.dtype == dtype else out.astype(dtype)


def _write_lines(
    out: Tile, function: Callable[..., Any], tile: Tile, dim: int, n: int | None, norm: str
) -> None:
    """**Local.** Transform the lines of a tile; those that are far apart in memory a block at a time."""
    if out.nbytes < SHARED_FROM or tile.ndim == 1:
        _write(function, tile, n, dim, norm, out)
        return
    if dim == tile.ndim - 1:
        if tile.flags.c_contiguous:
            tile, out = tile.reshape(-1, tile.shape[-1]), out.reshape(-1, out.shape[-1])
            dim = 1
        width = max(1, BLOCK_BYTES * len(out) // out.nbytes)
        for i in range(0, len(out), width):  # NumPy casts what it is given
            _write(function, tile[i : i + width], n, dim, norm, out[i : i + width])
        return
    before = math.prod(tile.shape[:dim])
    after = math.prod(tile.shape[dim + 1 :])
    if not tile.flags.c_contiguous:
        _write(function, tile, n, dim, norm, out)
        return
    source = tile.reshape(before, tile.shape[dim], after)
    target = out.reshape(before, out.shape[dim], after)
    width = max(8, BLOCK_BYTES // max(1, out.shape[dim] * out.itemsize))
    for i in range(before):
        for j in range(0, after, width):
            block = np.ascontiguousarray(source[i, :, j : j + width].T)
            target[i, :, j : j + width] = function(block, n=n, axis=1, norm=norm).T


def _write(
    function: Callable[..., Any], tile: Tile, n: int | None, dim: int, norm: str, out: Tile
) -> None:
    if function is np.fft.hfft or function is np.fft.ihfft:
        out[...] = function(tile, n=n, axis=dim, norm=norm)
    else:
        function(tile, n=n, axis=dim, norm=norm, out=out)


def _one(name: str, x: T, n: int | None, axis: int, norm: str) -> T:
    check_transform(name, x, norm)
    (dim,), (size,) = transform_lengths(name, x, None if n is None else (n,), (axis,))
    return transform_dim(x, name, dim, size, norm)


@gives_f32
@asked
def fft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The discrete Fourier transform along a dim."""
    return _one("fft", x, n, axis, norm)


@gives_f32
@asked
def ifft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`fft`."""
    return _one("ifft", x, n, axis, norm)


@gives_f32
@asked
def rfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The transform of real values, of which only half is kept."""
    return _one("rfft", x, n, axis, norm)


@gives_f32
@asked
def irfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`rfft`."""
    return _one("irfft", x, n, axis, norm)


@gives_f32
@asked
def hfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The real transform of Hermitian values, given by half of them."""
    return _one("hfft", x, n, axis, norm)


@gives_f32
@asked
def ihfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`hfft`."""
    return _one("ihfft", x, n, axis, norm)


@gives_f32
@asked
def fftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The transform along several dims."""
    check_transform("fftn", x, norm)
    dims, sizes = transform_lengths("fftn", x, s, axes)
    return transform_dims(x, ["fft"] * len(dims), dims, sizes, norm)


@gives_f32
@asked
def ifftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The inverse of :func:`fftn`."""
    check_transform("ifftn", x, norm)
    dims, sizes = transform_lengths("ifftn", x, s, axes)
    return transform_dims(x, ["ifft"] * len(dims), dims, sizes, norm)


@gives_f32
@asked
def rfftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The transform of real values along several dims, half of it kept."""
    check_transform("rfftn", x, norm)
    dims, sizes = transform_lengths("rfftn", x, s, axes)
    x = transform_dim(x, "rfft", dims[-1], sizes[-1], norm, frozenset(dims[:-1]))
    return transform_dims(x, ["fft"] * (len(dims) - 1), dims[:-1], sizes[:-1], norm)


@gives_f32
@asked
def irfftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The inverse of :func:`rfftn`."""
    check_transform("irfftn", x, norm)
    dims, sizes = transform_lengths("irfftn", x, s, axes)
    x = transform_dims(x, ["ifft"] * (len(dims) - 1), dims[:-1], sizes[:-1], norm)
    return transform_dim(x, "irfft", dims[-1], sizes[-1], norm)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** The frequencies that belong to the elements of :func:`fft`."""

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        k = np.arange(lo, hi)
        tile[...] = np.where(k < (n - 1) // 2 + 1, k, k - n) * (1.0 / (n * d))

    kind = np.float64 if dtype is None else dtype
    return make((n,), kind, fill, type, mesh, comm, device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** The frequencies that belong to the elements of :func:`rfft`."""

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        tile[...] = np.arange(lo, hi) * (1.0 / (n * d))

    kind = np.float64 if dtype is None else dtype
    return make((n // 2 + 1,), kind, fill, type, mesh, comm, device)


@asked
def fftshift(x: T, /, *, axes: Axis = None) -> T:
    """**Collective** if a dim is cut. Shift frequency 0 to the middle."""
    return _shift(x, axes, 1)


@asked
def ifftshift(x: T, /, *, axes: Axis = None) -> T:
    """**Collective** if a dim is cut. The inverse of :func:`fftshift`."""
    return _shift(x, axes, -1)


def _shift(x: T, axes: Axis, sign: int) -> T:
    check_transform("fftshift", x, "backward")
    dims = dims_of(axes, x.ndim)
    shifts = tuple(x.shape[i] // 2 if sign > 0 else -(x.shape[i] // 2) for i in dims)
    return roll(x, shifts, axis=dims) if dims else x
