"""Which indices does a device hold of a dim of segments: ranges in order, and where they lie in its tile.

Every segment has tiles of its own, which do not overlap, and is held by all devices that have the same
coordinate on the axes that cut it. So a type with segments is a list of grids, one for each choice of
a segment in every dim, and what holds for plain types holds for each of them::

    6{x}+4, 10{y}                    x=0: [0 1 2 | 6 7 8 9], x=1: [3 4 5 | 6 7 8 9]
    grid 1: 6{x} with 10{y}          each number of it on the devices of one x and one y
    grid 2: 4 with 10{y}             each number of it on the devices of one y, whatever x is

A tile is the indices that a device holds, in order, without gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.layout.axes import SubAxis, coordinates
from redist.layout.cuts import EvenCut, Ints
from redist.layout.mesh import Mesh
from redist.layout.segments import Factor, Segments

NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCut:
    """A segment of a dim: ``edges`` of ranges over the whole dim, and which tile holds each of them.

    ``owners`` is NOBODY for ranges of other segments. Neighbouring ranges have different owners.
    """

    n_tiles: int
    edges: Ints
    owners: Ints

    def sizes(self) -> Ints:
        """Indices of every tile."""
        own = self.owners >= 0
        lengths = np.diff(self.edges)[own]
        return np.bincount(self.owners[own], lengths, self.n_tiles).astype(np.int64)

    def overlaps(self, other: SegmentCut) -> Ints:
        """Indices in both, for every tile of this one (rows) and of another (columns)."""
        edges, mine, theirs = self.meet(other)
        both = (mine >= 0) & (theirs >= 0)
        places = mine[both] * other.n_tiles + theirs[both]
        lengths = np.diff(edges)[both]
        found = np.bincount(places, lengths, self.n_tiles * other.n_tiles).astype(np.int64)
        return found.reshape(self.n_tiles, other.n_tiles)

    def meet(self, other: SegmentCut) -> tuple[Ints, Ints, Ints]:
        """The edges of both, and who holds each range here and there."""
        edges = np.union1d(self.edges, other.edges)
        middle = edges[:-1]
        mine = self.owners[np.searchsorted(self.edges, middle, side="right") - 1]
        theirs = other.owners[np.searchsorted(other.edges, middle, side="right") - 1]
        return edges, mine, theirs


Runs = tuple[Ints, Ints]
"""Edges of ranges, and who holds each."""


def _join(edges: Ints, owners: Ints) -> Runs:
    """The same without empty ranges and without edges between ranges of one owner."""
    filled = np.diff(edges) > 0
    starts, owners = edges[:-1][filled], owners[filled]
    new = np.ones(len(owners), dtype=np.bool_)
    new[1:] = owners[1:] != owners[:-1]
    return np.append(starts[new], edges[-1]), owners[new]


def _factor_runs(factor: Factor) -> Runs:
    n, size = factor.n_tiles, factor.size
    if factor.block:
        blocks = np.arange(factor.first // factor.block, -(-(factor.first + size) // factor.block))
        starts = np.clip(blocks * factor.block - factor.first, 0, size)
        return _join(np.append(starts, size).astype(np.int64), (blocks % n).astype(np.int64))
    if factor.lengths:
        edges = np.concatenate([[0], np.cumsum(factor.lengths)]).astype(np.int64)
    else:
        edges = EvenCut(size, n).edges()
    return _join(edges, np.arange(n, dtype=np.int64))


Path = tuple[tuple[SubAxis, ...], Runs, int]
"""The axes of a path of factors, what their coordinates hold, and of how many indices."""


def _paths(segments: Segments) -> list[Path]:
    """Every path of a sum, with ranges over the whole sum."""
    total = sum(math.prod(factor.size for factor in segment) for segment in segments)
    start, out = 0, []
    for segment in segments:
        *before, last = segment
        size = math.prod(factor.size for factor in segment)
        inner = _paths(last.inner) if last.inner else [(last.axes, _factor_runs(last), last.size)]
        for path in inner:
            for factor in reversed(before):
                path = _multiply(factor, path)
            axes, (edges, owners), _ = path
            edges = np.concatenate([[0], edges + start, [total]])
            owners = np.concatenate([[NOBODY], owners, [NOBODY]])
            out.append((axes, _join(edges, owners), total))
        start += size
    return out


def _multiply(factor: Factor, rest: Path) -> Path:
    """The rest once for every index of a factor: digits, the factor's being the major one."""
    axes, (edges, owners), size = rest
    own_edges, own_owners = _factor_runs(factor)
    n = math.prod(part.size for part in axes)
    both = (*factor.axes, *axes)
    if len(owners) == 1 and owners[0] >= 0:
        return both, (own_edges * size, own_owners * n + owners[0]), factor.size * size
    major = np.repeat(own_owners, np.diff(own_edges))[:, None]
    every = np.where(owners >= 0, major * n + owners, NOBODY).ravel()
    starts = (np.arange(factor.size, dtype=np.int64)[:, None] * size + edges[:-1]).ravel()
    return both, _join(np.append(starts, factor.size * size), every), factor.size * size


Leaf = tuple[tuple[SubAxis, ...], SegmentCut]
"""A segment of a dim: the axes that cut it, and its ranges."""


@lru_cache(maxsize=4096)
def leaves(size: int, axes: tuple[SubAxis, ...], segments: Segments) -> tuple[Leaf, ...]:
    """The segments of a dim; a plain dim, cut by ``axes``, is one."""
    if not segments:
        return ((axes, even_leaf(size, math.prod(part.size for part in axes))),)
    return tuple(
        (own, SegmentCut(math.prod(part.size for part in own), edges, owners))
        for own, (edges, owners), _ in _paths(segments)
    )


def even_leaf(size: int, n_tiles: int) -> SegmentCut:
    """A dim that is cut into even ranges, as one segment."""
    return SegmentCut(n_tiles, *_factor_runs(Factor(size, (SubAxis("", 1, n_tiles),))))


@lru_cache(maxsize=4096)
def cut_overlaps(a: SegmentCut, b: SegmentCut) -> Ints:
    """Indices in both, for every tile of a (rows) and of b (columns)."""
    return a.overlaps(b)


@lru_cache(maxsize=4096)
def tile_spans(
    mesh: Mesh, size: int, axes: tuple[SubAxis, ...], segments: Segments
) -> tuple[Ints, ...]:
    """For every tile of a dim the ranges that it has, in order: columns start, end, and place in the tile.

    Tiles are numbered by the coordinate on all axes of the dim, as :func:`coordinates` counts it.
    """
    tile = coordinates(mesh, axes)
    device = np.zeros(math.prod(part.size for part in axes), dtype=np.int64)
    device[tile] = np.arange(mesh.n_devices)
    found: list[list[Ints]] = [[] for _ in device]
    for own, cut in leaves(size, axes, segments):
        holder = coordinates(mesh, own)[device]
        order = np.argsort(cut.owners, kind="stable")
        at = np.searchsorted(cut.owners[order], np.arange(cut.n_tiles + 1))
        starts, ends = cut.edges[:-1][order], cut.edges[1:][order]
        for number, held in enumerate(holder):
            rows = slice(at[held], at[held + 1])
            found[number].append(np.stack([starts[rows], ends[rows]], axis=1))
    out = []
    for parts in found:
        spans = np.concatenate(parts)
        spans = spans[np.argsort(spans[:, 0], kind="stable")]
        gap = np.ones(len(spans), dtype=np.bool_)
        gap[1:] = spans[1:, 0] != spans[:-1, 1]
        last = np.append(gap[1:], True)[: len(spans)]
        spans = np.stack([spans[gap, 0], spans[last, 1]], axis=1)
        lengths = spans[:, 1] - spans[:, 0]
        out.append(np.column_stack([spans, np.cumsum(lengths) - lengths]))
    return tuple(out)
