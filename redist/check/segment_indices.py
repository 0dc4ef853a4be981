"""Who holds which index of a dim with segments, asked index by index: digits of a number and nothing else.

`layout.spans` works with ranges; this file divides each index by the sizes of its factors, as the notation
says, so that neither can repeat a fault of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints, SubAxis, coordinates
from redist.layout.segments import Factor, Segments

Owners = tuple[tuple[SubAxis, ...], Ints]
"""Axes, and for every index of a dim the coordinate on them that holds it; -1 outside their segment."""


@lru_cache(maxsize=256)
def owners_of(t: ArrayType, dim: int) -> tuple[Owners, ...]:
    """For every segment of a dim who holds each index."""
    index = np.arange(t.shape[dim], dtype=np.int64)
    segments = t.segments_of(dim) or ((Factor(t.shape[dim], t.dims[dim]),),)
    return tuple(_sum(segments, index))


def _sum(segments: Segments, index: Ints) -> Iterator[Owners]:
    start = 0
    for segment in segments:
        size = math.prod(factor.size for factor in segment)
        inside = (index >= start) & (index < start + size)
        for axes, owner in _product(segment, np.where(inside, index - start, 0)):
            yield axes, np.where(inside, owner, -1)
        start += size


def _product(segment: tuple[Factor, ...], index: Ints) -> Iterator[Owners]:
    first, *rest = segment
    if first.inner:
        yield from _sum(first.inner, index)
        return
    below = math.prod(factor.size for factor in rest)
    digit = index // max(below, 1)
    own = _coordinate(first, digit)
    if not rest:
        yield first.axes, own
        return
    for axes, owner in _product(tuple(rest), index - digit * below):
        n = math.prod(part.size for part in axes)
        yield (*first.axes, *axes), np.where(owner < 0, -1, own * n + owner)


def _coordinate(factor: Factor, digit: Ints) -> Ints:
    n = math.prod(part.size for part in factor.axes)
    if factor.block:
        return (digit + factor.first) // factor.block % n
    if factor.lengths:
        ends = np.cumsum(np.array(factor.lengths, dtype=np.int64))
        return np.searchsorted(ends, digit, side="right").astype(np.int64)
    return digit // max(-(-factor.size // n), 1)


def is_covered(t: ArrayType) -> bool:
    """Whether every index of every dim is held under exactly one segment, by a coordinate that exists."""
    for dim in range(t.ndim):
        times = np.zeros(t.shape[dim], dtype=np.int64)
        for axes, owner in owners_of(t, dim):
            if np.any(owner >= math.prod(part.size for part in axes)):
                return False
            times += owner >= 0
        if np.any(times != 1):
            return False
    return True


def held_elems(t: ArrayType) -> Ints:
    """Elements that each device holds."""
    out = np.ones(t.mesh.n_devices, dtype=np.int64)
    for dim in range(t.ndim):
        held = np.zeros_like(out)
        for axes, owner in owners_of(t, dim):
            n = math.prod(part.size for part in axes)
            held += np.bincount(owner[owner >= 0], minlength=n)[coordinates(t.mesh, axes)]
        out *= held
    return out


def _tables(a: ArrayType, b: ArrayType, dim: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For all pairs of segments how many indices coordinates share, and the coordinates of all devices."""
    for axes, owner in owners_of(a, dim):
        n = math.prod(part.size for part in axes)
        for other_axes, other in owners_of(b, dim):
            m = math.prod(part.size for part in other_axes)
            both = (owner >= 0) & (other >= 0)
            table = np.bincount(owner[both] * m + other[both], minlength=n * m).reshape(n, m)
            yield table, coordinates(a.mesh, axes), coordinates(b.mesh, other_axes)


def shared_elems(a: ArrayType, b: ArrayType, own: Ints) -> Ints:
    """Elements that each device of b holds already as the device ``own`` of a; 0 where that is -1."""
    out = (own >= 0).astype(np.int64)
    for dim in range(a.ndim):
        shared = np.zeros_like(out)
        for table, mine, theirs in _tables(a, b, dim):
            shared += table[mine[own], theirs]
        out *= shared
    return out


def count_cells(a: ArrayType, b: ArrayType, own: Ints) -> tuple[Ints, Ints]:
    """How many tiles of the segments of a each device of b meets, and how many of them are its own."""
    met = np.ones(b.mesh.n_devices, dtype=np.int64)
    have = (own >= 0).astype(np.int64)
    for dim in range(a.ndim):
        every, mine_too = np.zeros_like(met), np.zeros_like(met)
        for table, mine, theirs in _tables(a, b, dim):
            every += np.count_nonzero(table, axis=0)[theirs]
            mine_too += table[mine[own], theirs] > 0
        met *= every
        have *= mine_too
    return met, have
