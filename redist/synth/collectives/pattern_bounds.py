"""Lower bounds from patterns: types in which factors that are alike are not told apart.

Factors of one size whose ranks meet at the same level of the topology may change places in all types at
once: ranks are renumbered, and every step costs what it did. So thousands of types become a few hundred
patterns, and the cheapest way between patterns is no dearer than any way between their types. Steps
between patterns are bounded by what those ranks move that have the same coordinate on all factors that
are alike: what they hold depends on the pattern alone. The fewer factors are alike, the better the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from redist.layout.tiles import Ints
from redist.plan.topology import Level, cheapest_of
from redist.synth.chains import Bools
from redist.synth.collectives.alike_factors import Blocks, Kinds, words_of
from redist.synth.collectives.blocks import Beside
from redist.synth.collectives.graph import Budget
from redist.synth.collectives.word_pairs import WordPairs
from redist.synth.objective_costs import MESSAGE_BITS, MORE_THAN_ANY_COST, Prices
from redist.text.units import ceil_div

# What steps between patterns cost at least: what a few ranks move whose tiles depend on patterns alone.


@dataclass(frozen=True, slots=True, eq=False)
class PatternSteps:
    """Steps between patterns, ``before`` and ``after`` being types of these, and their pairs of words.

    Of the ``ranks`` of the tables, some ``columns`` are looked at.
    """

    prices: Prices
    blocks: Blocks
    tables: tuple[WordPairs, ...]
    words: tuple[Ints, ...]
    before: Ints
    after: Ints
    ranks: Ints
    columns: slice

    def floors(self, permuting: bool) -> Ints:
        """What the steps cost at least; all of them are permutes, or none."""
        request = self.prices.request
        if request.objective == "bytes":
            return self._bytes()
        both = self._product([t.both for t in self.tables])
        volumes = self._product([t.after for t in self.tables])
        own = (both > 0).astype(np.int64)
        moved, waits = (own, both, own, both), volumes > both
        waiting, fs = np.zeros((2, len(self.before)), dtype=np.int64)
        for number, level in enumerate(self._levels()):
            within = self._within(number, volumes)
            if permuting:
                found = waits & self._found(number, within[0])
                waits &= ~found
                waiting += level.latency_ps * found.any(axis=1)
                fs += level.byte_fs * np.where(found, volumes, 0).max(axis=1)
            else:
                here = [(now - less).max(axis=1) for now, less in zip(within, moved, strict=True)]
                waiting += level.latency_ps * np.maximum(here[0], here[2])
                fs += level.byte_fs * np.maximum(here[1], here[3])
            moved = within
        fs *= request.source.dtype.itemsize
        step = np.where((waiting > 0) | (fs > 0), request.topology.step_ps, 0)
        return waiting + ceil_div(fs, 1000) + step + 1

    def _bytes(self) -> Ints:
        """The same if elements count: no rank keeps more of them than the first."""
        request, space = self.prices.request, self.prices.space
        first = replace(self, columns=slice(1))
        both = first._product([t.both for t in self.tables])[:, 0]
        held = request.source.global_elems * space.copies()
        n_ranks = space.table.present.sum(axis=1)[space.mesh_of[self.before]]
        kept = np.minimum(both * n_ranks, held[self.before])
        return (np.maximum(held[self.after] - kept, 0) << MESSAGE_BITS) + 1

    def _levels(self) -> list[Level]:
        """The levels; the last is the cheapest of those not told apart."""
        levels, n = self.prices.request.topology.levels, len(self.blocks.nearer) + 1
        return [*levels[: n - 1], cheapest_of(levels[n - 1 :])]

    def _within(self, number: int, volumes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Messages and elements that each rank gets and sends within its block, its own included."""
        if number < len(self.blocks.nearer):
            block = self.blocks.nearer[number]
            near = [
                self._product(list(t))
                for t in zip(*(t.near[number] for t in self.tables), strict=True)
            ]
            if isinstance(block, Beside):
                agree = self._agreeing(block, True)
                needs, asked = (elems * agree for elems in near)
                return (
                    (needs > 0).sum(axis=2),
                    needs.sum(axis=2),
                    (asked > 0).sum(axis=2),
                    asked.sum(axis=2),
                )
            times = self._times(block.copies)
            return near[0], near[1], times * near[2], times * near[3]
        times = self._times(self.blocks.every.copies)
        return (
            self._product([t.pieces_in for t in self.tables]),
            volumes,
            times * self._product([t.pieces_out for t in self.tables]),
            times * self._product([t.before for t in self.tables]),
        )

    def _times(self, copies: Ints) -> Ints:
        """How many more copies of a tile there are after the steps."""
        times: Ints = copies[self.after] // np.maximum(copies[self.before], 1)
        return times[:, None]

    def _found(self, number: int, messages: Ints) -> Bools:
        """Whether a rank of its block has the tile that each rank asks for."""
        if number < len(self.blocks.nearer):
            block = self.blocks.nearer[number]
            if isinstance(block, Beside):
                needs = self._product([t.near[number][0] for t in self.tables])
                return np.any((needs > 0) & self._agreeing(block, False), axis=2)
        return messages > 0

    def _agreeing(self, block: Beside, idle: bool) -> Bools:
        """Which ranks beside each agree with it, before each step."""
        space = self.prices.space
        used = space.used_factors()[self.before]
        return block.agreeing(used, 0, self.ranks[self.columns], idle)

    def _product(self, tables: list[Ints]) -> Ints:
        """Over dims: the entries of the pairs of words."""
        out: Ints | None = None
        for table, pairs in zip(tables, self.words, strict=True):
            here = table[:, self.columns][pairs]
            out = here if out is None else out * here
        return np.ones((len(self.before), 1), dtype=np.int64) if out is None else out


FLOOR_WORK = 14
"""What a step between patterns counts that is bounded from all of these ranks, not from one."""
MOST_RANKS = 8
"""What a step costs is bounded from this many ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class Patterns:
    """The patterns of some types of a space, ``ids``.

    ``number`` has the pattern of each of them, ``first`` a type of each pattern; ``words`` has the word
    of every chain.
    """

    prices: Prices
    blocks: Blocks
    kinds: Kinds
    ids: Ints
    words: Ints
    number: Ints
    first: Ints
    _dims: list[_Dim] = field(default_factory=list)
    _ranks: dict[int, Ints] = field(default_factory=dict)

    @staticmethod
    def of(prices: Prices, blocks: Blocks, kinds: Kinds, ids: Ints) -> Patterns:
        """All patterns of some types of a search."""
        space = prices.space
        words, n_words = words_of(space.table.chains, kinds)
        key = space.mesh_of[ids]
        for i in range(space.n_dims):
            key = key * n_words + words[space.rows[ids, i]]
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        return Patterns(prices, blocks, kinds, ids, words, number, ids[first])

    def __len__(self) -> int:
        return len(self.first)

    def least(self, values: Ints) -> Ints:
        """The least of the values of the types of each pattern."""
        out = np.full(len(self), MORE_THAN_ANY_COST, dtype=np.int64)
        np.minimum.at(out, self.number, values)
        return out

    def edge_floors(
        self, joined: Bools, permute: bool, room: Ints, a: Ints, b: Ints, budget: Budget
    ) -> tuple[Ints, Bools]:
        """What steps from types of patterns a to types of b cost at least, and where no more is known.

        Less is found out about those that cost more than there is ``room`` for, and if the budget ends.
        An all_to_all may only be a step that is ``joined``.
        """
        space = self.prices.space
        if not self._dims:
            self._dims.extend(_folded([_Dim.of(self, i) for i in range(space.n_dims)], len(a)))
        mesh = space.mesh_of[self.first]
        same_mesh = mesh[a] == mesh[b]
        slices, gathers, same = same_mesh.copy(), same_mesh.copy(), np.ones(len(a), dtype=np.bool_)
        for dim in self._dims:
            there, back = dim.pairs_of(a, b), dim.pairs_of(b, a)
            slices &= dim.pairs.finer.ravel()[there]
            gathers &= dim.pairs.finer.ravel()[back]
            same &= dim.pairs.same_tiles.ravel()[there]
        permutes = same & same_mesh & ~gathers
        sends = (gathers | joined) & same_mesh & ~slices
        cost = np.full(len(a), MORE_THAN_ANY_COST, dtype=np.int64)
        final = np.ones(len(a), dtype=np.bool_)
        if permute:
            sends &= ~permutes
        else:
            permutes[:] = False
        fit = self._fit(a, b)
        for which, permuting in ((sends, False), (permutes, True)):
            at = np.flatnonzero(which & fit)
            if not len(at):
                continue
            cost[at] = self._steps(a[at], b[at], slice(1, 2)).floors(permuting)
            final[at] = False
            at = at[cost[at] < room[at]]
            if len(at) and budget.left > FLOOR_WORK * len(at):
                budget.spend(FLOOR_WORK * len(at))
                cost[at] = self._steps(a[at], b[at], slice(None)).floors(permuting)
                final[at] = True
        cost[slices & fit] = 1
        cost[same & ~same_mesh & fit] = 0
        return cost, final

    def _steps(self, a: Ints, b: Ints, columns: slice) -> PatternSteps:
        tables = tuple(dim.pairs for dim in self._dims)
        words = tuple(dim.pairs_of(a, b) for dim in self._dims)
        before, after = self.first[a], self.first[b]
        ranks = self.ranks(0)
        return PatternSteps(self.prices, self.blocks, tables, words, before, after, ranks, columns)

    def ranks(self, mesh: int) -> Ints:
        """Ranks (columns) with the same coordinate, 0 or 1, on all factors of a kind, and 0 on kept axes.

        So must all be that are beside them, where blocks end inside factors.
        """
        if mesh not in self._ranks:
            self._ranks[mesh] = self._find_ranks(mesh)
        return self._ranks[mesh]

    def _find_ranks(self, mesh: int) -> Ints:
        space, kinds = self.prices.space, np.array(self.kinds[mesh], dtype=np.int64)
        able = space.table.present[mesh] & True
        for part in self.blocks.every.kept:
            able &= space.table.place(mesh, (part,)) == 0
        digits = [space.table.place(mesh, (part,)) for part in space.factors[mesh]]
        for block in self.blocks.nearer:
            if isinstance(block, Beside):
                same = self._same_on_kinds(digits, kinds)[block.mates]
                able &= (same | (block.mates < 0)).all(axis=1)
        n_kinds = len(set(self.kinds[mesh]))
        ways = [np.zeros(n_kinds), *np.eye(n_kinds), np.ones(n_kinds)]
        out: list[int] = []
        for values in ways[:MOST_RANKS]:
            chosen = able.copy()
            for digit, kind in zip(digits, kinds, strict=True):
                chosen &= digit == values[kind]
            out += np.flatnonzero(chosen)[:1].tolist()
        found = list(dict.fromkeys(out))
        return np.array(found if len(found) > 1 else found * 2, dtype=np.int64)

    def _same_on_kinds(self, digits: list[Ints], kinds: Ints) -> Bools:
        """Which ranks have the same coordinate on all factors of every kind."""
        same = np.ones(len(self.prices.space.table.ranks), dtype=np.bool_)
        for kind in range(len(set(kinds.tolist()))):
            own = np.stack([d for d, k in zip(digits, kinds, strict=True) if k == kind])
            same &= (own == own[0]).all(axis=0)
        return same

    def joined(self, classes: Ints) -> Bools:
        """[A, B]: whether an all_to_all leads from a type of pattern A to one of pattern B.

        ``classes`` are those of :func:`redist.synth.collectives.edges.move_classes`.
        """
        pairs = np.unique(classes[self.ids] * len(self) + self.number)
        groups, members = pairs // len(self), pairs % len(self)
        ends = np.flatnonzero(np.diff(groups, append=-1)) + 1
        joined = np.zeros((len(self), len(self)), dtype=np.bool_)
        seen: set[bytes] = set()
        start = 0
        for end in ends.tolist():
            row = members[start:end]
            start = end
            if row.tobytes() not in seen:
                seen.add(row.tobytes())
                joined[row[:, None], row] = True
        return joined

    def used(self) -> Ints:
        """A number for every pattern, the same for those that use as many factors of every kind."""
        space = self.prices.space
        bits, mesh = space.used_factors()[self.first], space.mesh_of[self.first]
        out = mesh.copy()
        for kind in range(max((max(own, default=0) for own in self.kinds), default=0) + 1):
            count = np.zeros(len(self), dtype=np.int64)
            for m, own in enumerate(self.kinds):
                for f, other in enumerate(own):
                    count += (mesh == m) & (other == kind) & (bits >> f & 1 > 0)
            out = out * (len(space.factors[0]) + 8) + count
        return np.unique(out, return_inverse=True)[1]

    def _fit(self, a: Ints, b: Ints) -> Bools:
        """Which steps between patterns stay within the limit."""
        limit = self.prices.request.limit_bytes
        if limit is None:
            return np.ones(len(a), dtype=np.bool_)
        chosen = self.first.copy()
        # Only there does the source not live beside the two.
        chosen[self.number[self.ids == self.prices.start]] = self.prices.start
        fit: Bools = self.prices.fixed_bytes(chosen[a], self.first[b]) <= limit
        return fit


@dataclass(frozen=True, slots=True, eq=False)
class _Dim:
    """The word of every pattern along a dim, and what ranks meet there."""

    word: Ints
    pairs: WordPairs

    @staticmethod
    def of(patterns: Patterns, dim: int) -> _Dim:
        space = patterns.prices.space
        _, where, word = np.unique(
            patterns.words[space.rows[patterns.first, dim]], return_index=True, return_inverse=True
        )
        chains = space.rows[patterns.first[where], dim]
        ranks = [patterns.ranks(mesh) for mesh in range(len(space.like))]
        width = max(map(len, ranks))
        spelled = [
            (m, tuple(patterns.kinds[m][f] for f in chain))
            for m, chain in (space.table.chains[c] for c in chains)
        ]
        each = np.stack([np.resize(ranks[m], width) for m, _ in spelled])
        pairs = WordPairs.of(space.table, dim, spelled, chains, each, patterns.blocks.nearer)
        return _Dim(word, pairs)

    def pairs_of(self, a: Ints, b: Ints) -> Ints:
        """The pairs of words of steps from patterns a to patterns b."""
        return self.word[a] * len(self.pairs.finer) + self.word[b]


def _folded(dims: list[_Dim], n_steps: int) -> list[_Dim]:
    """The dims, some of them taken together if then less is to be looked up for this many steps."""
    while len(dims) > 2:
        dims = sorted(dims, key=lambda dim: len(dim.pairs))
        one, two = dims[:2]
        met, word = np.unique(one.word * len(two.pairs) + two.word, return_inverse=True)
        if 4 * len(met) ** 2 > n_steps:
            break
        own, others = met // len(two.pairs), met % len(two.pairs)
        dims = [_Dim(word, one.pairs.times(two.pairs, own, others)), *dims[2:]]
    return dims
