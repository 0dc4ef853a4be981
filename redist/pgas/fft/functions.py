"""The Fourier transforms of the standard, by their names, with frequencies and shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.layout.tiles import Box
from redist.pgas.creation import Type, make
from redist.pgas.fft.transforms import (
    check_transform,
    transform_dim,
    transform_dims,
    transform_lengths,
)
from redist.pgas.global_array import Array
from redist.pgas.shapes.shift import roll
from redist.pgas.tiles.arguments import Axis, dims_of
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import MeshLike
from redist.pgas.tiles.tiled import T, Tile
from redist.runtime.ranks.world import Comm


def _one(name: str, x: T, n: int | None, axis: int, norm: str) -> T:
    check_transform(name, x, norm)
    (dim,), (size,) = transform_lengths(name, x, None if n is None else (n,), (axis,))
    return transform_dim(x, name, dim, size, norm)


@asked
def fft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The discrete Fourier transform along a dim."""
    return _one("fft", x, n, axis, norm)


@asked
def ifft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`fft`."""
    return _one("ifft", x, n, axis, norm)


@asked
def rfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. Half of the transform of real values."""
    return _one("rfft", x, n, axis, norm)


@asked
def irfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`rfft`."""
    return _one("irfft", x, n, axis, norm)


@asked
def hfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The transform of Hermitian values."""
    return _one("hfft", x, n, axis, norm)


@asked
def ihfft(x: T, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> T:
    """**Collective** if the dim is cut. The inverse of :func:`hfft`."""
    return _one("ihfft", x, n, axis, norm)


@asked
def fftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The transform along several dims."""
    check_transform("fftn", x, norm)
    dims, sizes = transform_lengths("fftn", x, s, axes)
    return transform_dims(x, ["fft"] * len(dims), dims, sizes, norm)


@asked
def ifftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The inverse of :func:`fftn`."""
    check_transform("ifftn", x, norm)
    dims, sizes = transform_lengths("ifftn", x, s, axes)
    return transform_dims(x, ["ifft"] * len(dims), dims, sizes, norm)


@asked
def rfftn(
    x: T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. Half of the transform of real values along several dims."""
    check_transform("rfftn", x, norm)
    dims, sizes = transform_lengths("rfftn", x, s, axes)
    x = transform_dim(x, "rfft", dims[-1], sizes[-1], norm, frozenset(dims[:-1]))
    return transform_dims(x, ["fft"] * (len(dims) - 1), dims[:-1], sizes[:-1], norm)


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
    """**Local.** The frequencies of :func:`fft`."""

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
    """**Local.** The frequencies of :func:`rfft`."""

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), = box  # fmt: skip
        tile[...] = np.arange(lo, hi) * (1.0 / (n * d))

    kind = np.float64 if dtype is None else dtype
    return make((n // 2 + 1,), kind, fill, type, mesh, comm, device)


@asked
def fftshift(x: T, /, *, axes: Axis = None) -> T:
    """**Collective** if a dim is cut. Frequency 0 in the middle."""
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
