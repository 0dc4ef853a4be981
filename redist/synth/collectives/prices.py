"""Prices of steps that named collectives do, from what ranks hold, without a list of pieces.

In an all_gather or all_to_all every piece has one sender: the rank that agrees with the receiver on all
axes that cut nothing before the step. In an all_permute whole tiles are asked for, and the holders of a
tile within the nearest block take turns. :mod:`redist.plan.traffic` lists the pieces and says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.synth.chains import Bools
from redist.synth.collectives.alike_factors import Blocks
from redist.synth.collectives.blocks import Beside, Within, near_factors
from redist.synth.objective_costs import MESSAGE_BITS, Prices
from redist.text.units import ceil_div

# What ranks receive and send in many steps at once.


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Messages and elements that every rank (column) receives and sends in every step (row)."""

    messages_in: Ints
    elems_in: Ints
    messages_out: Ints
    elems_out: Ints

    def less(self, nearer: Moved) -> Moved:
        """What is left for a level if nearer levels move that much."""
        return Moved(
            self.messages_in - nearer.messages_in,
            self.elems_in - nearer.elems_in,
            self.messages_out - nearer.messages_out,
            self.elems_out - nearer.elems_out,
        )

    def ask(self, rows: Ints, found: Bools, sizes: Ints, turns: Ints | int) -> None:
        """Put what permutes move instead, if whole tiles are found and their holders have ``turns``."""
        self.messages_in[rows] = found
        self.elems_in[rows] = np.where(found, sizes, 0)
        self.messages_out[rows] = turns
        self.elems_out[rows] = turns * sizes

    def busiest(self) -> tuple[Ints, Ints]:
        """Messages and elements of the busiest rank, receiving or sending, in every step."""
        return (
            np.maximum(self.messages_in.max(axis=1), self.messages_out.max(axis=1)),
            np.maximum(self.elems_in.max(axis=1), self.elems_out.max(axis=1)),
        )


@dataclass(slots=True, eq=False)
class Requests:
    """Rows that are permutes, and which ranks still wait for a tile in them."""

    rows: Ints
    open: Bools


Block = Within | Beside


@dataclass(frozen=True, slots=True, eq=False)
class CollectivePrices:
    """Prices of gathers, all_to_alls and permutes within a mesh, in bulk.

    ``blocks`` has for every level of the topology what ranks exchange within its blocks; those of the
    last level span all ranks.
    """

    prices: Prices
    blocks: tuple[Block, ...]

    @staticmethod
    def of(prices: Prices, kept: tuple[SubAxis, ...]) -> CollectivePrices:
        """Prices for a search in which some axes stay pending."""
        space = prices.space
        every = tuple(frozenset(range(len(parts))) for parts in space.factors)
        blocks: list[Block] = []
        for level in prices.request.topology.levels[:-1]:
            assert level.size is not None
            near = [
                near_factors(t.mesh, parts, kept, level.size)
                for t, parts in zip(space.like, space.factors, strict=True)
            ]
            aligned = tuple(own for own in near if own is not None)
            if len(aligned) == len(near):
                blocks.append(Within.of(space, aligned, kept))
            else:
                blocks.append(Beside.of(space, kept, level.size))
        return CollectivePrices(prices, (*blocks, Within.of(space, every, kept)))

    def told_apart(self) -> Blocks:
        """The blocks; where they end inside factors and there are two meshes, only the last."""
        *nearer, every = self.blocks
        assert isinstance(every, Within)
        if not self.ends_fit and len(self.prices.space.like) > 1:
            return Blocks((), every)
        return Blocks(tuple(nearer), every)

    @property
    def ends_fit(self) -> bool:
        """Whether all blocks end where factors do."""
        return all(isinstance(block, Within) for block in self.blocks)

    def far_floor(self, ids: Ints, v: int) -> Ints:
        """What must be added to the least cost of ids -> v for elements that blocks lack of a rank's tile."""
        volumes = self.prices.space.volumes(np.array([v]))
        return self._far([volumes - block.held(v, ids) for block in self.blocks[:-1]], len(ids))

    def floor_from(self, u: int, ids: Ints) -> Ints:
        """No sequence of steps from u to ids costs less: what ranks and blocks lack of a rank's tile."""
        prices, volumes = self.prices, self.prices.space.volumes(ids)
        lack = volumes - prices.space.overlap(u, ids)
        if prices.request.objective == "bytes":
            return lack.sum(axis=1) << MESSAGE_BITS
        worst = lack.max(axis=1) * prices.request.source.dtype.itemsize
        time = prices.request.topology.cheapest.time_ps((worst > 0).astype(np.int64), worst)
        if not self.ends_fit or len(prices.space.like) > 1:
            return time
        return time + self._far(
            [volumes - b.received(u, ids)[1] for b in self.blocks[:-1]], len(ids)
        )

    def _far(self, lacks: list[Ints], n: int) -> Ints:
        """What farther levels add, if that is what blocks lack of each rank's tile; for each of n ways."""
        out = np.zeros(n, dtype=np.int64)
        if self.prices.request.objective == "bytes":
            return out
        itemsize = self.prices.request.source.dtype.itemsize
        pairs = pairwise(self.prices.request.topology.levels)
        for (near, far), lack in zip(pairs, lacks, strict=True):
            assert near.size is not None
            share = ceil_div(lack.max(axis=1), near.size)
            slower = max(0, far.byte_fs - near.byte_fs) * itemsize
            waits = max(0, far.latency_ps - near.latency_ps)
            out += share * slower // 1000 + np.where(share > 0, waits, 0)
        return out

    def many(self, u: int, ids: Ints, permutes: Bools, fixed_bytes: Ints) -> tuple[Ints, Bools]:
        """Costs of the steps u -> ids, or lower bounds of them; and which are the costs."""
        prices, request = self.prices, self.prices.request
        known = np.ones(len(ids), dtype=np.bool_)
        if request.objective == "bytes":
            lack, messages = prices.lacks_from(u, ids)
            return (lack.sum(axis=1) << MESSAGE_BITS) + messages.max(axis=1) + 1, known
        if len(prices.space.like) > 1 and request.limit_bytes is not None:
            lack, messages = prices.lacks_from(u, ids)
            start = np.full(len(ids), u)
            return prices.at_least(start, ids, lack, messages, fixed_bytes), ~known
        levels = request.topology.levels
        shared = any(level.link_fs for level in levels)
        if len(levels) > 1 and (shared or request.limit_bytes is not None):
            # A holder may serve several levels of a permute; who serves whom is not counted here.
            known &= ~permutes
        return self._times(u, ids, permutes, fixed_bytes), known

    def _times(self, u: int, ids: Ints, permutes: Bools, fixed_bytes: Ints) -> Ints:
        """Modelled times, level by level, and one more for the step."""
        prices, space, topology = self.prices, self.prices.space, self.prices.request.topology
        itemsize = prices.request.source.dtype.itemsize
        both = space.overlap(u, ids)
        received = space.volumes(ids) - both
        moved = self._kept(both)
        asks = Requests(np.flatnonzero(permutes), received[permutes] > 0)
        time = np.ones(len(ids), dtype=np.int64)
        slowest = np.zeros(len(ids), dtype=np.int64)
        busiest = received.max(axis=1)
        size = 1
        for number, level in enumerate(topology.levels):
            within = self._within(number, u, ids)
            here = within.less(moved)
            self._permute(number, u, ids, asks, here, within)
            messages, elems = here.busiest()
            shared = self._shared(here, permutes, size) * itemsize if level.link_fs else 0
            time += level.time_ps(messages, elems * itemsize, shared)
            slowest = np.where(messages > 0, level.latency_ps, slowest)
            moved, size = within, level.size or size
        time += np.where(slowest > 0, topology.step_ps, 0)
        if prices.request.limit_bytes is not None:
            sent = (moved.elems_out - both).max(axis=1)
            if len(topology.levels) == 1:
                sent[permutes] = here.elems_out[permutes].max(axis=1)
            busiest = np.maximum(busiest, sent)
            extra = prices.extra_rounds(
                received.max(axis=1) * itemsize, busiest * itemsize, fixed_bytes
            )
            if len(topology.levels) > 1:
                extra = np.where(permutes, 0, extra)
            time += extra * slowest
        return time

    def _kept(self, both: Ints) -> Moved:
        """What each rank has of its own, and need not move."""
        one = (both > 0).astype(np.int64)
        return Moved(one, both, one, both)

    def _within(self, number: int, u: int, ids: Ints) -> Moved:
        """What each rank needs and is asked for within the blocks of a level, its own tile included."""
        space, block = self.prices.space, self.blocks[number]
        if number < len(self.blocks) - 1:
            return Moved(*block.received(u, ids), *block.sent(u, ids))
        times = (space.copies()[ids] // space.copies()[u])[:, None]
        return Moved(
            space.pieces(u, ids),
            space.volumes(ids),
            times * space.pieces_to(ids, u),
            times * space.volumes(np.array([u])),
        )

    def _permute(
        self, number: int, u: int, ids: Ints, asks: Requests, here: Moved, within: Moved
    ) -> None:
        """Let the holders of tiles take turns in the permutes; put what is sent at this level ``here``."""
        if not len(asks.rows):
            return
        block, chosen = self.blocks[number], ids[asks.rows]
        if isinstance(block, Beside):
            holders = block.holders(u, chosen)
        else:
            holders = np.where(within.messages_in[asks.rows] > 0, block.copies[u], 0)
        found = asks.open & (holders > 0)
        asks.open &= ~found
        turns = ceil_div(block.asked(chosen, found), np.maximum(holders, 1))
        here.ask(asks.rows, found, self.prices.space.volumes(chosen), np.where(found, turns, 0))

    def _shared(self, moved: Moved, permutes: Bools, size: int) -> Ints:
        """Elements that enter or leave the busiest block of this many ranks; in permutes, that enter it."""
        ranks = self.prices.space.table.ranks
        first = np.flatnonzero(np.diff(ranks // size, prepend=-1))
        enter, leave = (
            np.add.reduceat(elems, first, axis=1).max(axis=1)
            for elems in (moved.elems_in, moved.elems_out)
        )
        return np.where(permutes, enter, np.maximum(enter, leave))
