"""What a few ranks hold and meet along one dim, for all pairs of words: chains of kinds of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.layout.cuts import cut_dim
from redist.layout.tiles import Ints
from redist.synth.chains import Bools, ChainTable
from redist.synth.collectives.blocks import Beside, Within

Word = tuple[int, tuple[int, ...]]
"""The number of a mesh, and kinds of its factors, major first."""


@dataclass(frozen=True, slots=True, eq=False)
class WordPairs:
    """Tables [a * words + b, rank] of a step that turns word a into word b along a dim, or along some.

    Ranks hold ``before`` and ``after`` the step, and have ``both`` of these indices in common. They meet
    ``pieces_in`` tiles of a, and tiles that they hold meet ``pieces_out`` of b. ``near`` has for every
    level whose blocks are told apart: tiles and indices that each rank needs of its block, and that its
    block needs of it, its own included; where blocks end inside factors, the indices that it needs of each
    rank beside it, and that each of these needs of it. ``finer`` and ``same_tiles`` [a, b] say which steps
    slice the dim, and which leave its tiles as they are.
    """

    finer: Bools
    same_tiles: Bools
    both: Ints
    before: Ints
    after: Ints
    pieces_in: Ints
    pieces_out: Ints
    near: tuple[tuple[Ints, ...], ...]

    @staticmethod
    def of(
        table: ChainTable,
        dim: int,
        words: Sequence[Word],
        chains: Ints,
        ranks: Ints,
        blocks: Sequence[Within | Beside],
    ) -> WordPairs:
        """Tables for some words, a chain of each, and the ranks (columns) of each."""
        lo, hi = (ends[dim][chains[:, None], ranks] for ends in (table.lo, table.hi))
        n = len(lo)
        both = np.maximum(np.minimum(hi[:, None], hi[None]) - np.maximum(lo[:, None], lo[None]), 0)
        counts, kind = np.unique(np.array(table.n_tiles)[chains], return_inverse=True)
        cuts = [cut_dim(table.shape[dim], int(k)) for k in counts]
        pieces = np.stack([cut.tiles_meeting(lo, hi)[1] for cut in cuts])[kind]
        here = np.ix_(kind, kind)
        nests = np.array([[b.nests_in(a) for b in cuts] for a in cuts])[here]
        same = np.array([[b.same_tiles(a) for b in cuts] for a in cuts])[here]
        begins = np.zeros((n, n), dtype=np.bool_)
        number = {word: i for i, word in enumerate(words)}
        for b, (mesh, word) in enumerate(words):
            for k in range(len(word) + 1):
                if (mesh, word[:k]) in number:
                    begins[number[mesh, word[:k]], b] = True
        near: list[tuple[Ints, ...]] = []
        for block in blocks:
            if isinstance(block, Beside):
                near.append(_beside(table, dim, chains, ranks, block))
                continue
            start, end = _block_tiles(table, dim, chains, ranks, block)
            inner = np.minimum(end[:, None], hi[None, ..., None])
            inner = np.maximum(inner - np.maximum(start[:, None], lo[None, ..., None]), 0)
            met, elems = (inner > 0).sum(axis=3), inner.sum(axis=3)
            near.append((_flat(met), _flat(elems), _turned(met), _turned(elems)))
        length = hi - lo
        before, after = (
            _flat(np.broadcast_to(one, both.shape)) for one in (length[:, None], length[None])
        )
        elems = _flat(both), before, after, _flat(pieces)
        return WordPairs(begins & nests, same, *elems, _turned(pieces), tuple(near))

    def __len__(self) -> int:
        return len(self.finer)

    def times(self, other: WordPairs, own: Ints, others: Ints) -> WordPairs:
        """The same along two dims, for some words along each."""
        a = (own[:, None] * len(self) + own).ravel()
        b = (others[:, None] * len(other) + others).ravel()
        here, there = np.ix_(own, own), np.ix_(others, others)
        return WordPairs(
            self.finer[here] & other.finer[there],
            self.same_tiles[here] & other.same_tiles[there],
            self.both[a] * other.both[b],
            self.before[a] * other.before[b],
            self.after[a] * other.after[b],
            self.pieces_in[a] * other.pieces_in[b],
            self.pieces_out[a] * other.pieces_out[b],
            tuple(
                tuple(x[a] * y[b] for x, y in zip(one, two, strict=True))
                for one, two in zip(self.near, other.near, strict=True)
            ),
        )


def _flat(values: Ints) -> Ints:
    return np.ascontiguousarray(values).reshape(-1, *values.shape[2:])


def _turned(values: Ints) -> Ints:
    return _flat(values.swapaxes(0, 1))


def _beside(
    table: ChainTable, dim: int, chains: Ints, ranks: Ints, block: Beside
) -> tuple[Ints, Ints]:
    """Indices that each rank needs of each rank beside it, and that each of these needs of it."""
    every, mates = chains[:, None, None], block.mates[ranks]
    lo, hi = (ends[dim][every, ranks[:, :, None]] for ends in (table.lo, table.hi))
    start, end = (ends[dim][every, mates] for ends in (table.lo, table.hi))
    inner = np.minimum(end[:, None], hi[None]) - np.maximum(start[:, None], lo[None])
    needs = np.maximum(inner, 0)
    return _flat(needs), _turned(needs)


def _block_tiles(
    table: ChainTable, dim: int, chains: Ints, ranks: Ints, block: Within
) -> tuple[Ints, Ints]:
    """Starts and ends of the tiles of each rank's block under each chain; empty where it has fewer."""
    most = int(block.near_tiles[chains].max(initial=1))
    start, end = np.zeros((2, *ranks.shape, most), dtype=np.int64)
    space = block.space
    digits: dict[tuple[int, int], Ints] = {}
    for at, c in enumerate(chains.tolist()):
        mesh, chain = table.chains[c]
        tiles = np.zeros((ranks.shape[1], 1), dtype=np.int64)
        for f in chain:
            size = space.factors[mesh][f].size
            if (mesh, f) not in digits:
                near = np.arange(size, dtype=np.int64)[None, :]
                far = table.place(mesh, (space.factors[mesh][f],))[ranks[at]][:, None]
                digits[mesh, f] = near if f in block.near[mesh] else far
            own = digits[mesh, f]
            tiles = (tiles[:, :, None] * size + own[:, None, :]).reshape(len(tiles), -1)
        low, high = table.cut(dim, c).ranges_of(tiles)
        start[at, :, : tiles.shape[1]], end[at, :, : tiles.shape[1]] = low, high
    return start, end
