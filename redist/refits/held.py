"""Where the elements of named tensors lie in the tiles of one side.

A named tensor in a tile is a list of *boxes*. A box has ranges of indices along every dim of the named
tensor, each with a place in the tile, and has all combinations of them::

    k of qkv[8*(6|1|1)*128, 4096], cut in two: rows 0 to 512 of k in rank 0's tile

        indices       at (rows of the tile)
        0 to 128      768          one range for each of 4 groups; all rows of a range are apart by
        128 to 256    1792         the same step
        ...

Few tiles differ: layers are alike, and so are experts and copies, but for the ranks that hold them and the
place of the first element. So tiles are compared by content, and what is alike is one *pattern*. What differs
is in *rows*: which ranks hold the tiles of a pattern, and where in their buffers these begin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints, coordinates
from redist.layout.dtype import DType
from redist.layout.tiles import spans_in
from redist.names.digits import boxes_in
from redist.names.part import Part
from redist.refits.ranges import Box, Ranges, Tile, joined, tile_of_boxes
from redist.refits.recorded import Recorded, tensors_of
from redist.refits.weights import Weights


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """A named tensor in one stored tensor: which tile each holder has of it, and from which byte.

    ``pattern``, ``ranks`` and ``bases`` are numbers of what seats may share: which tiles follow each
    other, the ranks of the holders, and their bases. ``dtype`` is that of the stored tensor.
    """

    pattern: int
    ranks: int
    bases: int
    dtype: DType


class Held:
    """All named tensors of one side, and the tiles, patterns, ranks and bases that they have.

    >>> held = Held(Weights({"qkv": "f32[8{x}+2*2, 3]"}, "x=2", names="qkv[q|2|2, :] = q, k, v"))
    >>> [(name, held.shapes[name], len(found)) for name, found in held.named.items()]
    [('q', (8, 3), 1), ('k', (2, 3), 1), ('v', (2, 3), 1)]
    >>> one = held.seats[held.named["k"][0][0]]
    >>> held.ranks[one.ranks].tolist(), held.bases[one.bases].tolist(), held.patterns[one.pattern].tolist()
    ([0, 1], [48, 48], [2, 2])
    """

    def __init__(self, weights: Weights) -> None:
        self.tiles: list[Tile] = []
        self.patterns: list[Ints] = []
        self.ranks: list[Ints] = []
        self.bases: list[Ints] = []
        self.seats: list[Seat] = []
        self.named: dict[str, list[tuple[int, int]]] = {}
        """By name of a named tensor: numbers of seats, each with the number of its stored tensor."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        """The shape of each named tensor."""
        self._numbers: dict[object, int] = {}
        self._of_parts: dict[object, tuple[int, int, Ints]] = {}
        if weights.recorded_by_rank is not None:
            self._take_recorded(weights, weights.recorded_by_rank)
            return
        placed: dict[object, int] = {}
        geometries: dict[int, tuple[object, ArrayType]] = {}
        for number, (stored, t) in enumerate(weights.types.items()):
            geometry = geometries.get(id(t))
            if geometry is None:
                plain = (t.dtype, t.shape, t.dims, t.segments, t.mesh.axes)
                geometry = geometries[id(t)] = (plain, t)
            for part in weights.names.parts_of(stored, t.shape):
                if 0 in part.shape:
                    continue
                key = (id(t), part.shape, part.digits, part.dims, part.steps, part.starts)
                seat = placed.get(key)
                if seat is None:
                    seat = placed[key] = self._seat(t, geometry[0], part)
                if seat >= 0:
                    self.named.setdefault(part.name, []).append((seat, number))
                if self.shapes.setdefault(part.name, part.shape) != part.shape:
                    raise ArgumentError(
                        f"cannot refit {part.name!r}: {stored!r} makes it {list(part.shape)}, another stored "
                        f"tensor {list(self.shapes[part.name])}; correct the rules"
                    )

    def _seat(self, t: ArrayType, geometry: object, part: Part) -> int:
        key = (geometry, part.shape, part.digits, part.dims, part.steps, part.starts)
        found = self._of_parts.get(key)
        if found is None:
            tiles, bases, devices = tiles_of(t, part)
            numbers = np.array(
                [self._number("tile", _key(tile), tile, self.tiles) for tile in tiles]
            )
            which = np.array([i for i, _ in devices], dtype=np.int64)
            pattern = numbers[which].astype(np.int64) if len(which) else which
            base = np.array(bases, dtype=np.int64)[which] if len(which) else which
            found = self._of_parts[key] = (
                self._number("pattern", pattern.tobytes(), pattern, self.patterns),
                self._number("bases", base.tobytes(), base, self.bases),
                np.array([device for _, device in devices], dtype=np.int64),
            )
        if not len(found[2]):
            return -1
        ranks = t.mesh.rank_array()[found[2]]
        row = self._number("ranks", ranks.tobytes(), ranks, self.ranks)
        self.seats.append(Seat(found[0], row, found[1], t.dtype))
        return len(self.seats) - 1

    def _take_recorded(self, weights: Weights, by_rank: Mapping[int, Recorded]) -> None:
        """Seats from boxes that ranks recorded."""
        numbers = {name: number for number, name in enumerate(weights.stored)}
        alike: dict[object, int] = {}
        holders: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        known: dict[int, list[tuple[tuple[str, str], int, int]]] = {}
        for rank in sorted(by_rank):
            one = by_rank[rank]
            if id(one) not in known:
                own = known[id(one)] = []
                for names, boxes in one.by_tensor.items():
                    base = min(box.offset for box in boxes)
                    key = frozenset((b.lo, b.shape, b.strides, b.offset - base) for b in boxes)
                    if key not in alike:
                        tile = tile_of_boxes(key)
                        alike[key] = self._number("tile", _key(tile), tile, self.tiles)
                    own.append((names, alike[key], base))
            for names, tile_number, base in known[id(one)]:
                holders.setdefault(names, []).append((rank, tile_number, base))
        self.shapes = tensors_of(by_rank.values())
        for (stored, name), rows in sorted(holders.items()):
            ranks, pattern, bases = np.array(rows, dtype=np.int64).T.copy()
            self.seats.append(Seat(
                self._number("pattern", pattern.tobytes(), pattern, self.patterns),
                self._number("ranks", ranks.tobytes(), ranks, self.ranks),
                self._number("bases", bases.tobytes(), bases, self.bases),
                weights.types[stored].dtype,
            ))  # fmt: skip
            self.named.setdefault(name, []).append((len(self.seats) - 1, numbers[stored]))

    def _number(self, kind: str, key: object, value: Any, values: list[Any]) -> int:
        number = self._numbers.setdefault((kind, key), len(values))
        if number == len(values):
            values.append(value)
        return number


def _key(tile: Tile) -> object:
    return tuple(tuple(ranges.key for ranges in box) for box in tile)


def tiles_of(t: ArrayType, part: Part) -> tuple[list[Tile], list[int], list[tuple[int, int]]]:
    """The different tiles of a named tensor, where each begins, and (tile, device) for all that hold some.

    Tiles that are empty are left out.
    """
    along = [[j for j, dim in enumerate(part.dims) if dim == d] for d in range(t.ndim)]
    per_dim, lengths = [], []
    for d in range(t.ndim):
        digits = tuple((part.digits[j], part.steps[j]) for j in along[d])
        ranges, sizes_of = _ranges_in(t, d)
        per_dim.append([_counted(r, part.starts[d], digits) for r in ranges])
        lengths.append(sizes_of)
    different, which = _tiles_in(t)
    tiles: list[Tile] = []
    bases: list[int] = []
    number = np.full(len(different), -1)
    for row, chosen in enumerate(different):
        counted = [per_dim[d][c] for d, c in enumerate(chosen)]
        if not all(found.n for found in counted):
            continue
        sizes = [lengths[d][c] for d, c in enumerate(chosen)]
        steps = tuple(math.prod(sizes[d + 1 :]) * t.dtype.itemsize for d in range(t.ndim))
        # Dims that no digit runs along only move the base: one tile for all experts.
        fixed = sum(int(counted[d].at[0]) * steps[d] for d in range(t.ndim) if not along[d])
        moving = tuple(found if js else None for found, js in zip(counted, along, strict=True))
        base, tile = _tile(part.shape, part.digits, part.dims, part.steps, moving, steps)
        base += fixed
        number[row] = len(tiles)
        tiles.append(tile)
        bases.append(base)
    held = number[which]
    own = np.flatnonzero(held >= 0)
    devices = [*zip(held[own].tolist(), own.tolist(), strict=True)]
    return tiles, bases, devices


@lru_cache(maxsize=4096)
def _tiles_in(t: ArrayType) -> tuple[list[list[int]], Ints]:
    """The different tiles of a type, by their place along every dim, and which one each device has."""
    places = [coordinates(t.mesh, axes) for axes in t.dims]
    index = np.stack(places, axis=1) if places else np.zeros((t.mesh.n_devices, 0), np.int64)
    different, which = np.unique(index, axis=0, return_inverse=True)
    return different.tolist(), which.reshape(-1)


@lru_cache(maxsize=4096)
def _ranges_in(t: ArrayType, d: int) -> tuple[list[Rows], list[int]]:
    """The ranges of every tile along a dim, and how many indices these are."""
    ranges = [_rows(r) for r in spans_in(t, d)]
    return ranges, [sum(hi - lo for lo, hi, _ in r) for r in ranges]


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Boxes of the digits along a stored dim that a tile has: first digits, counts, and where in the tile."""

    firsts: Ints  # a row for every box, a column for every digit
    counts: Ints
    at: Ints

    @property
    def n(self) -> int:
        return len(self.at)


Rows: TypeAlias = tuple[tuple[int, int, int], ...]


def _rows(spans: Ints) -> Rows:
    return tuple((int(lo), int(hi), int(at)) for lo, hi, at in spans)


@lru_cache(maxsize=2**14)
def _counted(spans: Rows, start: int, digits: tuple[tuple[int, int], ...]) -> _Counted:
    order = sorted(range(len(digits)), key=lambda j: -digits[j][1])
    by_step = [digits[j] for j in order]
    extent = 1 + sum((size - 1) * step for size, step in digits)
    firsts, counts, at = [], [], []
    for lo, hi, local in spans:
        if hi <= start or lo >= start + extent:
            continue
        for box in boxes_in(lo - start, hi - start, by_step):
            first, count = [0] * len(digits), [1] * len(digits)
            for j, (a, n) in zip(order, box, strict=True):
                first[j], count[j] = a, n
            firsts.append(first)
            counts.append(count)
            begin = sum(a * step for a, (_, step) in zip(first, digits, strict=True))
            at.append(local + start + begin - lo)
    shape = (len(at), len(digits))
    return _Counted(
        np.array(firsts, dtype=np.int64).reshape(shape),
        np.array(counts, dtype=np.int64).reshape(shape),
        np.array(at, dtype=np.int64),
    )


@lru_cache(maxsize=2**14)
def _tile(
    shape: tuple[int, ...], digits: tuple[int, ...], dims: tuple[int, ...], along_steps: tuple[int, ...],
    counted: tuple[_Counted | None, ...], steps: tuple[int, ...],
) -> tuple[int, Tile]:  # fmt: skip
    """The first byte and the boxes of one tile; ``steps`` are the bytes between neighbours of a stored dim.

    Where the digits of one stored dim belong to several dims of the named tensor, a box of digits is not
    a range of each of them by itself: such dims are gone through box by box.
    """
    part = Part("", shape, digits, dims, along_steps, ())
    along = [[j for j, dim in enumerate(dims) if dim == d] for d in range(len(counted))]
    groups = digits_of_dims(shape, digits)
    of = {j: d for d, group in enumerate(groups) for j in group}
    mixed = [
        d
        for d, c in enumerate(counted)
        if c is not None and c.n > 1 and len({of[j] for j in along[d]}) > 1
    ]
    boxes = []
    for one in itertools.product(*(range(_some(counted[d]).n) for d in mixed)):
        chosen = list(counted)
        for d, k in zip(mixed, one, strict=True):
            c = _some(counted[d])
            chosen[d] = _Counted(c.firsts[k : k + 1], c.counts[k : k + 1], c.at[k : k + 1])
        boxes.append(_box(part, groups, along, chosen, steps))
    base = min(sum(int(r.at.min()) for r in box) for box in boxes)
    rebased = []
    for box in boxes:
        # The first dim counts from the first element of the tile, the others from their own.
        own = [int(r.at.min()) for r in box]
        shift = sum(own) - base
        rebased.append(tuple(
            Ranges(r.lo, r.n, r.at - low + (shift if d == 0 else 0), r.step)
            for d, (r, low) in enumerate(zip(box, own, strict=True))
        ))  # fmt: skip
    return base, tuple(rebased)


def _some(found: _Counted | None) -> _Counted:
    assert found is not None, "digits run along this dim"
    return found


def _box(
    part: Part, dims: Sequence[Sequence[int]], along: Sequence[Sequence[int]],
    counted: Sequence[_Counted | None], steps: Sequence[int],
) -> Box:  # fmt: skip
    """Ranges of every dim of the named tensor, from the digits of it."""
    taken: set[int] = set()
    out = []
    for group in dims:
        stored = [d for d in dict.fromkeys(part.dims[j] for j in group) if d not in taken]
        taken |= set(stored)
        out.append(_ranges(part, group, stored, along, counted, steps))
    return tuple(out)


def _ranges(
    part: Part, group: Sequence[int], stored: Sequence[int], along: Sequence[Sequence[int]],
    counted: Sequence[_Counted | None], steps: Sequence[int],
) -> Ranges:  # fmt: skip
    """Ranges of one dim whose digits are ``group``.

    Stored dims that only this dim runs along may have several boxes of digits. ``stored`` are those whose
    place counts here: a stored dim that two dims run along counts in the first of them.
    """
    place = [math.prod(part.digits[j] for j in group[k + 1 :]) for k in range(len(group))]
    every = list(dict.fromkeys(part.dims[j] for j in group))
    inner = group[-1]
    step = part.steps[inner] * steps[part.dims[inner]]
    los, ns, ats = [], [], []
    of = {d: _some(counted[d]) for d in every}
    for one in itertools.product(*(range(of[d].n) for d in every)):
        box = dict(zip(every, one, strict=True))
        lo = np.zeros(1, dtype=np.int64)
        at = np.full(1, sum(int(of[d].at[box[d]]) * steps[d] for d in stored), dtype=np.int64)
        length = 1
        for j, size in zip(group, place, strict=True):
            d = part.dims[j]
            column = along[d].index(j)
            first = int(of[d].firsts[box[d], column])
            count = int(of[d].counts[box[d], column])
            lo = lo + first * size
            if j == inner:
                length = count
                continue
            number = np.arange(count, dtype=np.int64)
            lo = (lo[:, None] + number * size).ravel()
            at = (at[:, None] + number * (part.steps[j] * steps[d])).ravel()
        los.append(lo)
        ats.append(at)
        ns.append(np.full(len(lo), length, dtype=np.int64))
    return joined(np.concatenate(los), np.concatenate(ns), np.concatenate(ats), step)


def digits_of_dims(shape: Sequence[int], digits: Sequence[int]) -> list[list[int]]:
    """Which digits each dim of a named tensor has; every dim has at least one.

    >>> digits_of_dims((12, 1, 5), (3, 4, 1, 5))
    [[0, 1], [2], [3]]
    """
    out: list[list[int]] = []
    j = 0
    for size in shape:
        group = [j]
        product = digits[j]
        j += 1
        while product < size:
            product *= digits[j]
            group.append(j)
            j += 1
        out.append(group)
    return out
