"""Do the pairs of a refit say of its tensors what the two sides say, and do they leave none out?

A pair has rows for many tensors: ranks, places in their buffers, and numbers of stored tensors. Each is
compared with what the side has of this tensor, listed anew. Rows repeat, so each is compared once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Number = Callable[[object], int]


def side_faults(plan: Any) -> Iterator[str]:
    """What pairs say otherwise than the sides, in sentences; nothing if all is well."""
    have, need = plan.source.held(), plan.target.held()
    numbers: dict[object, int] = {}

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    of_source, of_target = (_OfSeats(held, number) for held in (have, need))
    wanted = Counter(
        (name, stored, of_target.number((seat,)))
        for name, entries in need.named.items()
        for seat, stored in entries
    )
    for pair in plan.pairs:
        yield from _sizes(pair)
        sources, targets = (
            _OfRows(holders, tiles, size, number)
            for holders, tiles, size in zip(
                (pair.source, pair.target),
                (pair.meeting.source, pair.meeting.target),
                pair.meeting.itemsizes,
                strict=True,
            )
        )
        for i, name in enumerate(pair.names):
            entries = have.named.get(name)
            held = entries and [
                *(stored for _, stored in entries),
                of_source.number([seat for seat, _ in entries]),
            ]
            if [*pair.source.stored[i].tolist(), sources.number(i)] != held:
                yield f"{name!r}: the source holds it otherwise than the plan says"
            wanted[name, int(pair.target.stored[i, 0]), targets.number(i)] -= 1
    for (name, *_), left in wanted.items():
        if left:
            how = "" if left > 0 else " otherwise than the plan says, or not so often"
            yield f"{name!r}: the target holds it{how or ', and the plan leaves it out'}"


def _sizes(pair: Any) -> Iterator[str]:
    """Requests, and what an element has on its way."""
    if pair.wire != min(pair.meeting.itemsizes):
        yield f"{pair.names[0]!r}: an element travels as {pair.wire} bytes"
    wants = pair.meeting.elems[pair.target.tile]
    slot, atom = np.nonzero(wants)
    asked = (pair.slot, slot), (pair.atom, atom), (pair.elems, wants[slot, atom])
    if not all(np.array_equal(mine, theirs) for mine, theirs in asked):
        yield f"{pair.names[0]!r}: what is asked for is not what the target lacks"


class _OfSeats:
    """A number for what a side says of some seats: ranks, places, tiles and itemsize."""

    def __init__(self, held: Any, number: Number) -> None:
        self._held, self._number = held, number
        self._known: dict[tuple[int, ...], int] = {}
        self._tiles = np.array([number(_content(tile)) for tile in held.tiles], dtype=np.int64)

    def number(self, seats: Sequence[int]) -> int:
        """The number of these seats, one behind the other."""
        key = tuple(seats)
        if key not in self._known:
            held, own = self._held, [self._held.seats[one] for one in key]
            ranks = np.concatenate([held.ranks[one.ranks] for one in own]).tobytes()
            bases = np.concatenate([held.bases[one.bases] for one in own]).tobytes()
            tiles = np.concatenate([self._tiles[held.patterns[one.pattern]] for one in own])
            sizes = {one.dtype.itemsize for one in own}
            self._known[key] = self._number((ranks, bases, tiles.tobytes(), *sizes))
        return self._known[key]


class _OfRows:
    """The same for the rows of a pair."""

    def __init__(self, holders: Any, tiles: Sequence[Any], size: int, number: Number) -> None:
        self._holders, self._size, self._number = holders, size, number
        self._known: dict[tuple[int, int], int] = {}
        own = np.array([number(_content(tile)) for tile in tiles], dtype=np.int64)
        self._tiles = own[holders.tile].tobytes()

    def number(self, instance: int) -> int:
        """The number of what the pair says of an instance."""
        holders = self._holders
        key = int(holders.rank_row[instance]), int(holders.base_row[instance])
        if key not in self._known:
            ranks, bases = holders.ranks[key[0]].tobytes(), holders.bases[key[1]].tobytes()
            self._known[key] = self._number((ranks, bases, self._tiles, self._size))
        return self._known[key]


def _content(tile: Any) -> object:
    """What makes equal tiles equal."""
    return tuple(
        tuple((r.lo.tobytes(), r.n.tobytes(), r.at.tobytes(), r.step) for r in box) for box in tile
    )
