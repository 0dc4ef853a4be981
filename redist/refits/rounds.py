"""Which tensor moves in which round, so that no rank has more under way than the limit.

Instances of a class (alike, on the same ranks) load the same ranks. All classes go forward in proportion: the
k-th of n instances of a class has its turn at (k + 1/2) / n::

    class A, 4 instances     a       a       a       a
    class B, 2 instances         b               b
    class C, 1 instance                  c
                             a   b   a   c   a   b   a        in the order of turns

so at every moment every rank has sent and received the same share of all that it will, and none waits long
for another. This order is cut into rounds: a round ends before the rank that has most would pass the limit.
What one instance moves may pass the limit by itself; it is cut into *slices*: of each of its requests the
same share of elements, or, if even one element of each is too much, some of its requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np

from redist.errors import MemoryLimitError
from redist.layout.axes import Ints
from redist.refits.pairs import Pair

BLOCK = 512
"""Instances whose loads on all ranks are in memory at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """All that moves, in order: a row for an instance, or for a slice of one.

    ``pair`` and ``instance`` say which. Of requests ``first`` to ``last`` the ``slice``-th of ``slices``
    shares moves, in round ``round``. ``busiest`` is what the busiest rank sends and receives in each round.
    """

    pair: Ints
    instance: Ints
    round: Ints
    slice: Ints
    slices: Ints
    first: Ints
    last: Ints
    busiest: Ints

    @property
    def n_rounds(self) -> int:
        """Rounds in which something moves, or is copied."""
        return len(self.busiest)

    @property
    def columns(self) -> tuple[Ints, ...]:
        """All arrays of numbers, in the order of the fields."""
        return tuple(getattr(self, one.name) for one in fields(self))


def rounds_of(pairs: Sequence[Pair], limit: int | None, *, by_stage: bool = False) -> Turns:
    """All instances in order, in rounds in which no rank sends and receives more than ``limit`` bytes.

    With ``by_stage`` one stage of the source comes after the other, which is here to be compared with: ranks
    are of one stage if they hold parts of one tensor.
    """
    order = _order(pairs, by_stage)
    n_ranks = 1 + max(
        (int(max(p.source.ranks.max(), p.target.ranks.max())) for p in pairs), default=0
    )
    rows: list[tuple[int, int, int, int, int, int]] = []
    rounds: list[int] = []
    busiest: list[int] = []
    now = np.zeros(n_ranks, dtype=np.int64)
    for block in np.array_split(order, max(1, -(-len(order) // BLOCK))):
        loads = _loads(pairs, block, n_ranks)
        k = 0
        while k < len(block):
            # As many instances as fit beside what the round has.
            sums = np.cumsum(loads[k:], axis=0) + now
            most = sums.max(axis=1)
            fit = (
                len(block) - k if limit is None else int(np.searchsorted(most, limit, side="right"))
            )
            if fit:
                for pair, instance in block[k : k + fit].tolist():
                    rows.append((pair, instance, 0, 1, 0, pairs[pair].n_requests))
                rounds += [len(busiest)] * fit
                now = sums[fit - 1].copy()
                k += fit
                continue
            if now.any():
                busiest.append(int(now.max()))
                now[:] = 0
                continue
            assert limit is not None
            pair, instance = block[k].tolist()
            for piece, load in _sliced(pairs[pair], instance, limit, n_ranks):
                if now.any() and int((now + load).max()) > limit:
                    busiest.append(int(now.max()))
                    now[:] = 0
                rows.append((pair, instance, *piece))
                rounds.append(len(busiest))
                now = now + load
            k += 1
    if rows:
        busiest.append(int(now.max()))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    made = np.array(rounds, dtype=np.int64)
    first, last = columns[4], columns[5]
    most = np.array(busiest, dtype=np.int64)
    return Turns(columns[0], columns[1], made, columns[2], columns[3], first, last, most)


def _order(pairs: Sequence[Pair], by_stage: bool) -> Ints:
    """Pair and instance of all, in the order of their turns."""
    every, turns, holders = [], [], []
    for number, pair in enumerate(pairs):
        for own, ranks, _ in pair.classes():
            every.append(np.stack([np.full(len(own), number), own], axis=1))
            turns.append((2 * np.arange(len(own)) + 1) / (2 * len(own)))
            holders.append(ranks)
    if not every:
        return np.zeros((0, 2), dtype=np.int64)
    keys = [np.concatenate(turns)]
    if by_stage:
        keys.append(np.repeat(_stages(holders), [len(own) for own in every]))
    return np.asarray(np.concatenate(every)[np.lexsort(keys)])


def _stages(holders: Sequence[Ints]) -> Ints:
    """For each set of ranks the least rank of its stage: sets that share a rank are of one stage.

    >>> _stages([np.array([0, 1]), np.array([2]), np.array([1, 3])]).tolist()
    [0, 2, 0]
    """
    least = np.arange(1 + max(int(ranks.max()) for ranks in holders))
    changed = True
    while changed:
        before = least.copy()
        for ranks in holders:
            least[ranks] = least[ranks].min()
        changed = not np.array_equal(before, least)
    return np.array([least[ranks[0]] for ranks in holders])


def _moved(pair: Pair, own: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Row, sender, receiver and elements of the requests of some instances that are no local copies."""
    ranks = pair.source.ranks[pair.source.rank_row[own]]
    sender = np.take_along_axis(ranks, pair.sender[own].astype(np.int64), axis=1)
    receiver = pair.target.ranks[pair.target.rank_row[own]][:, pair.slot]
    row, request = np.nonzero(sender != receiver)
    return row, sender[row, request], receiver[row, request], request


def _loads(pairs: Sequence[Pair], block: Ints, n_ranks: int) -> Ints:
    """Bytes that each instance (rows) lets each rank send and receive."""
    out = np.zeros(len(block) * n_ranks, dtype=np.int64)
    for number in np.unique(block[:, 0]).tolist():
        at = np.flatnonzero(block[:, 0] == number)
        pair = pairs[number]
        row, sender, receiver, request = _moved(pair, block[at, 1])
        n_bytes = (pair.elems * pair.wire)[request].astype(np.float64)
        place = at[row] * n_ranks
        # Sums of whole numbers below 2**53 are exact.
        both = np.bincount(place + sender, n_bytes, len(out))
        both += np.bincount(place + receiver, n_bytes, len(out))
        out += both.astype(np.int64)
    return out.reshape(len(block), n_ranks)


def _sliced(
    pair: Pair, instance: int, limit: int, n_ranks: int
) -> Iterator[tuple[tuple[int, int, int, int], Ints]]:
    """Slices of one instance, each with its load: (slice, slices, first request, last request)."""
    if limit < pair.wire:
        raise MemoryLimitError(
            f"cannot refit {pair.names[instance]!r} within {limit} bytes a round: one element has "
            f"{pair.wire}; raise limit_bytes"
        )
    _, sender, receiver, request = _moved(pair, np.array([instance]))
    yield from _halves(pair, (sender, receiver, request), (0, pair.n_requests), limit, n_ranks)


def _halves(
    pair: Pair, moved: tuple[Ints, Ints, Ints], ends: tuple[int, int], limit: int, n_ranks: int
) -> Iterator[tuple[tuple[int, int, int, int], Ints]]:
    first, last = ends
    sender, receiver, request = moved
    own = (request >= first) & (request < last)
    sender, receiver, elems = sender[own], receiver[own], pair.elems[request[own]]

    def load(n: Ints) -> Ints:
        out = np.zeros(n_ranks, dtype=np.int64)
        np.add.at(out, sender, n * pair.wire)
        np.add.at(out, receiver, n * pair.wire)
        return out

    if len(elems) and int(load(np.ones_like(elems)).max()) > limit:
        middle = (first + last) // 2
        yield from _halves(pair, moved, (first, middle), limit, n_ranks)
        yield from _halves(pair, moved, (middle, last), limit, n_ranks)
        return
    slices = 1
    if len(elems):
        slices = max(1, -(-int(load(elems).max()) // limit))
        while int(load(-(-elems // slices)).max()) > limit:
            slices += max(1, slices // 8)
    for k in range(slices):
        yield (k, slices, first, last), load(share(elems, k + 1, slices) - share(elems, k, slices))


@overload
def share(elems: int, k: int, slices: int) -> int: ...
@overload
def share(elems: Ints, k: int | Ints, slices: int | Ints) -> Ints: ...
def share(elems: Any, k: Any, slices: Any) -> Any:
    """How many elements the first ``k`` of some slices have.

    >>> [share(10, k, 4) for k in range(5)]
    [0, 2, 5, 7, 10]
    """
    # Not elems * k // slices, which may pass 2**63.
    return elems // slices * k + elems % slices * k // slices
