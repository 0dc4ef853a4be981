"""Prices of moves between types of any shape over the factors of a mesh, all of a kind at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.domain import NOWHERE, PENDING, TypeDomain, places_of
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates
from redist.layout.cuts import Index, Ints, cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.plan.topology import Topology
from redist.plan.traffic import group_level
from redist.planner import synthesize

# What it costs to bring a value from any type to any other, all pairs at once.
#
# A step brings to every rank what it lacks; the busiest one decides, and so do the pieces that it gets. Two
# steps may be cheaper than one: a sum is scattered and then gathered. What ranks near by have costs what it
# costs there, level by level, and up to four steps go from level to level. On one level, with even tiles,
# these are the synthesizer's own prices; elsewhere they are close to them.


MANY_RANKS = 256
"""On more ranks, only those are looked at that are first or last on every factor."""
BLOCK_CELLS = 2**20


def price_moves(domain: TypeDomain, topology: Topology) -> Costs:
    """Picoseconds of all moves between the types of a domain, with one for every step."""
    prices = _two_steps(_one_step(domain, topology))
    return prices if len(topology.levels) == 1 else _two_steps(prices)


def _one_step(domain: TypeDomain, topology: Topology) -> Costs:
    n = len(domain)
    out = np.empty((n, n), dtype=np.int64)
    reached = [
        [n_within([part], number, domain.mesh, topology) for part in domain.parts]
        for number in range(len(topology.levels))
    ]
    ranks = ranks_to_look_at(domain.mesh, domain.parts)
    boxes = [_intervals(domain, dim, ranks, topology) for dim in range(len(domain.shape))]
    n_ranks = len(ranks)
    partial = (domain.places == PENDING).astype(np.int64)
    itemsize = domain.dtype.itemsize
    rows = max(1, BLOCK_CELLS // max(1, n * n_ranks))
    for lo in range(0, n, rows):
        some = slice(lo, min(n, lo + rows))
        resolved = partial[some][:, None] * (1 - partial[None])
        shape = (some.stop - some.start, n, n_ranks)
        groups = (
            np.where(resolved > 0, np.array(sizes, dtype=np.int64), 1).prod(axis=2)[:, :, None]
            for sizes in reached
        )
        near = (
            tuple(group * one for one in _shared(boxes, number, some, shape))
            for number, group in enumerate(groups)
        )
        own, _ = _shared(boxes, None, some, shape)
        time = step_prices(own, near, itemsize, topology)
        new = (1 - partial[some][:, None]) * partial[None]
        out[some] = np.where(new.any(axis=2), FORBIDDEN, time)
    np.minimum(out, _all_reduces(domain, topology), out=out)
    np.fill_diagonal(out, 0)
    return out


def step_prices(
    own: Ints, near: Iterable[tuple[Ints, ...]], itemsize: int, topology: Topology
) -> Costs:
    """Picoseconds of steps, one more for each: the last dim of all arrays are ranks.

    ``own`` is what a rank has itself of the elements that it needs; ``near``, for every level, what ranks
    have that meet there or below, in elements and in pieces.
    """
    had, asked = own, (own > 0).astype(np.int64)
    time = np.zeros(own.shape[:-1], dtype=np.int64)
    is_needed = np.zeros(own.shape[:-1], dtype=np.bool_)
    for number, (level, (there, pieces)) in enumerate(zip(topology.levels, near, strict=True)):
        lack, more = there - had, pieces - asked
        messages = np.where(lack > 0, more, 0).max(axis=-1)
        sharing = (topology.levels[number - 1].size or 1) if number else 1
        byte_fs = max(level.byte_fs, sharing * level.link_fs)
        most = np.minimum(lack.max(axis=-1) * itemsize, FORBIDDEN // max(1, byte_fs))
        time += level.time_ps(messages, most, sharing * most)
        is_needed |= messages > 0
        had, asked = there, pieces
    return time + np.where(is_needed, topology.step_ps, 0) + 1


def _shared(
    boxes: Sequence[tuple[Ints, Intervals]],
    level: int | None,
    some: slice,
    shape: tuple[int, int, int],
) -> tuple[Ints, Ints]:
    """What ranks within a level have of what each needs, in elements and in pieces, for pairs of types.

    Without a level, what the rank has itself.
    """
    elems, pieces = np.ones(shape, dtype=np.int64), np.ones(shape, dtype=np.int64)
    for kind, box in boxes:
        pairs = kind[some][:, None], kind[None, :]
        elems *= (box.overlap if level is None else box.held[level])[pairs]
        if level is not None:
            pieces *= box.pieces[level][pairs]
    return elems, pieces


def _all_reduces(domain: TypeDomain, topology: Topology) -> Costs:
    """What it costs to resolve partial values everywhere, parts of a tile going round; else FORBIDDEN."""
    n = len(domain)
    out = np.full((n, n), FORBIDDEN, dtype=np.int64)
    elems = domain.tile_bytes() // domain.dtype.itemsize
    factors = range(len(domain.parts) if domain.op is not None else 0)
    meets = {
        some: group_level(domain.mesh, [domain.parts[f] for f in some], topology)
        for k in range(1, len(factors) + 1)
        for some in itertools.combinations(factors, k)
    }
    for a, row in enumerate(domain.places[: n - len(domain.others)]):
        pending = np.flatnonzero(row == PENDING)
        for k in range(1, len(pending) + 1):
            for some in itertools.combinations(pending.tolist(), k):
                after = row.copy()
                after[list(some)] = NOWHERE
                b = int(domain.numbers(after[None])[0])
                group = math.prod(domain.parts[f].size for f in some)
                moved = 2 * (int(elems[a]) - int(elems[a]) // group) * domain.dtype.itemsize
                out[a, b] = group_ps(2 * (group - 1), moved, meets[some], topology)
    return out


def group_ps(messages: Index, n_bytes: Index, number: int, topology: Topology) -> Index:
    """What a step takes, and one more, in which all ranks of groups that meet at a level do the same."""
    block = (topology.levels[number - 1].size or 1) if number else 1
    moved = topology.levels[number].time_ps(messages, n_bytes, n_bytes * block)
    return moved + topology.step_ps + 1


def _two_steps(one: Costs) -> Costs:
    """The cheaper of what it costs in one go and in two."""
    out = one.copy()
    for row in range(len(one)):
        best = (one[row][:, None] + one).min(axis=0)
        np.minimum(out[row], best, out=out[row])
    return np.minimum(out, FORBIDDEN)


def ranks_to_look_at(mesh: Mesh, parts: Sequence[SubAxis]) -> Ints:
    """The devices that are looked at: all, or the first and last on every factor."""
    every = np.arange(mesh.n_devices, dtype=np.int64)
    if mesh.n_devices <= MANY_RANKS:
        return every
    good = np.ones(mesh.n_devices, dtype=np.bool_)
    for part in parts:
        digit = coordinates(mesh, [part])
        good &= (digit == 0) | (digit == part.size - 1)
    return every[good]


def _levels_of(part: SubAxis, mesh: Mesh, topology: Topology) -> list[tuple[SubAxis, int]]:
    """A factor in pieces, major first, each with the level at which the ranks that differ in it meet."""
    if len(topology.levels) == 1:
        return [(part, 0)]
    stride = mesh.size(part.name) // part.end
    for name, size in reversed(mesh.axes):
        if name == part.name:
            break
        stride *= size
    rest, minor = part.size, []
    for level in topology.levels:
        inner = rest if level.size is None else math.gcd(rest, max(1, level.size // stride))
        if inner > 1:
            rest, stride = rest // inner, stride * inner
            minor.append(SubAxis(part.name, part.pre * rest, inner))
    return [(piece, group_level(mesh, [piece], topology)) for piece in reversed(minor)]


def n_within(parts: Sequence[SubAxis], number: int, mesh: Mesh, topology: Topology) -> int:
    """How many of the ranks that differ in these parts of axes only meet at a level or below."""
    pieces = (one for part in parts for one in _levels_of(part, mesh, topology))
    return math.prod(piece.size for piece, level in pieces if level <= number)


def _intervals(
    domain: TypeDomain, dim: int, ranks: Ints, topology: Topology
) -> tuple[Ints, Intervals]:
    """One dim under every set of factors that may cut it, and of every type, the number of its set."""
    masks = (domain.places == dim) @ (1 << np.arange(len(domain.parts)))
    n_usual = len(domain) - len(domain.others)
    known, kind = np.unique(masks[:n_usual], return_inverse=True)
    cuts: list[Sequence[SubAxis]] = [
        [part for f, part in enumerate(domain.parts) if mask >> f & 1] for mask in known.tolist()
    ]
    kind = np.concatenate([kind.reshape(-1), np.arange(len(domain.others)) + len(cuts)])
    cuts += [t.dims[dim] for t in domain.others]
    ranges = [Ranges.of(domain.mesh, ranks, domain.shape[dim], parts, topology) for parts in cuts]
    return kind.astype(np.int64), Intervals.of(ranges, ranges)


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """One dim cut in some ways, and in others after a step: what ranks hold of what each needs.

    Arrays have a row for every cut before, a column for every one after, and then ranks.
    """

    overlap: Ints
    """Of what a device needs, what it has itself."""
    held: list[Ints]
    """By level, what devices have that meet there or below."""
    pieces: list[Ints]
    """The same, in tiles."""

    @staticmethod
    def of(before: Sequence[Ranges], after: Sequence[Ranges]) -> Intervals:
        """Every cut before with every cut after."""
        low, high = (np.stack([getattr(one, end) for one in after]) for end in ("low", "high"))
        tile_sizes = np.array([one.tile_size for one in before], dtype=np.int64)[:, None, None]
        held, pieces = [], []
        for number in range(len(before[0].near)):
            every = [[_common(*one, low, high) for one in own.near[number]] for own in before]
            held.append(np.stack([sum(some, np.zeros_like(low)) for some in every]))
            pieces.append(np.stack([np.sum([one > 0 for one in some], axis=0) for some in every]))
        lengths = np.maximum(high - low, 0)
        last, first = (high - 1) // tile_sizes, low // tile_sizes
        pieces.append(np.where(lengths > 0, last - first + 1, 0))
        held.append(np.broadcast_to(lengths, pieces[-1].shape))
        lows, highs = (np.stack([getattr(one, end) for one in before]) for end in ("low", "high"))
        return Intervals(_common(lows[:, None], highs[:, None], low, high), held, pieces)


def _common(low: Ints, high: Ints, other_low: Ints, other_high: Ints) -> Ints:
    """How many indices two ranges share, device by device."""
    both: Ints = np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0)
    return both


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Which indices of a dim every device holds under one cut, and by level, those of devices near it."""

    low: Ints
    high: Ints
    tile_size: int
    near: list[list[tuple[Ints, Ints]]]

    @staticmethod
    def of(
        mesh: Mesh, ranks: Ints, size: int, parts: Sequence[SubAxis], topology: Topology
    ) -> Ranges:
        """A dim of this size, cut by these parts of axes."""
        cut = cut_dim(size, math.prod(part.size for part in parts))
        near: list[list[tuple[Ints, Ints]]] = []
        pieces = [one for part in parts for one in _levels_of(part, mesh, topology)]
        for number in range(len(topology.levels) - 1):
            places = [np.zeros(len(ranks), dtype=np.int64)]
            for piece, level in pieces:
                own = coordinates(mesh, [piece])[ranks]
                digits = range(piece.size) if level <= number else [own]
                places = [place * piece.size + digit for place in places for digit in digits]
            near.append([cut.ranges_of(place) for place in places])
        low, high = cut.ranges_of(coordinates(mesh, parts)[ranks])
        return Ranges(low, high, max(1, cut.tile_size), near)


@dataclass(slots=True, eq=False)
class PriceBook:
    """Domains of types, and what moves between their types cost; equal ones are one and the same."""

    mesh: Mesh
    parts: tuple[SubAxis, ...]
    topology: Topology
    _domains: dict[object, TypeDomain] = field(default_factory=dict)
    _refused: dict[object, str] = field(default_factory=dict)
    _prices: dict[int, Costs] = field(default_factory=dict)
    _exact: dict[tuple[ArrayType, ArrayType], int] = field(default_factory=dict)

    def domain(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        op: str | None,
        others: tuple[ArrayType, ...] = (),
    ) -> TypeDomain:
        """The types of such an array, and the others beside them."""
        if others:
            usual = self.domain(shape, dtype, op)
            others = tuple(t for t in others if usual.find(t) is None)
        key = shape, dtype, op, others
        if key in self._refused:
            raise RequestError(self._refused[key])
        if key not in self._domains:
            try:
                self._domains[key] = TypeDomain.of(self.mesh, self.parts, shape, dtype, op, others)
            except RequestError as problem:  # of too many types; said often, found out once
                self._refused[key] = str(problem)
                raise
        return self._domains[key]

    def prices(self, domain: TypeDomain) -> Costs:
        """Picoseconds of all moves between the types of a domain of this book."""
        if id(domain) not in self._prices:
            self._prices[id(domain)] = price_moves(domain, self.topology)
        return self._prices[id(domain)]

    def price(self, source: ArrayType, target: ArrayType) -> int:
        """What one move costs; FORBIDDEN if its types are not over these factors.

        >>> from redist.layout.axes import whole
        >>> from redist.plan.rates import FLAT
        >>> mesh = Mesh(x=2)
        >>> book = PriceBook(mesh, (whole(mesh, "x"),), FLAT)
        >>> rows, columns = (ArrayType.parse(t, mesh) for t in ("f32[8{x}, 8]", "f32[8, 8{x}]"))
        >>> book.price(rows, columns) > book.price(rows, rows) == 0
        True
        """
        ends = source, target
        if any(t.mesh != self.mesh or places_of(t, self.parts) is None for t in ends):
            return FORBIDDEN
        domain = self.domain(source.shape, source.dtype, source.pending_op, ends)
        a, b = domain.find(source), domain.find(target)
        return FORBIDDEN if a is None or b is None else int(self.prices(domain)[a, b])

    def exact_price(self, source: ArrayType, target: ArrayType) -> int:
        """What the synthesizer's own plan of a move costs, with one for every step."""
        if source == target:
            return 0
        found = self.price(source, target)
        if (
            found < FORBIDDEN
            and len(self.topology.levels) == 1
            and source.is_even
            and target.is_even
        ):
            return found
        if (source, target) not in self._exact:
            plan = synthesize(source, target, topology=self.topology)
            self._exact[source, target] = plan.time_ps + len(plan.steps)
        return self._exact[source, target]

    def correct(self, moves: Iterable[tuple[ArrayType, ArrayType]]) -> bool:
        """Put in the exact prices of these moves, in all tables that have them; whether any was another."""
        changed = False
        for source, target in moves:
            exact = self.exact_price(source, target)
            for domain in self._domains.values():
                ends = domain.find(source), domain.find(target)
                prices = self._prices.get(id(domain))
                if prices is not None and None not in ends and prices[ends] != exact:
                    prices[ends] = exact
                    changed = True
        return changed


def finish_prices(domain: TypeDomain, prices: Costs) -> Costs:
    """What it costs, from every type, to have no partial values left, wherever that is cheapest."""
    settled = ~(domain.places == PENDING).any(axis=1)
    least: Costs = np.where(settled, 0, prices[:, settled].min(axis=1))
    return least
