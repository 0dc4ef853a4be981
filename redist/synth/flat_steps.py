"""Flat steps: from one type to another whose dims are cut by as many factors of every prime, in all.

Dims with too many factors of a prime give, dims with too few take. One all_to_all does it, if what leaves a
dim is at its minor end; a permute before it brings it there, and one behind it puts names and order right.

*Without a circle* (no dim gives to another that gives back, on any way round) the dims that only take have
nothing to do; a dim gives when all dims that it gives to have given. So no dim gives what it was given::

    {..,a,b}  {..,c}  {..}      c: 1 to 2        then b: 0 to 1, a: 0 to 2

*With a circle* what leaves a dim is sorted by where it goes, and two dims at a time change what they have for
each other, U and W, while what is minor to these waits at its destination::

    {..,U,A}  {..,W,B}     A and B leave       {..,U}      {..,W}
                           U to the right      {..}        {..,W,U}
                           W,U to the left     {..,W,U}    {..}
                           U to the right      {..,W}      {..,U}
                           A and B come back   {..,W,A}    {..,U,B}

A factor is at its origin or at its destination at every moment, and a dim either gives or takes a prime: so
no dim ever has more factors of it than at the larger of the two ends, and all tiles are even.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts
from redist.plan.steps import AllPermute, AllToAll
from redist.synth.named_steps import BlockMove, Dims, name_step
from redist.synth.plan_figures import Hop, Path

FEW_MOVES, FEW_STATES = 8, 1_500
"""Of one all_to_all that is searched for between types of the same factors, and arrangements looked at."""


def count_factors(dims: Dims) -> list[Counter[int]]:
    """Of every dim, how many factors of each prime cut it."""
    return [Counter(part.size for part in dim) for dim in dims]


def flat_ways(start: ArrayType, end: ArrayType, old: Dims, new: Dims) -> Iterator[Path]:
    """Steps between two types, which ``old`` and ``new`` cut: from either end, or all at once."""
    if start == end:
        yield ()
        return
    if start.same_tiles(end):
        yield ((AllPermute(end), end),)
        return
    one = name_step(start, end, most_moves=FEW_MOVES, most_states=FEW_STATES)
    if one is not None:
        yield ((one, end),)
    yield _closed(start, _arranged(start, old, new), end)
    yield _reversed(end, _closed(end, _arranged(end, new, old), start))


def _closed(start: ArrayType, hops: Path, end: ArrayType) -> Path:
    """Steps, and the permute to ``end`` if that is not what they make."""
    here = hops[-1][1] if hops else start
    return hops if here == end else (*hops, (AllPermute(end), end))


def _reversed(start: ArrayType, path: Path) -> Path:
    """A path of flat steps walked backwards, to where it began."""
    types = [start, *(after for _, after in path)]
    hops: list[Hop] = []
    for (action, _), before in zip(reversed(path), reversed(types[:-1]), strict=True):
        match action:
            case AllToAll(moves):
                back = tuple((block, j, i) for block, i, j in reversed(moves))
                hops.append((AllToAll(back), before))
            case _:
                hops.append((AllPermute(before), before))
    return tuple(hops)


def _arranged(t: ArrayType, dims: Dims, wanted: Dims) -> Path:
    """A permute if it takes one, and the all_to_all after which every dim has the wanted counts."""
    goes = _destinations(dims, wanted)
    gives_to = [{goes[part] for part in dim if part in goes} for dim in dims]
    order = _sinks_first(gives_to)
    here = [_tail_last(i, dim, goes, order is None) for i, dim in enumerate(dims)]
    hops: list[Hop] = []
    if here != dims:
        hops.append((AllPermute(t.with_dims(here)), t.with_dims(here)))
    moves = _Moves(here)
    if order is None:
        _give_in_pairs(moves, goes)
    else:
        for i in order:
            while moves.dims[i] and moves.dims[i][-1] in goes and goes[moves.dims[i][-1]] != i:
                run = moves.run_at_end(i, goes)
                moves.move(len(run), i, goes[run[0]])
    after = t.with_dims(moves.dims)
    hops.append((AllToAll(moves.blocks()), after))
    return tuple(hops)


def _destinations(dims: Dims, wanted: Dims) -> dict[SubAxis, int]:
    """Which factors leave their dim, and for which: home if they can, else any dim that lacks one."""
    have, want = count_factors(dims), count_factors(wanted)
    homes = {part: i for i, dim in enumerate(wanted) for part in dim}
    lacks = [want[i] - have[i] for i in range(len(dims))]
    leaving: list[SubAxis] = []
    for i, dim in enumerate(dims):
        surplus = have[i] - want[i]
        tail = dim[len(dim) - surplus.total() :]
        if Counter(part.size for part in tail) != surplus:
            # A permute will be needed anyway: who is at home elsewhere goes, the minor end first.
            away = [part for part in reversed(dim) if homes.get(part, i) != i]
            tail = [*away, *(part for part in reversed(dim) if part not in away)]
            tail = [p for k, p in enumerate(tail) if _rank(tail, k) < surplus[p.size]]
        leaving += tail
    goes: dict[SubAxis, int] = {}
    for part in leaving:
        home = homes.get(part)
        if home is not None and lacks[home][part.size] > 0:
            goes[part] = home
            lacks[home][part.size] -= 1
    for part in leaving:
        if part not in goes:
            goes[part] = next(i for i, lack in enumerate(lacks) if lack[part.size] > 0)
            lacks[goes[part]][part.size] -= 1
    return goes


def _rank(parts: Sequence[SubAxis], k: int) -> int:
    """How many of the same size come before."""
    return sum(part.size == parts[k].size for part in parts[:k])


def _sinks_first(gives_to: Sequence[set[int]]) -> list[int] | None:
    """Dims in an order in which each comes behind those that it gives to; None if there is a circle."""
    order: list[int] = []
    while len(order) < len(gives_to):
        ready = [i for i, to in enumerate(gives_to) if i not in order and to <= set(order)]
        if not ready:
            return None
        order += ready
    return order


def _tail_last(
    i: int, dim: list[SubAxis], goes: dict[SubAxis, int], in_pairs: bool
) -> list[SubAxis]:
    """The factors of a dim with those that leave at the minor end, if in pairs sorted by them."""
    stay = [part for part in dim if part not in goes]
    leave = [part for part in dim if part in goes]
    if in_pairs:
        leave.sort(key=lambda part: _pair(i, goes[part]))
    elif dim[len(stay) :] != leave:
        leave.sort(key=lambda part: goes[part])
    return [*stay, *leave]


def _pair(i: int, j: int) -> tuple[int, int]:
    return min(i, j), max(i, j)


class _Moves:
    """Dims, and the moves of blocks that were made; one that undoes the last takes that back."""

    def __init__(self, dims: Dims) -> None:
        self.dims = [list(dim) for dim in dims]
        self.made: list[tuple[list[SubAxis], int, int]] = []

    def move(self, n: int, i: int, j: int) -> None:
        """Take the last n factors of dim i to dim j."""
        block = self.dims[i][len(self.dims[i]) - n :]
        del self.dims[i][len(self.dims[i]) - n :]
        self.dims[j] += block
        if self.made and self.made[-1] == (block, j, i):
            self.made.pop()
        else:
            self.made.append((block, i, j))

    def run_at_end(self, i: int, goes: dict[SubAxis, int]) -> list[SubAxis]:
        """The factors at the minor end of a dim that go to one dim."""
        last = self.dims[i][-1]
        run = itertools.takewhile(lambda part: goes.get(part) == goes[last], reversed(self.dims[i]))
        return list(run)[::-1]

    def blocks(self) -> tuple[BlockMove, ...]:
        """The moves of an all_to_all."""
        return tuple((merge_parts(block), i, j) for block, i, j in self.made)


def _give_in_pairs(moves: _Moves, goes: dict[SubAxis, int]) -> None:
    """Two dims at a time change what they have for each other."""
    at = {part: i for i, dim in enumerate(moves.dims) for part in dim}
    for i, j in sorted({_pair(at[part], to) for part, to in goes.items()}):
        waits: list[tuple[int, int, int]] = []
        sizes = {}
        for k, other in ((i, j), (j, i)):
            leave = [p for p in moves.dims[k] if at[p] == k and p in goes]
            sizes[k] = sum(goes[p] == other for p in leave)
            while leave and goes[leave[-1]] != other:
                run = moves.run_at_end(k, goes)
                waits.append((len(run), k, goes[run[0]]))
                moves.move(*waits[-1])
                del leave[len(leave) - len(run) :]
        u, w = sizes[i], sizes[j]
        if u and w:
            moves.move(u, i, j)
            moves.move(u + w, j, i)
            moves.move(u, i, j)
        elif u or w:
            moves.move(*((u, i, j) if u else (w, j, i)))
        for n, k, to in reversed(waits):
            moves.move(n, to, k)
