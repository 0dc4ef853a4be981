"""A rank's runs as copies and messages: compiled once, for all tensors or for those that changed.

Buffers have numbers, and a table of addresses comes with every refit, because weights may arrive
elsewhere each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.dtype import DType
from redist.runtime.refit.copies import BLOCKS, FIRST, Blocks, Copies
from redist.runtime.schedule.compiler import Message

Ints = NDArray[np.int64]
Runs = NDArray[Any]
"""Records of :data:`redist.refits.runs.RUN`."""

DIRECT_BYTES = 2**20
"""Runs from this size on are messages of their own; one that is in one piece goes out of its tile, or
straight into it, without staging."""


class Buffers:
    """Numbers of buffers: staging, tiles of this rank by number, staging and tiles of others.

    >>> buffers = Buffers(n_sources=3, n_targets=2, n_ranks=4)
    >>> buffers.source(0), buffers.target(0), buffers.staged(1), buffers.far(0)
    (4, 7, 10, 13)
    """

    SEND, RECEIVE = FIRST, FIRST + 1

    def __init__(self, n_sources: int, n_targets: int, n_ranks: int) -> None:
        self._source = FIRST + 2
        self._target = self._source + n_sources
        self._staged = self._target + n_targets
        self._far = self._staged + n_ranks

    def source(self, number: Any) -> Any:
        """A source tile of this rank, or several."""
        return self._source + number

    def target(self, number: Any) -> Any:
        """Where weights arrive."""
        return self._target + number

    def staged(self, rank: Any) -> Any:
        """What a neighbour has packed for this rank."""
        return self._staged + rank

    def far(self, number: Any) -> Any:
        """Tiles of neighbours, numbered as they are found; the number of all is the size of the table."""
        return self._far + number


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of both sides: distinct ones, and which of them every stored tensor has."""

    known: tuple[DType, ...]
    sizes: Ints
    source: Ints
    target: Ints

    @staticmethod
    def of(sources: Sequence[DType], targets: Sequence[DType]) -> Dtypes:
        """Number the dtypes of the stored tensors of both sides."""
        known = tuple(dict.fromkeys([*sources, *targets]))
        place = {dtype: k for k, dtype in enumerate(known)}
        numbered = [np.array([place[one] for one in side], np.int64) for side in (sources, targets)]
        sizes = np.array([dtype.itemsize for dtype in known] or [1], np.int64)
        return Dtypes(known, sizes, *numbered)

    def wire(self, sources: Ints, targets: Ints) -> Ints:
        """The dtypes on the wire: the narrower ones, the target's where both are as wide."""
        return np.where(self.sizes[targets] <= self.sizes[sources], targets, sources)


@dataclass(frozen=True, slots=True)
class Ways:
    """How blocks travel between this rank and others.

    It writes tiles of the peers in ``push`` and reads those in ``pull``; ``tiles`` numbers both by peer
    and tensor. Peers in ``taken`` read its own, those in ``given`` write them. All others exchange messages.
    With ``by_memory`` a neighbour reads these where they were packed, one for each peer and round; else
    large runs are messages of their own, which go out of tiles and into them if they may be ``direct``.
    """

    push: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    pull: frozenset[int] = frozenset()
    given: frozenset[int] = frozenset()
    tiles: Mapping[tuple[int, int], int] = field(default_factory=dict)
    by_memory: bool = False
    direct: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class RefitRound:
    """What a rank does in one round: pack, send and receive, take apart.

    ``areas`` says where in the staging begins what is packed for each rank.
    """

    number: int
    pack: Copies
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    unpack: Copies
    areas: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All that a rank does in a refit: copies straight between tiles, then rounds.

    Of ``staging_bytes`` what is sent in a round takes the beginning, at most ``send_bytes``, and what is
    received the rest. ``written`` has the bytes that arrive in each target tile; ``arrivals`` the blocks
    that do, as they lie in tiles: ``dst`` is the number of a tensor, and nothing is said of where they
    come from.
    """

    straight: Copies
    rounds: tuple[RefitRound, ...]
    send_bytes: int
    staging_bytes: int
    written: dict[int, int]
    arrivals: Blocks


@dataclass(frozen=True, slots=True)
class Compiler:
    """Turns the runs of a rank into a program. With ``waits`` copies of a GPU are waited for, one by one."""

    rank: int
    dtypes: Dtypes
    buffers: Buffers
    ways: Ways
    on_gpu: bool = False
    waits: bool = False

    def program(self, sends: Runs, receives: Runs) -> Program:
        """The program of the runs that a rank sends and receives."""
        ways, me = self.ways, {self.rank}
        pushed = np.isin(sends["peer"], list(ways.push))
        pulled = np.isin(receives["peer"], list(ways.pull))
        own = receives["peer"] == self.rank
        straight = np.concatenate(
            [
                self._local(receives[own]),
                self._between(sends[pushed], sending=True),
                self._between(receives[pulled], sending=False),
            ]
        )
        order = np.lexsort((straight["src_offset"], straight["src"]))
        quiet_out = np.isin(sends["peer"], list(ways.push | ways.taken | me))
        quiet_in = np.isin(receives["peer"], list(ways.pull | ways.given | me))
        out = self._packed(sends[~quiet_out], sending=True)
        into = self._packed(receives[~quiet_in], sending=False, before=out.staged_by_round)
        rounds = [
            RefitRound(
                number, out.copies(number), out.messages(number), into.messages(number),
                into.copies(number), out.areas(number),
            )
            for number in sorted({*out.numbers, *into.numbers})
        ]  # fmt: skip
        arrivals = self._blocks(receives, sending=False)
        self._own_end(arrivals, receives, sending=False)
        arrivals["dst"] = receives["tensor"]
        totals = np.zeros(len(self.dtypes.target), np.int64)
        n_bytes = arrivals["elems"] * arrivals["count"] * self.dtypes.sizes[arrivals["dst_type"]]
        np.add.at(totals, receives["tensor"], n_bytes)
        return Program(
            self.copies(straight[order], streams=True),
            tuple(rounds),
            out.staging_bytes,
            max(out.staging_bytes, into.staging_bytes),
            {int(k): int(totals[k]) for k in np.flatnonzero(totals)},
            arrivals,
        )

    def copies(self, blocks: Blocks, streams: bool = False) -> Copies:
        """Blocks, prepared for the memory that this rank's tiles lie in."""
        return Copies.of(blocks, self.dtypes.known, self.on_gpu, streams, self.waits)

    def _ends(self, runs: Runs, sending: bool) -> tuple[Ints, Ints]:
        """The dtypes of the source and of the target of runs."""
        mine, there = runs["tensor"], runs["there"]
        source, target = (mine, there) if sending else (there, mine)
        return self.dtypes.source[source], self.dtypes.target[target]

    def _blocks(self, runs: Runs, sending: bool) -> Blocks:
        wire = self.dtypes.wire(*self._ends(runs, sending))
        blocks = np.zeros(len(runs), BLOCKS)
        blocks["elems"], blocks["count"] = runs["bytes"] // self.dtypes.sizes[wire], runs["count"]
        return blocks

    def _own_end(self, blocks: Blocks, runs: Runs, sending: bool) -> None:
        """Write the end of blocks that lies in tiles of this rank."""
        side, base = ("src", self.buffers.source) if sending else ("dst", self.buffers.target)
        blocks[side] = base(runs["tensor"])
        blocks[f"{side}_offset"], blocks[f"{side}_step"] = runs["offset"], runs["step"]
        blocks[f"{side}_type"] = self._ends(runs, sending)[0 if sending else 1]

    def _far_end(self, blocks: Blocks, runs: Runs, sending: bool, numbers: Any) -> None:
        """Write the other end, in buffers of these numbers."""
        side = "dst" if sending else "src"
        blocks[side] = numbers
        blocks[f"{side}_offset"], blocks[f"{side}_step"] = runs["there_offset"], runs["there_step"]
        blocks[f"{side}_type"] = self._ends(runs, sending)[1 if sending else 0]

    def _local(self, runs: Runs) -> Blocks:
        """Copies within this rank."""
        blocks = self._blocks(runs, sending=False)
        self._own_end(blocks, runs, sending=False)
        self._far_end(blocks, runs, False, self.buffers.source(runs["there"]))
        return blocks

    def _between(self, runs: Runs, sending: bool) -> Blocks:
        """Copies into tiles of others, or out of them."""
        pairs = zip(runs["peer"].tolist(), runs["there"].tolist(), strict=True)
        far = np.array([self.ways.tiles[pair] for pair in pairs], np.int64)
        blocks = self._blocks(runs, sending)
        self._own_end(blocks, runs, sending)
        self._far_end(blocks, runs, sending, self.buffers.far(far))
        return blocks

    def _packed(
        self, runs: Runs, sending: bool, before: Mapping[int, int] | None = None
    ) -> _Packed:
        """Messages of one direction, and the blocks that are packed for them or unpacked from them.

        They are staged behind what the other direction has of a round, ``before``.
        """
        n_bytes = runs["bytes"] * runs["count"]
        position = np.zeros(len(runs), np.int64)
        if not self.ways.by_memory:
            large = n_bytes >= DIRECT_BYTES
            position[large] = 1 + np.flatnonzero(large)
        order = np.lexsort((position, runs["peer"], runs["round"]))
        runs, n_bytes, position = runs[order], n_bytes[order], position[order]
        source, target = self._ends(runs, sending)
        wire = self.dtypes.wire(source, target)
        in_one = (runs["count"] == 1) | (runs["step"] == runs["bytes"])
        direct = (position > 0) & in_one & ((source if sending else target) == wire)
        if not self.ways.direct:
            direct[:] = False
        starts = _starts(np.where(direct, 0, n_bytes), runs["round"])
        if before:
            numbers, which = np.unique(runs["round"], return_inverse=True)
            sizes = np.array([before.get(number, 0) for number in numbers.tolist()], np.int64)
            starts = starts + sizes[which]
        first = _firsts(runs["round"], runs["peer"], position)
        blocks = self._blocks(runs, sending)
        self._own_end(blocks, runs, sending)
        side = "dst" if sending else "src"
        blocks[side] = Buffers.SEND if sending else Buffers.RECEIVE
        blocks[f"{side}_offset"] = starts
        if self.ways.by_memory and not sending:
            sizes = np.diff([*first, len(runs)])
            blocks[side] = self.buffers.staged(runs["peer"])
            blocks[f"{side}_offset"] = starts - np.repeat(starts[first], sizes)
        blocks[f"{side}_step"], blocks[f"{side}_type"] = runs["bytes"], wire
        return _Packed(self, runs, blocks, n_bytes, first, direct, starts, sending)


def _starts(n_bytes: Ints, rounds: Ints) -> Ints:
    """Where what is staged begins, run by run: anew in every round."""
    ends = np.cumsum(n_bytes)
    starts = ends - n_bytes
    first = _firsts(rounds)
    return np.asarray(starts - np.repeat(starts[first], np.diff([*first, len(rounds)])))


def _firsts(*keys: Any) -> Ints:
    """Where keys, sorted, are not what they were before.

    >>> _firsts(np.array([0, 0, 1]), np.array([2, 3, 3])).tolist()
    [0, 1, 2]
    """
    table = np.stack(keys)
    new = np.ones(table.shape[1], bool)
    new[1:] = (table[:, 1:] != table[:, :-1]).any(axis=0)
    return np.flatnonzero(new)


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """One direction of all rounds: sorted runs, what is copied for them, and where it is staged.

    ``first`` are the first runs of all messages; a message that is ``direct`` is a single run.
    """

    compiler: Compiler
    runs: Runs
    blocks: Blocks
    n_bytes: Ints
    first: Ints
    direct: NDArray[np.bool_]
    starts: Ints
    sending: bool

    @property
    def numbers(self) -> list[int]:
        """The rounds in which there is anything."""
        return [int(number) for number in np.unique(self.runs["round"])]

    @property
    def staging_bytes(self) -> int:
        """Where what is staged ends, in the round that has most."""
        return int(np.max(self._ends, initial=0))

    @property
    def staged_by_round(self) -> dict[int, int]:
        """Where it ends in each round."""
        if not len(self.runs):
            return {}
        first = _firsts(self.runs["round"])
        ends = np.maximum.reduceat(self._ends, first)
        return dict(zip(self.runs["round"][first].tolist(), ends.tolist(), strict=True))

    @property
    def _ends(self) -> Ints:
        return np.asarray(self.starts + np.where(self.direct, 0, self.n_bytes))

    def _slice(self, number: int) -> slice:
        lo, hi = np.searchsorted(self.runs["round"], [number, number + 1])
        return slice(int(lo), int(hi))

    def copies(self, number: int) -> Copies:
        """What is copied between tiles and staging in a round."""
        at = self._slice(number)
        return self.compiler.copies(self.blocks[at][~self.direct[at]], streams=not self.sending)

    def messages(self, number: int) -> tuple[Message, ...]:
        """The messages of a round, in the order in which both ends start them."""
        at, buffers = self._slice(number), self.compiler.buffers
        lo, hi = np.searchsorted(self.first, [at.start, at.stop])
        first, staging = self.first[lo:hi], Buffers.SEND if self.sending else Buffers.RECEIVE
        if not len(first):
            return ()
        sizes = np.add.reduceat(self.n_bytes[: at.stop], first)
        tile = buffers.source if self.sending else buffers.target
        runs, direct = self.runs[first], self.direct[first]
        base = np.where(direct, tile(runs["tensor"]), staging)
        offset = np.where(direct, runs["offset"], self.starts[first])
        columns = (runs["peer"].tolist(), base.tolist(), offset.tolist(), sizes.tolist())
        return tuple(Message(*one) for one in zip(*columns, strict=True))

    def areas(self, number: int) -> tuple[tuple[int, int], ...]:
        """Peers of a round, and where in the staging begins what is for them."""
        at = self._slice(number)
        peers, first = np.unique(self.runs["peer"][at], return_index=True)
        return tuple(zip(peers.tolist(), self.starts[at][first].tolist(), strict=True))
