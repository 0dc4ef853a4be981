"""Experts to new ranks with the fewest moves.

A balancer says which experts shall be together on a rank, but not on which: ranks are alike. So the groups
are given to ranks such that as few experts move as possible, which is an assignment problem, solved exactly::

    now      rank 0: a b     rank 1: c d     rank 2: e f
    wanted   {c e}  {a b}  {d f}

    as listed, five move: c e, a b, d      best: {a b}, {c e}, {d f}: only e and d move
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.refits.weights import Weights

Experts = Sequence[Sequence[int]]
"""The experts of each rank, in the order of their slots."""


@dataclass(frozen=True, slots=True)
class PlacedExperts:
    """Experts on ranks: ``experts[r]`` are those of rank r by slot; ``moved`` come from another rank.

    >>> found = place_experts([[0, 1], [2, 3], [4, 5]], [[2, 4], [0, 1], [3, 5]])
    >>> found.experts, found.moved, found.group_of
    (((0, 1), (2, 4), (3, 5)), 2, (1, 0, 2))
    """

    experts: tuple[tuple[int, ...], ...]
    moved: int
    group_of: tuple[int, ...]

    def weights(self, tensors: dict[str, str], ranks: Sequence[int] | None = None) -> Weights:
        """The weights of this placement: ``tensors`` has a type for each name with ``{e}`` in it.

        >>> now, new = [[0, 1], [2, 3]], place_experts([[0, 1], [2, 3]], [[0, 2], [1, 3]])
        >>> of = {"experts.{e}.w": "bf16[64, 32]"}
        >>> import redist
        >>> redist.refit(placed(now).weights(of), new.weights(of)).received_bytes
        8192
        """
        where = list(range(len(self.experts))) if ranks is None else list(ranks)
        owners: dict[int, list[int]] = {}
        for rank, own in zip(where, self.experts, strict=True):
            for e in own:
                owners.setdefault(e, []).append(rank)
        types = {}
        for e, ranks_of in sorted(owners.items()):
            mesh = Mesh({"copy": len(ranks_of)}, ranks=ranks_of)
            for name, text in tensors.items():
                types[name.replace("{e}", str(e))] = ArrayType.parse(text, mesh)
        return Weights(types)


def placed(experts: Experts) -> PlacedExperts:
    """A placement as it is."""
    found = tuple(tuple(int(e) for e in own) for own in experts)
    for rank, own in enumerate(found):
        if len(set(own)) < len(own):
            raise ArgumentError(f"cannot place experts: rank {rank} has one of {list(own)} twice")
    return PlacedExperts(found, 0, tuple(range(len(found))))


def place_experts(
    now: Experts, wanted: Experts, sizes: Sequence[int] | None = None
) -> PlacedExperts:
    """Give groups of experts to ranks so that the fewest experts move; exact.

    ``now`` has the experts of each rank, ``wanted`` as many groups, in any order; an expert may be in
    several. An expert that stays keeps its slot if it can. ``sizes`` are bytes by expert where they differ:
    then the fewest bytes move.
    """
    have, want = placed(now).experts, placed(wanted).experts
    if len(have) != len(want):
        raise ArgumentError(
            f"cannot place experts: {len(want)} groups for {len(have)} ranks; give one group for each rank"
        )
    most = 1 + max((e for own in (*have, *want) for e in own), default=0)
    if sizes is not None and len(sizes) < most:
        raise ArgumentError(f"cannot place experts: {len(sizes)} sizes for {most} experts")
    weight = np.ones(most, np.int64) if sizes is None else np.asarray(sizes[:most], np.int64)
    has, needs = (np.zeros((len(have), most), np.int64) for _ in range(2))
    for table, given in ((has, have), (needs, want)):
        for rank, own in enumerate(given):
            table[rank, list(own)] = 1
    cost = (needs * weight).sum(axis=1)[None] - (has * weight) @ needs.T
    group_of = assign(cost)
    moved = sum(len(set(want[g]) - set(have[r])) for r, g in enumerate(group_of))
    slots = tuple(_slots(have[r], want[g]) for r, g in enumerate(group_of))
    return PlacedExperts(slots, moved, tuple(group_of))


def _slots(have: Sequence[int], want: Sequence[int]) -> tuple[int, ...]:
    """A group in slots: what stays is where it was, if there is such a slot; the others fill the rest."""
    out: list[int | None] = [None] * len(want)
    for slot, e in enumerate(have[: len(want)]):
        if e in want:
            out[slot] = e
    rest = iter(e for e in want if e not in out)
    return tuple(next(rest) if e is None else e for e in out)


def assign(cost: NDArray[Any]) -> list[int]:
    """The column of each row such that the sum of costs is least (shortest augmenting paths).

    Rows are added one by one. The cheapest way to give a new row a column, if others may change theirs,
    is a shortest path over reduced costs, none of which is negative: ``cost - row price - column price``.

    >>> assign(np.array([[4, 1, 3], [2, 0, 5], [3, 2, 2]]))
    [1, 0, 2]
    """
    n = len(cost)
    of_row, of_column = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    # The row, from 1, that has a column; column 0 stands for none.
    row_of = np.zeros(n + 1, np.int64)
    for row in range(1, n + 1):
        row_of[0] = row
        least = np.full(n + 1, np.iinfo(np.int64).max)
        before = np.zeros(n + 1, np.int64)
        done = np.zeros(n + 1, np.bool_)
        column = 0
        while row_of[column]:
            done[column] = True
            own = row_of[column]
            reduced = cost[own - 1] - of_row[own] - of_column[1:]
            nearer = ~done[1:] & (reduced < least[1:])
            least[1:][nearer] = reduced[nearer]
            before[1:][nearer] = column
            open_ = np.where(done, np.iinfo(np.int64).max, least)
            column = 1 + int(np.argmin(open_[1:]))
            step = open_[column]
            of_row[row_of[done]] += step
            of_column[done] -= step
            least[~done] -= step
        while column:
            row_of[column] = row_of[before[column]]
            column = int(before[column])
    out = [0] * n
    for column in range(1, n + 1):
        out[int(row_of[column]) - 1] = column - 1
    return out
