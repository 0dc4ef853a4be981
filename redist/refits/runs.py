"""What one rank receives or sends, as rows of numbers that any transport can carry out.

A row says: in this round, to or from this peer, ``count`` blocks of ``bytes`` bytes. The first lies at
``offset`` of the rank's tile of stored tensor number ``tensor``, the others ``step`` bytes on; on the
peer's side the same with ``there_offset`` of tensor number ``there`` and ``there_step``. The rows of two
ranks for each other have the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from redist.layout.axes import Ints
from redist.refits.pairs import Pair
from redist.refits.records import Records
from redist.refits.rounds import Turns, share

RUN = np.dtype(
    [("round", "<i4"), ("peer", "<i4"), ("tensor", "<i4"), ("there", "<i4"), ("offset", "<i8"),
     ("there_offset", "<i8"), ("bytes", "<i8"), ("count", "<i8"), ("step", "<i8"), ("there_step", "<i8")]
)  # fmt: skip
"""A row: 64 bytes."""


class Lister:
    """Lists the runs of ranks."""

    def __init__(self, pairs: Sequence[Pair], turns: Turns) -> None:
        self._pairs, self._turns = pairs, turns
        order = np.lexsort((turns.instance, turns.pair))
        edges = np.searchsorted(turns.pair[order], np.arange(len(pairs) + 1))
        # Turns of each pair in the order of instances; an instance that is sliced has several.
        self._of_pair = [order[a:b] for a, b in itertools.pairwise(edges)]

    def runs(self, rank: int, *, sends: bool) -> NDArray[np.void]:
        """What a rank receives, or sends, in the order of rounds and peers."""
        found = _Collected(sends)
        for number, pair in enumerate(self._pairs):
            side = pair.source if sends else pair.target
            is_own = side.ranks == rank
            for slot in np.flatnonzero(is_own.any(axis=0)).tolist():
                turns = self._of_pair[number]
                turns = turns[is_own[side.rank_row, slot][self._turns.instance[turns]]]
                if len(turns):
                    (self._sent if sends else self._received)(found, pair, turns, slot)
        return found.rows()

    def _received(self, found: _Collected, pair: Pair, turns: Ints, slot: int) -> None:
        for request in np.flatnonzero(pair.slot == slot).tolist():
            senders = pair.sender[self._turns.instance[turns], request].astype(np.int64)
            self._add(found, pair, turns, request, senders)

    def _sent(self, found: _Collected, pair: Pair, turns: Ints, slot: int) -> None:
        given = pair.sender[self._turns.instance[turns]] == slot
        for request in np.flatnonzero(given.any(axis=0)).tolist():
            own = turns[given[:, request]]
            self._add(found, pair, own, request, np.full(len(own), slot))

    def _add(self, found: _Collected, pair: Pair, turns: Ints, request: int, senders: Ints) -> None:
        t = self._turns
        inside = (t.first[turns] <= request) & (request < t.last[turns])
        turns, senders = turns[inside], senders[inside]
        tiles = pair.source.tile[senders]
        for tile in np.unique(tiles).tolist():
            of_tile = tiles == tile
            own, slots = turns[of_tile], senders[of_tile]
            records = pair.meeting.records(
                int(pair.target.tile[pair.slot[request]]), int(pair.atom[request]), tile
            )
            whole = t.slices[own] == 1
            if whole.any():
                found.add(pair, t, own[whole], request, slots[whole], records)
            elems = pair.elems[request]
            for k in np.flatnonzero(~whole).tolist():
                lo = int(share(elems, t.slice[own[k]], t.slices[own[k]]))
                hi = int(share(elems, t.slice[own[k]] + 1, t.slices[own[k]]))
                if lo < hi:
                    part = records.part(lo, hi, pair.meeting.itemsizes)
                    found.add(pair, t, own[k : k + 1], request, slots[k : k + 1], part)


class _Collected:
    """Rows so far, with what puts them in order: turn, request and record."""

    def __init__(self, sends: bool) -> None:
        self._sends = sends
        self._parts: list[NDArray[np.void]] = []
        self._keys: list[Ints] = []

    def add(
        self, pair: Pair, t: Turns, turns: Ints, request: int, slots: Ints, records: Records
    ) -> None:
        """The records of one request, for all these turns."""
        own = t.instance[turns]
        slot = int(pair.slot[request])
        n = len(records)
        out = np.empty((len(own), n), RUN)
        source, target = pair.source, pair.target
        sender = source.ranks[source.rank_row[own], slots]
        receiver = target.ranks[target.rank_row[own], slot]
        begins = source.bases[source.base_row[own], slots], target.bases[target.base_row[own], slot]
        stored = (source.stored[own, source.entry[slots]], target.stored[own, 0])
        offsets = records.source, records.target
        steps = records.source_step, records.target_step
        here, there = (0, 1) if self._sends else (1, 0)
        out["round"] = t.round[turns][:, None]
        out["peer"] = (receiver if self._sends else sender)[:, None]
        out["tensor"], out["there"] = stored[here][:, None], stored[there][:, None]
        out["offset"] = begins[here][:, None] + offsets[here]
        out["there_offset"] = begins[there][:, None] + offsets[there]
        out["bytes"] = records.elems * pair.wire
        out["count"] = records.count
        out["step"], out["there_step"] = steps[here], steps[there]
        self._parts.append(out.reshape(-1))
        keys = np.empty((len(own), n, 3), dtype=np.int64)
        keys[:, :, 0], keys[:, :, 1], keys[:, :, 2] = turns[:, None], request, np.arange(n)
        self._keys.append(keys.reshape(-1, 3))

    def rows(self) -> NDArray[np.void]:
        """All rows in order."""
        if not self._parts:
            return np.zeros(0, RUN)
        rows, keys = np.concatenate(self._parts), np.concatenate(self._keys)
        order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0], rows["peer"], rows["round"]))
        return rows[order]
