"""Which indices does a device hold: the one place that turns types into boxes of global indices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.mesh import Mesh
from redist.text.units import ceil_div

Ints = NDArray[np.int64]

REMEMBERED_DEVICES = 4096
"""Many coordinates are remembered for meshes up to this size, a few for larger ones."""


def bounds(n: int, cuts: int, index: Ints) -> tuple[Ints, Ints]:
    """Start and end of the tiles ``index`` of a dim of size n cut into ``cuts``.

    >>> bounds(10, 4, np.arange(4))
    (array([0, 3, 6, 9]), array([ 3,  6,  9, 10]))
    """
    tile = ceil_div(n, cuts)
    lo = np.minimum(index * tile, n)
    return lo, np.minimum(lo + tile, n)


def coordinates(mesh: Mesh, parts: Iterable[SubAxis]) -> Ints:
    """Mixed-radix number of every device's coordinates on ``parts``, major first.

    >>> coordinates(Mesh(x=2, y=3), [SubAxis("y", 1, 3)])
    array([0, 1, 2, 0, 1, 2])
    """
    return _coordinates(mesh, tuple(parts))


@lru_cache(maxsize=2048)
def _small_coordinates(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    return _make_coordinates(mesh, parts)


@lru_cache(maxsize=16)
def _large_coordinates(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    return _make_coordinates(mesh, parts)


def _coordinates(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    if mesh.n_devices <= REMEMBERED_DEVICES:
        return _small_coordinates(mesh, parts)
    return _large_coordinates(mesh, parts)


def _make_coordinates(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    strides: dict[str, int] = {}
    stride = 1
    for name, size in reversed(mesh.axes):
        strides[name] = stride
        stride *= size
    device = np.arange(mesh.n_devices, dtype=np.int64)
    out = np.zeros(mesh.n_devices, dtype=np.int64)
    for part in parts:
        rest = mesh.size(part.name) // part.end
        out = out * part.size + (device // (strides[part.name] * rest)) % part.size
    out.setflags(write=False)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A type as numbers: dims of ``sizes`` cut into ``cuts``, and which tile each rank holds.

    ``index`` has one row per device and one column per dim; ``ranks`` says who plays the device;
    where ``holds`` is False the device holds nothing.
    """

    sizes: tuple[int, ...]
    cuts: tuple[int, ...]
    ranks: Ints
    index: Ints
    holds: NDArray[np.bool_]

    @property
    def tiles(self) -> tuple[int, ...]:
        """Size of a full tile along every dim."""
        return tuple(ceil_div(n, k) for n, k in zip(self.sizes, self.cuts, strict=True))

    def boxes(self) -> tuple[Ints, Ints]:
        """Start and end of every device's box, one column per dim; empty where it holds nothing."""
        lo = np.empty_like(self.index)
        hi = np.empty_like(self.index)
        for i, (n, k) in enumerate(zip(self.sizes, self.cuts, strict=True)):
            lo[:, i], hi[:, i] = bounds(n, k, self.index[:, i])
        hi[~self.holds] = lo[~self.holds]
        return lo, hi

    def volumes(self) -> Ints:
        """Elements that each device holds."""
        out = self.holds.astype(np.int64)
        for i, (n, k) in enumerate(zip(self.sizes, self.cuts, strict=True)):
            lo, hi = bounds(n, k, self.index[:, i])
            out *= hi - lo
        return out

    def shards(self) -> Ints:
        """One number per device that tells its tile from the others."""
        out = np.zeros(len(self.ranks), dtype=np.int64)
        for i, k in enumerate(self.cuts):
            out = out * k + self.index[:, i]
        return out


def grid(
    t: ArrayType,
    extra: Sequence[tuple[int, Sequence[SubAxis]]] = (),
    at_zero: Sequence[SubAxis] = (),
) -> Grid:
    """The grid of a type, with ``extra`` dims of (size, parts) behind those of the array.

    Extra dims say in terms of boxes what the array's own dims do not: partial values that must not
    mix, or groups that must not be left. Devices off coordinate 0 of ``at_zero`` hold nothing.
    """
    dims = [*zip(t.shape, t.dims, strict=True), *((n, tuple(parts)) for n, parts in extra)]
    columns = [coordinates(t.mesh, parts) for _, parts in dims]
    n_devices = t.mesh.n_devices
    index = np.stack(columns, axis=1) if columns else np.zeros((n_devices, 0), dtype=np.int64)
    return Grid(
        tuple(n for n, _ in dims),
        tuple(math.prod(part.size for part in parts) for _, parts in dims),
        t.mesh.rank_array(),
        index,
        coordinates(t.mesh, at_zero) == 0,
    )


def common(a: Grid, b: Grid) -> tuple[Ints, Ints]:
    """Rows of a and of b that belong to the same ranks."""
    if len(a.ranks) == len(b.ranks) and bool(np.all(a.ranks == b.ranks)):
        rows = np.arange(len(a.ranks), dtype=np.int64)
        return rows, rows
    _, ia, ib = np.intersect1d(a.ranks, b.ranks, assume_unique=True, return_indices=True)
    return ia.astype(np.int64), ib.astype(np.int64)


def overlaps(a: Grid, ia: Ints, b: Grid, ib: Ints) -> Ints:
    """Elements in both boxes, for rows ``ia`` of a and ``ib`` of b."""
    out = (a.holds[ia] & b.holds[ib]).astype(np.int64)
    for i, n in enumerate(a.sizes):
        alo, ahi = bounds(n, a.cuts[i], a.index[ia, i])
        blo, bhi = bounds(n, b.cuts[i], b.index[ib, i])
        out *= np.maximum(np.minimum(ahi, bhi) - np.maximum(alo, blo), 0)
    return out


def total(values: Ints) -> int:
    """Sum that cannot overflow."""
    return (int(np.sum(values >> 31)) << 31) + int(np.sum(values & (2**31 - 1)))


def same_layout(a: ArrayType, b: ArrayType) -> bool:
    """Whether every rank holds the same under both types, however they are spelled.

    >>> m = Mesh(x=2, y=2)
    >>> same_layout(ArrayType.parse("f32[0{x}]", m), ArrayType.parse("f32[0{y}]", m))
    True
    """
    if (a.dtype, a.shape, a.pending_op) != (b.dtype, b.shape, b.pending_op):
        return False
    ga, gb = grid(a), grid(b)
    ia, ib = common(ga, gb)
    both = overlaps(ga, ia, gb, ib)
    if not total(both) == total(ga.volumes()) == total(gb.volumes()):
        return False
    if a.pending_op is None:
        return True
    pa, pb = coordinates(a.mesh, a.pending_axes)[ia], coordinates(b.mesh, b.pending_axes)[ib]
    held = np.stack([ga.shards()[ia], pa, pb])[:, both > 0]
    pairs = np.unique(held, axis=1).shape[1]  # in every tile, partial values must map one to one
    return all(np.unique(held[[0, k]], axis=1).shape[1] == pairs for k in (1, 2))
