"""Which box of global indices each device holds: types as numbers and boxes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints as Ints
from redist.layout.axes import SubAxis, coordinates
from redist.layout.cuts import Cut, EvenCut
from redist.layout.mesh import Mesh
from redist.layout.spans import Leaf, SegmentCut, cut_overlaps, even_leaf, leaves, tile_spans


def number_tiles(index: Ints, n_tiles: Sequence[int]) -> Ints:
    """One number for each row of tile indices, given the tiles of each dim; the last dim counts fastest.

    >>> number_tiles(np.array([[0, 1], [1, 2]]), (2, 3))
    array([1, 5])
    """
    out = np.zeros(len(index), dtype=np.int64)
    for i, n in enumerate(n_tiles):
        out = out * n + index[:, i]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A type as numbers: how each dim is cut, and which tile each rank holds.

    ``index`` has one row per device and one column per dim; ``ranks`` has the rank of each device;
    a device for which ``holds`` is False holds nothing. Every tile is taken to be a box: one range of
    each dim.
    """

    dims: tuple[Cut, ...]
    ranks: Ints
    index: Ints
    holds: NDArray[np.bool_]

    @property
    def n_tiles(self) -> tuple[int, ...]:
        """Into how many tiles each dim is cut."""
        return tuple(cut.n_tiles for cut in self.dims)

    def boxes(self) -> tuple[Ints, Ints]:
        """Start and end of every device's box, one column per dim; empty for devices that hold nothing."""
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
        return number_tiles(self.index, self.n_tiles)


def grid(
    t: ArrayType,
    extra: Sequence[tuple[int, Sequence[SubAxis]]] = (),
    at_zero: Sequence[SubAxis] = (),
) -> Grid:
    """The grid of a type, with ``extra`` dims, given as (size, parts), after those of the array.

    Extra dims express as boxes what the array's own dims cannot: partial values that must not
    mix, or groups that data must not leave. They are cut evenly. Devices whose coordinate along
    ``at_zero`` is not 0 hold nothing.
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
    """The box that each rank of a type's mesh holds.

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
    """Start and end of the indices in a rank's tile, dim by dim; None if the rank is not in the mesh.

    **Local.** A tile of an uneven dim may be short; an empty tile starts where it ends.

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
    if type.segments:
        raise LayoutError(
            f"cannot find the box of a tile of {type}: it may have several ranges of a dim; "
            "redist.spans_of has them"
        )
    index = enumerate(tile_index(type, rank))
    return tuple(type.cut(dim).range_of(tile) for dim, tile in index)


@lru_cache(maxsize=4096)
def tile_index(t: ArrayType, rank: int) -> tuple[int, ...]:
    """The number of the tile that a rank of the mesh holds, along each dim."""
    row = t.mesh.ranks.index(rank)
    return tuple(int(coordinates(t.mesh, parts)[row]) for parts in t.dims)


@lru_cache(maxsize=4096)
def tile_shapes(t: ArrayType) -> dict[int, tuple[int, ...]]:
    """Shape of the tile of every rank of a type's mesh."""
    if t.segments:
        shapes = map(tuple, device_shapes(t).tolist())
        return dict(zip(t.mesh.ranks, shapes, strict=True))
    return {rank: tuple(hi - lo for lo, hi in box) for rank, box in boxes_of(t).items()}


@lru_cache(maxsize=4096)
def is_first_copy(t: ArrayType, rank: int) -> bool:
    """Whether a rank is the first of the ranks that hold the same tile."""
    if rank not in t.mesh.ranks:
        return False
    shards = coordinates(t.mesh, (part for dim in t.dims for part in dim))
    row = t.mesh.ranks.index(rank)
    return int(np.argmax(shards == shards[row])) == row


def common(a: Grid | SpanGrid | Mesh, b: Grid | SpanGrid | Mesh) -> tuple[Ints, Ints]:
    """Rows of ``a`` and of ``b`` that belong to the same ranks."""
    one, other = np.asarray(a.ranks), np.asarray(b.ranks)
    if len(one) == len(other) and bool(np.all(one == other)):
        rows = np.arange(len(one), dtype=np.int64)
        return rows, rows
    _, ia, ib = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return ia.astype(np.int64), ib.astype(np.int64)


def overlaps(a: Grid, ia: Ints, b: Grid, ib: Ints) -> Ints:
    """Number of elements in both boxes, for rows ``ia`` of ``a`` and ``ib`` of ``b``."""
    out = (a.holds[ia] & b.holds[ib]).astype(np.int64)
    for i, (cut, other) in enumerate(zip(a.dims, b.dims, strict=True)):
        alo, ahi = cut.ranges_of(a.index[ia, i])
        blo, bhi = other.ranges_of(b.index[ib, i])
        out *= np.maximum(np.minimum(ahi, bhi) - np.maximum(alo, blo), 0)
    return out


def held_in_both(a: ArrayType, b: ArrayType) -> tuple[Ints, Ints, Ints]:
    """Devices of ``a`` and of ``b`` with the same rank, and how many elements it holds under both types."""
    ia, ib = common(a.mesh, b.mesh)
    if a.segments or b.segments:
        return ia, ib, common_elems(a, ia, b, ib)
    return ia, ib, overlaps(grid(a), ia, grid(b), ib)


def volumes(t: ArrayType) -> Ints:
    """Elements that each device holds."""
    if t.segments:
        return np.prod(device_shapes(t), axis=1, dtype=np.int64)
    return grid(t).volumes()


def total(values: Ints) -> int:
    """The sum of some integers, without overflow."""
    return (int(np.sum(values >> 31)) << 31) + int(np.sum(values & (2**31 - 1)))


def same_layout(a: ArrayType, b: ArrayType) -> bool:
    """Whether every rank holds the same elements under both types, however the types are written.

    >>> m = Mesh(x=2, y=2)
    >>> same_layout(ArrayType.parse("f32[0{x}]", m), ArrayType.parse("f32[0{y}]", m))
    True
    """
    if (a.dtype, a.shape, a.pending_op) != (b.dtype, b.shape, b.pending_op):
        return False
    ia, ib, both = held_in_both(a, b)
    if not total(both) == total(volumes(a)) == total(volumes(b)):
        return False
    if a.pending_op is None:
        return True
    pa, pb = coordinates(a.mesh, a.pending_axes)[ia], coordinates(b.mesh, b.pending_axes)[ib]
    tile = coordinates(a.mesh, (part for dim in a.dims for part in dim))
    held = np.stack([tile[ia], pa, pb])[:, both > 0]
    pairs = np.unique(held, axis=1).shape[1]  # in every tile, partial values must map one to one
    return all(np.unique(held[[0, k]], axis=1).shape[1] == pairs for k in (1, 2))


# Types with segments


def leaves_of(t: ArrayType, dim: int) -> tuple[Leaf, ...]:
    """The segments of a dim; a plain dim counts as one segment."""
    return leaves(t.shape[dim], t.dims[dim], t.segments_of(dim))


def spans_in(t: ArrayType, dim: int) -> tuple[Ints, ...]:
    """The ranges of every tile of a dim: their start, end, and place in the tile."""
    return tile_spans(t.mesh, t.shape[dim], t.dims[dim], t.segments_of(dim))


@lru_cache(maxsize=4096)
def device_shapes(t: ArrayType) -> Ints:
    """The shape of every device's tile, one row each."""
    out = np.zeros((t.mesh.n_devices, t.ndim), dtype=np.int64)
    for dim, axes in enumerate(t.dims):
        sizes = np.array([np.sum(s[:, 1] - s[:, 0]) for s in spans_in(t, dim)], dtype=np.int64)
        out[:, dim] = sizes[coordinates(t.mesh, axes)]
    return out


Spans = tuple[tuple[tuple[int, int], ...], ...]
"""For every dim the ranges of indices that a tile has, in order."""


def spans_of(type: ArrayType, rank: int) -> Spans | None:
    """The ranges of indices in a rank's tile, dim by dim; None if the rank is not in the mesh.

    **Local.** The tile holds these indices in order, without gaps. This works for every type; if each dim has
    only one range, :func:`redist.box_of` works too.

    >>> import redist
    >>> fused = redist.ArrayType.parse("f32[8{x}+4+8{x}]", redist.Mesh(x=2))
    >>> redist.spans_of(fused, 1)
    (((4, 12), (16, 20)),)
    """
    if rank not in type.mesh.ranks:
        return None
    row = type.mesh.ranks.index(rank)
    return tuple(
        tuple((int(lo), int(hi)) for lo, hi, _ in spans_in(type, dim)[tile])
        for dim, axes in enumerate(type.dims)
        for tile in [int(coordinates(type.mesh, axes)[row])]
    )


def indices_of(t: ArrayType, rank: int) -> tuple[Ints, ...]:
    """The indices that a rank's tile holds, dim by dim, for ``np.ix_``."""
    spans = spans_of(t, rank)
    assert spans is not None, f"rank {rank} is not in {t.mesh}"
    nothing = np.zeros(0, dtype=np.int64)
    return tuple(
        np.concatenate([nothing, *(np.arange(lo, hi, dtype=np.int64) for lo, hi in dim)])
        for dim in spans
    )


@dataclass(frozen=True, slots=True, eq=False)
class SpanGrid:
    """One choice of a segment per dim: how each is cut, and which of its tiles each rank holds.

    As in a :class:`Grid`, ``index`` has one row per device and one column per dim.
    """

    cuts: tuple[SegmentCut, ...]
    ranks: Ints
    index: Ints
    holds: NDArray[np.bool_]

    @property
    def n_tiles(self) -> tuple[int, ...]:
        """Into how many tiles each segment is cut."""
        return tuple(cut.n_tiles for cut in self.cuts)

    def shards(self) -> Ints:
        """One number per device that tells its tile from the others."""
        return number_tiles(self.index, self.n_tiles)


def grids(
    t: ArrayType,
    extra: Sequence[tuple[int, Sequence[SubAxis]]] = (),
    at_zero: Sequence[SubAxis] = (),
) -> list[SpanGrid]:
    """The grids of a type, one for each choice of segments; the arguments are those of :func:`grid`."""
    holds = coordinates(t.mesh, at_zero) == 0
    behind = [
        (tuple(parts), even_leaf(n, math.prod(part.size for part in parts))) for n, parts in extra
    ]
    out = []
    for chosen in itertools.product(*(leaves_of(t, dim) for dim in range(t.ndim))):
        every = [*chosen, *behind]
        columns = [coordinates(t.mesh, axes) for axes, _ in every]
        index = np.stack(columns, axis=1) if columns else np.zeros((len(holds), 0), dtype=np.int64)
        out.append(SpanGrid(tuple(cut for _, cut in every), t.mesh.rank_array(), index, holds))
    return out


def overlap_tables(a: SpanGrid, b: SpanGrid) -> list[Ints]:
    """For every dim, how many indices each tile of ``a`` (rows) and of ``b`` (columns) have in common."""
    return [cut_overlaps(one, other) for one, other in zip(a.cuts, b.cuts, strict=True)]


def common_elems(a: ArrayType, rows_a: Ints, b: ArrayType, rows_b: Ints) -> Ints:
    """Number of elements in both tiles, for devices ``rows_a`` of ``a`` and ``rows_b`` of ``b``."""
    out = np.ones(len(rows_a), dtype=np.int64)
    for dim in range(a.ndim):
        both = np.zeros_like(out)
        for axes, cut in leaves_of(a, dim):
            for other_axes, other in leaves_of(b, dim):
                mine = coordinates(a.mesh, axes)[rows_a]
                theirs = coordinates(b.mesh, other_axes)[rows_b]
                both += cut_overlaps(cut, other)[mine, theirs]
        out *= both
    return out


def check_blocks(weight: ArrayType, scales: ArrayType, block: Sequence[int]) -> None:
    """**Local.** Raise unless every rank has the scales of exactly those blocks that are in its tile.

    ``block`` is the size of a block of the ``weight`` along each dim; ``scales`` has one number per block.
    No tile may cut a block, and the blocks of a tile must be in the order of its scales.

    >>> import redist
    >>> mesh = redist.Mesh(tp=4)
    >>> w, s = (redist.ArrayType.parse(t, mesh) for t in ("f8e4m3fn[16{tp}*128, 512]", "f32[16{tp}, 4]"))
    >>> redist.check_blocks(w, s, (128, 128))
    >>> cut = redist.ArrayType.parse("f8e4m3fn[1536{tp}, 512]", mesh)
    >>> redist.check_blocks(cut, redist.ArrayType.parse("f32[12{tp}, 4]", mesh), (128, 128))
    >>> odd = redist.ArrayType.parse("f8e4m3fn[2112{tp}, 512]", mesh)
    >>> redist.check_blocks(odd, redist.ArrayType.parse("f32[17{tp}, 4]", mesh), (128, 128))
    Traceback (most recent call last):
    ...
    redist.errors.LayoutError: cannot pair f8e4m3fn[2112{tp}, 512] with scales f32[17{tp}, 4]: rank 0 has \
indices 0 to 528 of dim 0, which cut a block of 128; write the dim as blocks, as in 17{...}*128
    """
    sizes = tuple(block)

    def refuse(reason: str) -> LayoutError:
        return LayoutError(f"cannot pair {weight} with scales {scales}: {reason}")

    wanted = tuple(-(-n // b) for n, b in zip(weight.shape, sizes, strict=False))
    if len(sizes) != weight.ndim or scales.shape != wanted or min(sizes, default=1) < 1:
        raise refuse(f"blocks of {sizes} make scales of shape {wanted}, not {scales.shape}")
    if weight.mesh.ranks != scales.mesh.ranks:
        raise refuse("they lie on different ranks")
    for rank in weight.mesh.ranks:
        spans, own = spans_of(weight, rank), spans_of(scales, rank)
        assert spans is not None
        assert own is not None
        for dim, (held, there, b) in enumerate(zip(spans, own, sizes, strict=True)):
            for lo, hi in held:
                if lo % b or (hi % b and hi != weight.shape[dim]):
                    raise refuse(
                        f"rank {rank} has indices {lo} to {hi} of dim {dim}, which cut a block of {b}; "
                        f"write the dim as blocks, as in {wanted[dim]}{{...}}*{b}"
                    )
            blocks = [k for lo, hi in held for k in range(lo // b, -(-hi // b))]
            found = [k for lo, hi in there for k in range(lo, hi)]
            if blocks != found:
                raise refuse(
                    f"rank {rank} has {len(blocks)} blocks of dim {dim} but scales of {len(found)}, or of "
                    "others; cut both alike"
                )
