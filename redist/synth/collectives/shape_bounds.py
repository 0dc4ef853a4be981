"""Lower bounds from tile shapes alone: how tiles must shrink and grow on the way to the goal.

If it is forgotten which axis cuts a dim and only the number of tiles along every dim is kept,
thousands of types become a few hundred shapes, and the cheapest way to the goal's shape is found
from every shape at once. Every step between types is a step between their shapes and costs no less,
so what is found is a lower bound that knows messages, nesting tiles and detours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redist.layout.cuts import cut_dim
from redist.layout.tiles import Ints
from redist.plan.topology import cheapest_of
from redist.synth.chains import Bools
from redist.synth.collectives.blocks import Within
from redist.synth.objective_costs import MESSAGE_BITS, MORE_THAN_ANY_COST, Prices
from redist.text.units import ceil_div

MANY_SHAPES = 400
"""Above this many shapes, the near cuts of all dims are counted together."""


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """The shapes of a space: how many tiles every dim has, and how many tiles blocks hold.

    ``number`` has the shape of every type, ``first`` a type of every shape; ``blocks`` are those of
    the levels that are told apart, the last of which spans all ranks. If ``fine``, tiles of blocks are
    counted dim by dim.
    """

    prices: Prices
    blocks: tuple[Within, ...]
    number: Ints
    first: Ints
    fine: bool

    @staticmethod
    def of(prices: Prices, blocks: tuple[Within, ...]) -> Shapes:
        """All shapes of the types of a search."""
        space = prices.space
        n_tiles = np.array(space.table.n_tiles, dtype=np.int64)
        columns = [space.mesh_of, *(n_tiles[space.rows[:, i]] for i in range(space.n_dims))]
        near = [b.near_tiles[space.rows] for b in blocks[:-1]]
        dims = [each[:, i] for each in near for i in range(space.n_dims)]
        first, number = _kinds([*columns, *dims])
        fine = len(first) <= MANY_SHAPES or not near
        if not fine:
            first, number = _kinds([*columns, *(each.prod(axis=1) for each in near)])
        return Shapes(prices, blocks, number, first, fine)

    def floor_to_goal(self, edge_floors: Ints) -> Ints:
        """No sequence of steps from each type to the goal costs less; obeys the triangle inequality."""
        n = len(self.first)
        into = np.ascontiguousarray(edge_floors.T)
        floor = np.full(n, MORE_THAN_ANY_COST, dtype=np.int64)
        floor[self.number[self.prices.goal]] = 0
        left = np.zeros(n, dtype=np.int64)
        for _ in range(n):
            v = int(np.argmin(floor + left))
            if left[v] or floor[v] >= MORE_THAN_ANY_COST:
                break
            left[v] = MORE_THAN_ANY_COST
            floor = np.minimum(floor, into[v] + floor[v])
        return floor[self.number]

    def edge_floors(self, classes: Ints, permute: bool) -> Ints:
        """[A, B]: no step from a type of shape A to one of shape B costs less.

        ``classes`` are those of :func:`redist.synth.collectives.edges.move_classes`.
        """
        mesh = self.prices.space.mesh_of[self.first]
        same_mesh = mesh[:, None] == mesh[None, :]
        pairs = _Pairs.of(self)
        slices = pairs.finer & same_mesh
        gathers = slices.T
        sends = gathers | self._joined(classes)
        cost = np.where(sends, self._send_floors(pairs, gathers), MORE_THAN_ANY_COST)
        if permute:
            permutes = pairs.same_tiles & same_mesh
            cost = np.where(permutes, np.minimum(cost, self._permute_floors()), cost)
        cost[slices] = 1
        cost[pairs.same_tiles & ~same_mesh] = 0
        return np.where(self._fit(), cost, MORE_THAN_ANY_COST)

    def _joined(self, classes: Ints) -> Bools:
        """Which shapes have types that an all_to_all joins."""
        groups, dense = np.unique(classes, return_inverse=True)
        has = np.zeros((len(groups), len(self.first)), dtype=np.bool_)
        has[dense, self.number] = True
        has = has[has.sum(axis=1) > 1]
        first = {row.tobytes(): i for i, row in enumerate(np.packbits(has, axis=1))}
        several = has[list(first.values())].astype(np.float32)
        joined: Bools = (several.T @ several) > 0
        return joined

    def _send_floors(self, pairs: _Pairs, gathers: Bools) -> Ints:
        """No all_gather or all_to_all costs less: what the rank at the origin of all dims moves."""
        prices, space = self.prices, self.prices.space
        tile = space.tile_elems[self.first]
        if prices.request.objective == "bytes":
            n_ranks = space.table.present.sum(axis=1)[space.mesh_of[self.first]]
            held = prices.request.source.global_elems * space.copies()[self.first]
            kept = np.minimum(pairs.near_elems[0] * n_ranks[:, None], held[:, None])
            return (np.maximum(held[None, :] - kept, 0) << MESSAGE_BITS) + pairs.pieces
        n = len(tile)
        waits_in, waits_out, fs_in, fs_out = np.zeros((4, n, n), dtype=np.int64)
        copies = [np.ones(n, dtype=np.int64), *(block.copies[self.first] for block in self.blocks)]
        groups = [c[None, :] // np.maximum(c[:, None], 1) for c in copies]
        for number, (latency, byte_fs) in enumerate(self._more_per_level()):
            # Over this level or a farther one: what is not within the blocks of the level before.
            near, elems = pairs.near_pieces[number], pairs.near_elems[number]
            waits_in += latency * (pairs.pieces - near)
            fs_in += byte_fs * (tile[None, :] - elems)
            asked = groups[-1] - groups[number]
            waits_out += latency * np.where(gathers, asked, (pairs.pieces - near).T)
            fs_out += byte_fs * np.where(gathers, asked * tile[:, None], (tile[None, :] - elems).T)
        step = np.where(pairs.pieces + pairs.pieces.T > 2, prices.request.topology.step_ps, 0)
        elem_fs = np.maximum(fs_in, fs_out) * prices.request.source.dtype.itemsize
        return step + np.maximum(waits_in, waits_out) + ceil_div(elem_fs, 1000) + 1

    def _more_per_level(self) -> list[tuple[int, int]]:
        """What each level that is told apart costs more than the one before, a message and a byte.

        A level costs at least what the cheapest of it and all farther ones does.
        """
        levels = self.prices.request.topology.levels
        out, latency, byte_fs = [], 0, 0
        for number in range(len(self.blocks)):
            least = cheapest_of(levels[number:])
            out.append((least.latency_ps - latency, least.byte_fs - byte_fs))
            latency, byte_fs = least.latency_ps, least.byte_fs
        return out

    def _permute_floors(self) -> Ints:
        """No all_permute costs less: if a block holds more tiles after it, one has come from outside."""
        prices, space = self.prices, self.prices.space
        floor = np.ones((len(self.first),) * 2, dtype=np.int64)
        even = np.ones(len(self.first), dtype=np.bool_)
        for i in range(space.n_dims):
            even &= space.table.are_even(i)[space.rows[self.first, i]]
        more = self._more_per_level()
        waits = np.cumsum([latency for latency, _ in more])
        fs = np.cumsum([byte_fs for _, byte_fs in more]) * prices.request.source.dtype.itemsize
        for number, block in enumerate(self.blocks[:-1]):
            held = np.ones(len(self.first), dtype=np.int64)
            for i in range(space.n_dims):
                held *= block.near_tiles[space.rows[self.first, i]]
            grows = (held[None, :] > held[:, None]) & even[:, None] & even[None, :]
            time = waits[number + 1] + fs[number + 1] * space.tile_elems[self.first] // 1000
            floor = np.maximum(floor, np.where(grows, time[:, None] + 1, 1))
        return floor

    def _fit(self) -> Bools:
        """Which pairs of shapes stay within the limit."""
        n, start = len(self.first), self.prices.start
        limit = self.prices.request.limit_bytes
        if limit is None:
            return np.ones((n, n), dtype=np.bool_)
        chosen = self.first.copy()
        if start < len(self.number):
            # Only there does the source not live beside the two.
            chosen[self.number[start]] = start
        before, after = np.repeat(chosen, n), np.tile(self.first, n)
        return (self.prices.fixed_bytes(before, after) <= limit).reshape(n, n)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """What the rank at the origin of all dims meets, for all pairs [A, B] of shapes.

    ``pieces`` counts tiles of A that meet its tile of B. Of these at most ``near_pieces[k]``, and of
    its elements at most ``near_elems[k]``, lie within its block of level k - 1, or for k = 0 with
    itself.
    """

    finer: Bools
    same_tiles: Bools
    pieces: Ints
    near_pieces: tuple[Ints, ...]
    near_elems: tuple[Ints, ...]

    @staticmethod
    def of(shapes: Shapes) -> _Pairs:
        """Tables for the shapes of a search."""
        space, n = shapes.prices.space, len(shapes.first)
        finer, same = np.ones((2, n, n), dtype=np.bool_)
        pieces = np.ones((n, n), dtype=np.int64)
        near = [np.ones(len(space.table), dtype=np.int64)]
        near += [block.near_tiles for block in shapes.blocks[:-1]]
        near_pieces, near_elems = np.ones((2, len(near), n, n), dtype=np.int64)
        for i in range(space.n_dims):
            chains = space.rows[shapes.first, i]
            counts, kind = np.unique(
                np.array(space.table.n_tiles, dtype=np.int64)[chains], return_inverse=True
            )
            cuts = [cut_dim(space.table.shape[i], int(k)) for k in counts]
            here = np.ix_(kind, kind)
            finer &= np.array([[b.nests_in(a) for b in cuts] for a in cuts])[here]
            same &= np.array([[b.same_tiles(a) for b in cuts] for a in cuts])[here]
            size = np.array([cut.tile_size for cut in cuts], dtype=np.int64)[kind]
            met = ceil_div(size[None, :], np.maximum(size[:, None], 1))
            pieces *= met
            for k, tiles in enumerate(near):
                few = tiles[chains][:, None]
                if shapes.fine:
                    finer &= _extends(few, np.array(space.table.n_tiles)[chains][:, None])
                near_pieces[k] *= np.minimum(few, met)
                near_elems[k] *= np.minimum(few * size[:, None], size[None, :])
        if not shapes.fine:
            tile = space.tile_elems[shapes.first][None, :]
            for k, tiles in enumerate(near[1:], start=1):
                few = tiles[space.rows[shapes.first]].prod(axis=1)[:, None]
                every = np.array(space.table.n_tiles)[space.rows[shapes.first]].prod(axis=1)
                finer &= _extends(few, every[:, None])
                near_pieces[k] = np.minimum(few, pieces)
                near_elems[k] = np.minimum(few * near_elems[0], tile)
        return _Pairs(finer, same, pieces, tuple(near_pieces), tuple(near_elems))


def _extends(near: Ints, every: Ints) -> Bools:
    """[A, B]: whether factors can be added to those of A, near and far ones apart, so as to have B's."""
    far = every // near
    extends: Bools = (near.T % near == 0) & (far.T % far == 0)
    return extends


def _kinds(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Where each kind of row stands first, and the kind of every row."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, dense = np.unique(column, return_inverse=True)
        _, key = np.unique(key * (int(dense.max(initial=0)) + 1) + dense, return_inverse=True)
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first.astype(np.int64), number.astype(np.int64)
