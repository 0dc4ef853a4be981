"""Certify a refit: every element of every target once and right, bytes, staging, balance.

The judge shares with the planner what a side is: which tiles of named tensors lie in which buffers. All
else is found out again. Tensors that are alike are one *pair* with many instances; what holds for one of
them holds for all if the others differ in ranks and places alone. So, pair by pair:

1. *Sides.* The pairs have every tensor of the target, and say of both sides what these say
   (:mod:`redist.check.refit_sides`).
2. *Content.* For each kind of target tile, its requests are written out as runs between plain boxes, and
   :func:`redist.check_runs` judges them: once with every kind of source tile that is ever used. Whichever
   kind sends a request, it must write the same bytes of the target, so that any mixture is right too.
3. *Senders.* In every instance, the slot that sends a request holds a tile of the kind that was judged.
4. *Turns.* Every request of every instance has its turn once, or all its slices have, one by one.
5. *Bytes.* What ranks receive, counted from the senders, is what they need less what they hold, counted
   from the boxes of the tiles.
6. *Rounds.* What each rank sends and receives in each round is at most the limit.
7. *Balance.* The busiest sender, beside what it must send at least: what a rank alone holds, it sends; and
   the ranks that hold parts of one tensor send what is needed of theirs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.check.boxes import Boxes, Ints
from redist.check.refit_sides import side_faults
from redist.check.runs import check_runs
from redist.text.units import format_bytes


@dataclass(frozen=True, slots=True)
class RefitCertificate:
    """What the judge of a refit says; ``verdict`` is ``"proved"`` or ``"refuted"``.

    ``tensors`` and ``kinds`` count what was looked at, ``faults`` are sentences. ``balance`` is what the
    busiest rank sends over the least that it could.
    """

    verdict: str
    tensors: int
    kinds: int
    received_bytes: int
    lower_bound_bytes: int
    staging_bytes: int
    balance: float
    faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.faults:
            more = f" (and {len(self.faults) - 1} faults more)" if len(self.faults) > 1 else ""
            return f"certificate refuted: {self.faults[0]}{more}"
        return (
            f"certificate {self.verdict}: every element of {self.tensors} tensors ({self.kinds} kinds) once, "
            "from a rank that holds it; received = lower bound; at most "
            f"{format_bytes(self.staging_bytes)} a rank and round; the busiest sender has "
            f"{self.balance:.2f} x the least possible"
        )


def certify(plan: Any) -> RefitCertificate:
    """Judge a refit; see the module."""
    faults: list[str] = []
    n_ranks = 1 + max(plan.ranks, default=0)
    sent, received = np.zeros(n_ranks, np.int64), np.zeros(n_ranks, np.int64)
    alone, loads = np.zeros(n_ranks, np.int64), np.zeros((plan.turns.n_rounds, n_ranks), np.int64)
    components = _Components(n_ranks)
    bound = 0
    faults += _numbers(plan)
    if not faults:
        faults += side_faults(plan)
    for number, pair in enumerate(() if faults else plan.pairs):
        faults += _senders(pair)
        if not faults:
            faults += _content(pair)
        faults += _turns(plan.turns, number, pair)
        if faults:
            continue
        bound += _needed(pair)
        _count(plan.turns, number, pair, sent, received, loads)
        _only(pair, alone, components)
    got = int(received.sum())
    if got != bound:
        faults.append(f"ranks receive {got} bytes; they lack {bound}")
    worst = int(loads.max(initial=0))
    if plan.limit_bytes is not None and worst > plan.limit_bytes:
        where, rank = np.unravel_index(int(np.argmax(loads)), loads.shape)
        faults.append(
            f"rank {rank} sends and receives {worst} bytes in round {where}; the limit is {plan.limit_bytes}"
        )
    busiest = loads.max(axis=1, initial=0)
    if not faults and not np.array_equal(busiest, plan.turns.busiest):
        k = int(np.argmax(busiest != plan.turns.busiest))
        faults.append(
            f"the busiest rank of round {k} has {busiest[k]} bytes; the plan says {plan.turns.busiest[k]}"
        )
    least = max(int(alone.max(initial=0)), components.mean(sent))
    most = int(sent.max(initial=0))
    return RefitCertificate(
        "refuted" if faults else "proved", sum(len(pair.names) for pair in plan.pairs), len(plan.pairs), got,
        bound, worst, most / least if least else 1.0, tuple(faults),
    )  # fmt: skip


# Content


def _content(pair: Any) -> Iterator[str]:
    """Judge the records of every kind of target tile, with every kind of source tile that sends."""
    meeting = pair.meeting
    senders = _used(pair)
    name, shape = pair.names[0], pair.shape
    source = _boxes(name, shape, meeting.source, meeting.itemsizes[0])
    target = _boxes(name, shape, meeting.target, meeting.itemsizes[1])
    for tile in range(len(meeting.target)):
        atoms = np.unique(pair.atom[pair.target.tile[pair.slot] == tile]).tolist()
        kinds = [senders[tile, atom] for atom in atoms]
        written: dict[int, Any] = {}
        for k in range(max(map(len, kinds), default=0)):
            rows = []
            for atom, tiles in zip(atoms, kinds, strict=True):
                sender = tiles[min(k, len(tiles) - 1)]
                records = meeting.records(tile, atom, sender)
                rows += _runs(records, sender, tile, pair.wire)
                covered = _covered(records, meeting.itemsizes[1])
                if written.setdefault(atom, covered) != covered:
                    yield f"{name!r}: copies of a part are written to different places"
            only = Boxes(target.tensors, target.names, target.ranks, target.sizes,
                         target.rows[target.rows["buffer"] == tile])  # fmt: skip
            verdict = check_runs(rows, source, only)
            if not verdict.is_right:
                yield f"{verdict.faults[0]} (tensors as {name!r})"
                return


def _used(pair: Any) -> dict[tuple[int, int], list[int]]:
    """The kinds of source tiles that send each atom to each kind of target tile."""
    tiles = pair.source.tile[pair.sender]
    wants = pair.target.tile[pair.slot]
    out: dict[tuple[int, int], list[int]] = {}
    key = wants * (1 + int(pair.atom.max(initial=0))) + pair.atom
    for value in np.unique(key).tolist():
        columns = np.flatnonzero(key == value)
        where = int(wants[columns[0]]), int(pair.atom[columns[0]])
        out[where] = np.unique(tiles[:, columns]).tolist()
    return out


def _boxes(name: str, shape: Sequence[int], tiles: Sequence[Any], itemsize: int) -> Boxes:
    """A buffer for each tile, as long as its last element needs, on a rank of its own."""
    buffers, rows = [], []
    for number, tile in enumerate(tiles):
        end = 0
        for box in tile:
            for one in itertools.product(*(range(len(ranges.lo)) for ranges in box)):
                offset = sum(int(r.at[k]) for r, k in zip(box, one, strict=True))
                sizes = [int(r.n[k]) for r, k in zip(box, one, strict=True)]
                lo = [int(r.lo[k]) for r, k in zip(box, one, strict=True)]
                steps = [r.step for r in box]
                rows.append((number, name, lo, sizes, offset, steps, itemsize))
                far = sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
                end = max(end, offset + far + itemsize)
        buffers.append((number, name, end))
    return Boxes.of({name: shape}, buffers, rows)


def _runs(records: Any, source: int, target: int, wire: int) -> list[tuple[int, ...]]:
    return [
        (0, source, a, target, b, n * wire, count, s, t)
        for a, b, n, count, s, t in zip(
            *(column.tolist() for column in records.columns), strict=True
        )
    ]


def _covered(records: Any, itemsize: int) -> tuple[bytes, bytes]:
    """The bytes of the target that records write: starts and ends of what is written together."""
    first = np.repeat(records.target, records.count)
    number = np.arange(len(first)) - np.repeat(
        np.cumsum(records.count) - records.count, records.count
    )
    first = first + number * np.repeat(records.target_step, records.count)
    last = first + np.repeat(records.elems, records.count) * itemsize
    first, last = np.sort(first), np.sort(last)
    apart = np.flatnonzero(first[1:] != last[:-1])
    return first[np.append(0, apart + 1)].tobytes(), last[np.append(apart, len(last) - 1)].tobytes()


# Senders and turns


def _numbers(plan: Any) -> Iterator[str]:
    """Numbers of pairs, tensors, requests, rounds, slices and senders that name nothing."""
    turns = plan.turns
    for pair in plan.pairs:
        if _beyond(pair.sender, len(pair.source.tile)):
            yield f"{pair.names[0]!r}: a sender is not among its holders"
    if _beyond(turns.pair, len(plan.pairs)) or _beyond(turns.round, turns.n_rounds):
        yield "a turn is of no tensor, or of no round"
        return
    sizes = [(len(pair.names), 1 + pair.n_requests) for pair in plan.pairs]
    names, requests = np.array(sizes, dtype=np.int64).reshape(-1, 2)[turns.pair].T
    ends = (turns.instance, names), (turns.first, requests), (turns.last, requests)
    if any(_beyond(given, end) for given, end in (*ends, (turns.slice, turns.slices))):
        yield "a turn is of no tensor, or of requests that there are not"


def _beyond(numbers: Any, end: Any) -> bool:
    return bool(((numbers < 0) | (numbers >= end)).any())


def _senders(pair: Any) -> Iterator[str]:
    """Slots whose tiles do not hold what they shall send."""
    holds = np.zeros((len(pair.meeting.holders), len(pair.meeting.source)), dtype=np.bool_)
    for atom, tiles in enumerate(pair.meeting.holders):
        holds[atom, list(tiles)] = True
    wrong = np.argwhere(~holds[pair.atom[None], pair.source.tile[pair.sender]])
    if len(wrong):
        instance, request = wrong[0].tolist()
        rank = pair.source.ranks[pair.source.rank_row[instance], pair.sender[instance, request]]
        yield f"{pair.names[instance]!r}: rank {rank} shall send a part that it does not hold"
        return
    for matrix in (pair.source, pair.target):
        for ranks in matrix.ranks:
            entries = matrix.entry
            if len(np.unique(np.stack([ranks, entries]), axis=1).T) != len(ranks):
                yield f"{pair.names[0]!r}: a rank stands twice among the holders of a tensor"
                return


def _turns(turns: Any, number: int, pair: Any) -> Iterator[str]:
    """Whether every request of every instance has its turn once."""
    own = np.flatnonzero(turns.pair == number)
    instance = turns.instance[own]
    whole = (
        (turns.slices[own] == 1) & (turns.first[own] == 0) & (turns.last[own] == pair.n_requests)
    )
    times = np.bincount(instance[whole], minlength=len(pair.names))
    cut = own[~whole]
    for one in np.unique(turns.instance[cut]).tolist():
        rows = cut[turns.instance[cut] == one]
        parts = zip(*(column[rows].tolist() for column in
                      (turns.first, turns.last, turns.slices, turns.slice)), strict=True)  # fmt: skip
        at = 0
        for (first, last, slices), found in itertools.groupby(sorted(parts), key=lambda p: p[:3]):
            if first != at or [p[3] for p in found] != list(range(slices)):
                yield f"{pair.names[one]!r}: its slices are not all there once"
                return
            at = last
        if at == pair.n_requests:
            times[one] += 1
    wrong = np.flatnonzero(times != 1)
    if len(wrong):
        yield f"{pair.names[int(wrong[0])]!r} has {int(times[wrong[0]])} turns instead of one"


# Bytes


def _needed(pair: Any) -> int:
    """Bytes that ranks lack: volumes of boxes, less what they share with boxes of the same rank."""
    volumes = [sum(_volume(box) for box in tile) for tile in pair.meeting.target]
    shared: dict[tuple[int, tuple[int, ...]], int] = {}
    total = 0
    rows = np.stack([pair.source.rank_row, pair.target.rank_row], axis=1)
    different, counts = np.unique(rows, axis=0, return_counts=True)
    for (a, b), n in zip(different.tolist(), counts.tolist(), strict=True):
        has: dict[int, list[int]] = {}
        for rank, tile in zip(
            pair.source.ranks[a].tolist(), pair.source.tile.tolist(), strict=True
        ):
            has.setdefault(rank, []).append(tile)
        for rank, tile in zip(
            pair.target.ranks[b].tolist(), pair.target.tile.tolist(), strict=True
        ):
            lacks = volumes[tile]
            if rank in has:
                key = (tile, tuple(has[rank]))
                if key not in shared:
                    shared[key] = _shared(
                        pair.meeting.target[tile], [pair.meeting.source[s] for s in key[1]]
                    )
                lacks -= shared[key]
            total += n * lacks * min(pair.meeting.itemsizes)
    return total


def _volume(box: Any) -> int:
    return math.prod(int(ranges.n.sum()) for ranges in box)


def _shared(tile: Any, others: Sequence[Any]) -> int:
    """Elements of a tile that one of others has: all boxes over a grid of their edges."""
    boxes = [box for other in others for box in other]
    total = 0
    for box in tile:
        edges, inside = [], []
        for d, ranges in enumerate(box):
            every = [e for b in (box, *boxes) for e in (b[d].lo, b[d].lo + b[d].n)]
            edges.append(np.unique(np.concatenate(every)))
            inside.append(_within(ranges, edges[-1]))
        grid = np.zeros([len(e) - 1 for e in edges], dtype=np.bool_)
        for other in boxes:
            grid[np.ix_(*(_within(r, e) for r, e in zip(other, edges, strict=True)))] = True
        sizes = np.ones(grid.shape, dtype=np.int64)
        for d, (e, has) in enumerate(zip(edges, inside, strict=True)):
            shape = [1] * len(box)
            shape[d] = -1
            sizes *= (np.diff(e) * has).reshape(shape)
        total += int(sizes[grid].sum())
    return total


def _within(ranges: Any, edges: Ints) -> Any:
    """Which gaps between edges ranges have."""
    row = np.searchsorted(ranges.lo, edges[:-1], side="right") - 1
    return (row >= 0) & (edges[:-1] < ranges.lo[row] + ranges.n[row])


def _count(turns: Any, number: int, pair: Any, sent: Ints, received: Ints, loads: Ints) -> None:
    """Add up what ranks send and receive, in all and in each round."""
    n_bytes = pair.elems * pair.wire
    own = np.flatnonzero(turns.pair == number)
    for rows in np.array_split(own, max(1, len(own) * pair.n_requests // 2**22)):
        instance = turns.instance[rows]
        ranks = pair.source.ranks[pair.source.rank_row[instance]]
        sender = np.take_along_axis(ranks, pair.sender[instance].astype(np.int64), axis=1)
        receiver = pair.target.ranks[pair.target.rank_row[instance]][:, pair.slot]
        request = np.arange(pair.n_requests)
        inside = (turns.first[rows, None] <= request) & (request < turns.last[rows, None])
        moved = inside & (sender != receiver)
        slices = turns.slices[rows, None]
        done = (
            pair.elems // slices * turns.slice[rows, None]
            + pair.elems % slices * turns.slice[rows, None] // slices
        )
        after = turns.slice[rows, None] + 1
        ends = pair.elems // slices * after + pair.elems % slices * after // slices
        part = np.where(slices == 1, n_bytes, (ends - done) * pair.wire)
        weights = part[moved].astype(np.float64)
        in_round = np.broadcast_to(turns.round[rows, None], moved.shape)[moved]
        for ranks_of, totals in ((sender, sent), (receiver, received)):
            where = in_round * loads.shape[1] + ranks_of[moved]
            found = np.bincount(where, weights, loads.size).astype(np.int64).reshape(loads.shape)
            loads += found
            totals += found.sum(axis=0)


# Balance


class _Components:
    """Ranks that hold parts of one tensor, and of others with them: nobody else can send for them."""

    def __init__(self, n_ranks: int) -> None:
        self.least = np.arange(n_ranks)
        self.seen = np.zeros(n_ranks, dtype=np.bool_)

    def join(self, ranks: Ints) -> None:
        self.seen[ranks] = True
        low = np.unique(self.least[ranks])
        if len(low) > 1:
            self.least[np.isin(self.least, low)] = low[0]

    def mean(self, sent: Ints) -> int:
        """The largest mean of what ranks send that hang together."""
        best = 0
        for low in np.unique(self.least[self.seen]).tolist():
            own = self.seen & (self.least == low)
            best = max(best, -(-int(sent[own].sum()) // int(own.sum())))
        return best


def _only(pair: Any, alone: Ints, components: _Components) -> None:
    """Bytes that one rank alone holds and another needs; ranks that hang together."""
    n_bytes = pair.elems * pair.wire
    rows = np.stack([pair.source.rank_row, pair.target.rank_row], axis=1)
    different, counts = np.unique(rows, axis=0, return_counts=True)
    for (a, b), n in zip(different.tolist(), counts.tolist(), strict=True):
        ranks, needing = pair.source.ranks[a], pair.target.ranks[b]
        components.join(ranks)
        for atom, tiles in enumerate(pair.meeting.holders):
            holding = np.unique(ranks[np.isin(pair.source.tile, tiles)])
            if len(holding) == 1:
                wants = pair.atom == atom
                away = needing[pair.slot[wants]] != holding[0]
                alone[holding[0]] += n * int(n_bytes[wants][away].sum())
