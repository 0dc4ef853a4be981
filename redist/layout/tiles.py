"""Which box of global indices does a device hold: types turned into numbers and boxes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Cut, EvenCut
from redist.layout.mesh import Mesh

Ints = NDArray[np.int64]

REMEMBERED_DEVICES = 4096
"""Many coordinates are remembered for meshes up to this size, a few for larger ones."""


def coordinates(mesh: Mesh, parts: Iterable[SubAxis]) -> Ints:
    """Mixed-radix number of every device's coordinates on ``parts``, major first.

    >>> coordinates(Mesh(x=2, y=3), [SubAxis("y", 1, 3)])
    array([0, 1, 2, 0, 1, 2])
    """
    remember = _many if mesh.n_devices <= REMEMBERED_DEVICES else _few
    return remember(mesh, tuple(parts))


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


_many = lru_cache(maxsize=2048)(_make_coordinates)
_few = lru_cache(maxsize=16)(_make_coordinates)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A type as numbers: how each dim is cut, and which tile each rank holds.

    ``index`` has one row per device and one column per dim; ``ranks`` says who plays the device;
    where ``holds`` is False the device holds nothing. A tile is taken for a box: one range of every
    dim.
    """

    dims: tuple[Cut, ...]
    ranks: Ints
    index: Ints
    holds: NDArray[np.bool_]

    def boxes(self) -> tuple[Ints, Ints]:
        """Start and end of every device's box, one column per dim; empty where it holds nothing."""
        lo = np.empty_like(self.index)
        hi = np.empty_like(self.index)
        for i, cut in enumerate(self.dims):
            lo[:, i], hi[:, i] = cut.ranges_of(self.index[:, i])
        hi[~self.holds] = lo[~self.holds]
        return lo, hi

    def volumes(self) -> Ints:
        """Elements that each device holds."""
        out = self.holds.astype(np.int64)
        for i, cut in enumerate(self.dims):
            lo, hi = cut.ranges_of(self.index[:, i])
            out *= hi - lo
        return out

    def shards(self) -> Ints:
        """One number per device that tells its tile from the others."""
        out = np.zeros(len(self.ranks), dtype=np.int64)
        for i, cut in enumerate(self.dims):
            out = out * cut.n_tiles + self.index[:, i]
        return out


def grid(
    t: ArrayType,
    extra: Sequence[tuple[int, Sequence[SubAxis]]] = (),
    at_zero: Sequence[SubAxis] = (),
) -> Grid:
    """The grid of a type, with ``extra`` dims of (size, parts) behind those of the array.

    Extra dims say in terms of boxes what the array's own dims do not: partial values that must not
    mix, or groups that must not be left; they are cut evenly. Devices off coordinate 0 of
    ``at_zero`` hold nothing.
    """
    chains = [*t.dims, *(tuple(parts) for _, parts in extra)]
    behind = (EvenCut(n, math.prod(part.size for part in parts)) for n, parts in extra)
    columns = [coordinates(t.mesh, parts) for parts in chains]
    n_devices = t.mesh.n_devices
    index = np.stack(columns, axis=1) if columns else np.zeros((n_devices, 0), dtype=np.int64)
    return Grid(
        (*map(t.cut, range(t.ndim)), *behind),
        t.mesh.rank_array(),
        index,
        coordinates(t.mesh, at_zero) == 0,
    )


Box = tuple[tuple[int, int], ...]
"""Start and end of indices along every dim."""


def boxes_of(t: ArrayType) -> dict[int, Box]:
    """What every rank of a type's mesh holds.

    >>> boxes_of(ArrayType.parse("f64[5{x}]", Mesh(x=2)))
    {0: ((0, 3),), 1: ((3, 5),)}
    """
    lo, hi = grid(t).boxes()
    return {
        rank: tuple(zip(starts, ends, strict=True))
        for rank, starts, ends in zip(t.mesh.ranks, lo.tolist(), hi.tolist(), strict=True)
    }


@lru_cache(maxsize=4096)
def box_of(type: ArrayType, rank: int) -> Box | None:
    """Start and end of the indices that a rank's tile holds, dim by dim; None outside the mesh.

    **Local.** A tile of an uneven dim may be short, and an empty one starts where it ends.

    >>> import redist
    >>> columns = redist.ArrayType.parse("f32[8, 9{x}]", redist.Mesh(x=2))
    >>> redist.box_of(columns, 1)
    ((0, 8), (5, 9))
    """
    if isinstance(type, str):
        raise LayoutError(
            f"cannot find the box in the text {type!r}: need an ArrayType; "
            "redist.ArrayType.parse(text, mesh) makes one"
        )
    if rank not in type.mesh.ranks:
        return None
    index = enumerate(tile_index(type, rank))
    return tuple(type.cut(dim).range_of(tile) for dim, tile in index)


@lru_cache(maxsize=4096)
def tile_index(t: ArrayType, rank: int) -> tuple[int, ...]:
    """Which tile a rank of the mesh holds along every dim."""
    row = t.mesh.ranks.index(rank)
    return tuple(int(coordinates(t.mesh, parts)[row]) for parts in t.dims)


@lru_cache(maxsize=4096)
def tile_shapes(t: ArrayType) -> dict[int, tuple[int, ...]]:
    """Shape of the tile of every rank of a type's mesh."""
    return {rank: tuple(hi - lo for lo, hi in box) for rank, box in boxes_of(t).items()}


@lru_cache(maxsize=4096)
def is_first_copy(t: ArrayType, rank: int) -> bool:
    """Whether a rank is the first of those that hold its tile."""
    if rank not in t.mesh.ranks:
        return False
    shards, row = grid(t).shards(), t.mesh.ranks.index(rank)
    return int(np.argmax(shards == shards[row])) == row


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
    for i, (cut, other) in enumerate(zip(a.dims, b.dims, strict=True)):
        alo, ahi = cut.ranges_of(a.index[ia, i])
        blo, bhi = other.ranges_of(b.index[ib, i])
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
