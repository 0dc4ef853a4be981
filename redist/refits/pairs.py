"""Named tensors that are alike on both sides, solved once.

A model has tens of thousands of tensors but few kinds of them: where the tiles on both sides are alike, so
are atoms, requests and records. Such tensors are the *instances* of one *pair*; they differ in the ranks
that hold the tiles and in where these begin, which are rows of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from redist.errors import ArgumentError
from redist.layout.axes import Ints
from redist.layout.dtype import DType
from redist.refits.held import Held
from redist.refits.meet import Meeting, NotHeld
from redist.refits.weights import Weights


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """The tiles of one side of a pair: a slot for each holder, a row of the matrices for each instance.

    ``tile`` numbers the tiles of the meeting. ``ranks`` and ``bases`` have different rows; ``rank_row`` and
    ``base_row`` say which one an instance has. ``stored`` is the number of its stored tensor, by ``entry``:
    a named tensor may be stored more than once.
    """

    tile: Ints
    entry: Ints
    ranks: Ints
    bases: Ints
    rank_row: Ints
    base_row: Ints
    stored: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Instances whose tiles are alike; ``slot`` and ``atom`` say what each request wants, in elements.

    ``sender`` has, for each instance (rows) and request, the slot of the source that sends.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    meeting: Meeting
    source: Holders
    target: Holders
    slot: Ints
    atom: Ints
    elems: Ints
    wire: int
    sender: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    @property
    def n_requests(self) -> int:
        """Requests of one instance."""
        return len(self.slot)

    def classes(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Instances on the same ranks: their numbers, and the ranks by slot of both sides."""
        rows = self.source.rank_row * len(self.target.ranks) + self.target.rank_row
        order = np.argsort(rows, kind="stable")
        cuts = np.flatnonzero(np.diff(rows[order])) + 1
        for own in np.split(order, cuts):
            first = own[0]
            ranks = self.source.ranks[self.source.rank_row[first]]
            yield own, ranks, self.target.ranks[self.target.rank_row[first]]

    def moves(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Instances on the same ranks: their numbers; sender, receiver and bytes of their requests.

        No bytes move where both are the same rank.
        """
        for own, ranks, needing in self.classes():
            sender = ranks[self.sender[own]]
            receiver = np.broadcast_to(needing[self.slot], sender.shape)
            yield own, sender, receiver, np.where(sender != receiver, self.elems * self.wire, 0)

    def slots_of(self, atom: int) -> Ints:
        """The slots of the source that hold an atom."""
        return np.flatnonzero(np.isin(self.source.tile, self.meeting.holders[atom]))


Seats: TypeAlias = tuple[int, ...]
"""Numbers of seats: a named tensor may be stored more than once."""


@dataclass(slots=True)
class _Group:
    """A pair while its instances are collected: for each the numbers of its seats, and of stored tensors."""

    shape: tuple[int, ...]
    dtypes: tuple[DType, DType]
    sides: tuple[list[Seats], list[Seats]] = field(default_factory=lambda: ([], []))
    names: list[str] = field(default_factory=list)
    chosen: list[tuple[int, int]] = field(default_factory=list)
    stored: tuple[list[Seats], list[Seats]] = field(default_factory=lambda: ([], []))


def find_pairs(source: Weights, target: Weights, cast: bool = False) -> list[Pair]:
    """All tensors of the target with what the source has of them, alike ones together.

    Raises if the target needs what the source does not have, or has in another shape or dtype.
    """
    have, need = Held(source), Held(target)
    _check_names(have, need)
    groups: dict[object, _Group] = {}
    # Most tensors have the seats of one before them: then they are of its pair.
    known: dict[tuple[Seats, int], tuple[_Group, tuple[int, int]]] = {}
    for name in sorted(need.named):
        entries = have.named[name]
        seats = tuple([seat for seat, _ in entries])
        stored = tuple([number for _, number in entries])
        for seat, number in need.named[name]:
            found = known.get((seats, seat))
            if found is None:
                shape, kinds = _must_agree(name, (have, seats), (need, seat), cast)
                patterns = tuple(have.seats[one].pattern for one in seats)
                key = (shape, patterns, need.seats[seat].pattern, kinds)
                group = groups.setdefault(key, _Group(shape, kinds))
                ends = len(group.sides[0]), len(group.sides[1])
                group.sides[0].append(seats)
                group.sides[1].append((seat,))
                found = known[seats, seat] = group, ends
            group, ends = found
            group.names.append(name)
            group.chosen.append(ends)
            group.stored[0].append(stored)
            group.stored[1].append((number,))
    return [_pair(group, have, need) for group in groups.values()]


def _check_names(have: Held, need: Held) -> None:
    missing = [name for name in need.named if name not in have.named]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        others = " and others" if len(have.named) > 1 else ""
        some = f"it has {min(have.named)!r}{others}" if have.named else "it has no tensors"
        raise ArgumentError(
            f"cannot refit: the target needs {min(missing)!r}{more}, which the source does not have "
            f"({some}); give rules that say which named tensors stored ones are made of"
        )


def _must_agree(
    name: str, source: tuple[Held, Seats], target: tuple[Held, int], cast: bool
) -> tuple[tuple[int, ...], tuple[DType, DType]]:
    """The shape that both sides give a tensor, and its dtypes."""
    (have, seats), (need, seat) = source, target
    shape, own_shape = need.shapes[name], have.shapes[name]
    if shape != own_shape:
        raise ArgumentError(
            f"cannot refit {name!r}: it has shape {own_shape} at the source and {shape} at the target"
        )
    own, wanted = have.seats[seats[0]].dtype, need.seats[seat].dtype
    other = next((have.seats[k].dtype for k in seats if have.seats[k].dtype != own), None)
    if other is not None:
        raise ArgumentError(
            f"cannot refit {name!r}: the source stores it as {own} and as {other}; leave one of them out"
        )
    if wanted != own and not cast:
        raise ArgumentError(
            f"cannot refit {name!r}: it is {own} at the source and {wanted} at the target; "
            "say cast=True to convert"
        )
    return shape, (own, wanted)


def _pair(group: _Group, have: Held, need: Held) -> Pair:
    """The pair of a group: meet the tiles once, then put ranks and bases of all instances into rows."""
    patterns = [have.patterns[have.seats[p].pattern] for p in group.sides[0][0]]
    source_tiles, source_tile = np.unique(np.concatenate(patterns), return_inverse=True)
    target_tiles, target_tile = np.unique(
        need.patterns[need.seats[group.sides[1][0][0]].pattern], return_inverse=True
    )
    sizes = group.dtypes[0].itemsize, group.dtypes[1].itemsize
    try:
        meeting = Meeting.of(
            [have.tiles[k] for k in source_tiles], [need.tiles[k] for k in target_tiles], sizes
        )
    except NotHeld as problem:
        raise ArgumentError(
            f"cannot refit {group.names[0]!r}: no rank of the source holds its element {list(problem.index)}"
        ) from None
    entry = np.repeat(np.arange(len(patterns)), [len(pattern) for pattern in patterns])
    return Pair(
        tuple(group.names), group.shape, meeting,
        _holders(have, group, 0, source_tile, entry),
        _holders(need, group, 1, target_tile, np.zeros_like(target_tile)),
        *_requests(meeting, target_tile), min(sizes),
    )  # fmt: skip


def _holders(held: Held, group: _Group, side: int, tile: Ints, entry: Ints) -> Holders:
    # Different rows of ranks and of bases, each once, with its number.
    ranks: dict[tuple[int, ...], int] = {}
    bases: dict[tuple[int, ...], int] = {}
    rows = []
    for chosen in group.sides[side]:
        seats = [held.seats[one] for one in chosen]
        rank_row = ranks.setdefault(tuple(seat.ranks for seat in seats), len(ranks))
        rows.append((rank_row, bases.setdefault(tuple(seat.bases for seat in seats), len(bases))))
    of = np.array(rows, dtype=np.int64)[np.array(group.chosen, dtype=np.int64)[:, side]]
    return Holders(
        tile.reshape(-1).astype(np.int64), entry,
        np.stack([np.concatenate([held.ranks[k] for k in key]) for key in ranks]),
        np.stack([np.concatenate([held.bases[k] for k in key]) for key in bases]),
        of[:, 0], of[:, 1], np.array(group.stored[side], dtype=np.int64),
    )  # fmt: skip


def _requests(meeting: Meeting, tile: Ints) -> tuple[Ints, Ints, Ints]:
    """Slot, atom and elements of every request of an instance, by slot."""
    needed = meeting.elems[tile]
    slot, atom = np.nonzero(needed)
    return slot, atom, needed[slot, atom]
