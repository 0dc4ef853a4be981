"""Run one stage of a transfer: the same phase of all its arrays, over whatever joins the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import identity
from redist.runtime.copies.strided import c_strides, canonical
from redist.runtime.host.datatypes import post
from redist.runtime.host.staging import Staging
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import abandon
from redist.runtime.ranks.world import (
    DISAGREE,
    SAME,
    Disagreement,
    World,
)
from redist.runtime.schedule.compiler import (
    NOTHING,
    POOL,
    PRIVATE,
    SHARED,
    Bases,
    Compiler,
    Round,
    TypedPieces,
)
from redist.runtime.schedule.pieces import Piece
from redist.runtime.schedule.rounds import Rounds, part_elems, whole
from redist.runtime.shm.pages import release_pages
from redist.runtime.shm.segments import Handle, find

AnyArray = NDArray[Any]
Strides = tuple[tuple[int, ...], ...]
Kinds = dict[tuple[int, int], int]

SMALL_BYTES = 32768
"""Tiles up to this size pass through the pool even where they could be read in place, if few rounds
suffice: that takes two meetings as well, and a script, but only for the arrays of the call before."""
FEW_ROUNDS = 4
READ_BYTES = 2**18
"""Smaller tiles are not read from a neighbour's private memory, for the same reason."""
READ_RUN_BYTES = 4096
"""Nor are runs shorter than this: every run costs the kernel time."""
READ_RUNS = 16
"""Unless there are so few that rounds through the pool would cost more."""
MOST_ROUNDS = 64
"""Programs of more rounds are not kept: their tables would outgrow the staging that rounds save."""
REMEMBERED = 16
"""Programs that a stage keeps: one for each kind of request and memory layout."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """Strides of the arrays of a call; empty where there is none."""

    sources: Strides
    targets: Strides


@dataclass(frozen=True, slots=True, eq=False)
class StageRecord:
    """How a call went, to be repeated: see :mod:`redist.runtime.host.recorded`."""

    flag: int
    strides: Layouts
    rounds: tuple[Round, ...]
    kinds: Kinds
    in_place: bool
    descriptions: dict[int, NDArray[np.int64]]


class Stage:
    """A prepared stage. Making one is **collective**."""

    def __init__(
        self,
        world: World,
        loads: Sequence[TypedPieces],
        staging_bytes: int,
        is_limited: bool,
        timeout_s: float | None,
    ) -> None:
        self.world = world
        self.loads = tuple(loads)
        self.is_local = all(load.phase.is_local for load in loads)
        self.bases = Bases(len(loads), world.node)
        self.whole = whole(len(loads))
        self._programs: dict[Any, tuple[Round, ...]] = {}
        self._first: dict[Any, CopyList] = {}
        self.last: StageRecord | None = None
        self.trims = is_limited
        self._held: Any = None
        self.gives_back: list[AnyArray] = []
        self._table = np.zeros(self.bases.size, dtype=np.uintp)
        self.staging = Staging.none(len(loads))
        if not self.is_local:
            self.staging = Staging.of(world, loads, staging_bytes, is_limited, timeout_s)
        self._readable = [self._is_readable(load) for load in loads]

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that this stage needs: two slots."""
        return 2 * self.staging.slot_bytes

    # Preparing

    def _is_readable(self, load: TypedPieces) -> bool:
        """Whether reading this rank's private tile piece by piece is quick."""
        if not self.world.reads_memory or any(p.order for p in load.phase.pieces):
            return False
        given = [p for p in load.phase.pieces if p.sender == self.world.rank != p.receiver]
        runs = [_run_bytes(p, load.itemsize) for p in given]
        if len(self.staging.rounds) > MOST_ROUNDS or all(n >= READ_RUN_BYTES for n in runs):
            return True
        pairs = zip(given, runs, strict=True)
        n_runs = sum(part_elems(p.shape, 1) * load.itemsize // n_bytes for p, n_bytes in pairs)
        return n_runs <= READ_RUNS * len(self.staging.rounds)

    # Running

    def run(
        self,
        word: int,
        sources: Sequence[AnyArray | None],
        targets: Sequence[AnyArray | None],
        staging: tuple[AnyArray, AnyArray],
        timeout_s: float | None,
    ) -> bool:
        """Move; whether anyone reads a neighbour's array in place (and must be waited for).

        Raises :class:`Disagreement` after the first meeting if a rank came with another word.
        """
        world, bases, table = self.world, self.bases, self._table
        self._held = (sources, targets, staging)
        strides = Layouts(
            tuple([() if s is None else s.strides for s in sources]),
            tuple([() if t is None else t.strides for t in targets]),
        )
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if target is not None:
                table[bases.target(item)] = address_of(target)
                if self.loads[item].phase.fills:
                    dtype = self.loads[item].dtype
                    blank = identity(self.loads[item].phase.op or "", dtype)
                    target.view(dtype.to_numpy())[...] = blank
            if source is not None:
                table[bases.source(item)] = address_of(source)
        if self.is_local:
            rounds = tuple(self._program(self.whole, {}, strides))
            rounds[0].copies.run(table)
            self.last = StageRecord(0, strides, rounds, {}, False, {})
            self._held = None
            return False
        kinds = self._kinds(sources)
        flag = int(SHARED in kinds or PRIVATE in kinds)
        parity = (world.seq + 1) & 1
        table[bases.send], table[bases.receive] = map(address_of, staging)
        table[bases.pool] = world.boards[world.rank].slot(parity, self.staging.slot_bytes)
        if POOL in kinds:
            world.touched_bytes = max(world.touched_bytes, self.staging.slot_bytes)
            self._stage_first(tuple(kinds), strides)
        if flag:
            self._describe(kinds, sources, parity)
        in_place = self.go_on(world.meet(word, flag, timeout_s), flag, strides, timeout_s)
        self._held = None
        return in_place

    def go_on(self, met: int, flag: int, strides: Layouts, timeout_s: float | None) -> bool:
        """What follows the first meeting."""
        if met == DISAGREE:
            self.gives_back.clear()
            raise Disagreement
        world = self.world
        if self.trims:  # all have come, so nobody reads what passed before
            world.trim(self.staging.slot_bytes)
        while self.gives_back:  # and nothing can be wrong with the request any more
            release_pages(self.gives_back.pop())
        parity = world.seq & 1
        found = self._look(parity, met == SAME and not flag)
        pooled = not world.one_node or any(kind == POOL for kind in found.values())
        rounds = self._program(self.staging.rounds if pooled else self.whole, found, strides)
        described = {
            rank: world.boards[rank].descriptions[parity][:1].copy()
            for rank in world.node
            if found[rank, 0] in (SHARED, PRIVATE)
        }
        self._run_rounds(rounds, found, timeout_s)
        self.last = None
        in_place = any(kind in (SHARED, PRIVATE) for kind in found.values())
        if isinstance(rounds, tuple):
            self.last = StageRecord(flag, strides, rounds, found, in_place, described)
        return in_place

    def _kinds(self, sources: Sequence[AnyArray | None]) -> list[int]:
        """Where the neighbours shall find this rank's tiles."""
        few = len(self.staging.rounds) <= FEW_ROUNDS
        kinds = []
        for item, source in enumerate(sources):
            kind = NOTHING
            if source is not None and self.staging.exports[self.world.rank, item]:
                kind = POOL
                n_bytes = source.nbytes
                if not (few and n_bytes <= SMALL_BYTES) and source.flags.c_contiguous:
                    if find(source) is not None:
                        kind = SHARED
                    elif self._readable[item] and not (few and n_bytes <= READ_BYTES):
                        kind = PRIVATE
            kinds.append(kind)
        return kinds

    def _describe(self, kinds: list[int], sources: Sequence[AnyArray | None], parity: int) -> None:
        """Tell the neighbours where this rank's tiles are found."""
        rows = self.world.boards[self.world.rank].descriptions[parity]
        for item, (kind, source) in enumerate(zip(kinds, sources, strict=True)):
            place = (0, 0, 0, 0)
            if kind == SHARED and source is not None:
                found = find(source)
                assert found is not None
                handle, offset = found
                place = (handle.fd, handle.number, handle.n_bytes, offset)
            elif kind == PRIVATE and source is not None:
                place = (0, 0, 0, address_of(source))
            rows[item, :5] = (kind, *place)

    def _look(self, parity: int, all_pooled: bool) -> Kinds:
        """Where every neighbour's tiles are found; their addresses go into the table."""
        world, n = self.world, len(self.loads)
        kinds: Kinds = {}
        world.forget_segments()
        for rank in world.node:
            board = world.boards[rank]
            described = not all_pooled and world.flag_of(rank)
            for item in range(n):
                kind = POOL if self.staging.exports[rank, item] else NOTHING
                if described:
                    kind = int(board.descriptions[parity][item, 0])
                kinds[rank, item] = kind
                place = board.slot(parity, self.staging.slot_bytes)
                if kind in (SHARED, PRIVATE) and rank != world.rank:
                    fd, number, n_bytes, place = board.descriptions[parity][item, 1:5].tolist()
                    if kind == SHARED:
                        handle = Handle(world.pids[rank], fd, number, n_bytes)
                        place += address_of(world.map_segment(rank, handle))
                self._table[self.bases.neighbour(rank, item)] = place
        return kinds

    def _stage_first(self, kinds: tuple[int, ...], strides: Layouts) -> None:
        """Stage the first round before it is known what the others do."""
        moves = self._first.get((kinds, strides))
        if moves is None:
            own = {(self.world.rank, item): kind for item, kind in enumerate(kinds)}
            moves = self._compiler(own, strides).staging(self.staging.rounds[0])
            self._first[kinds, strides] = moves
        moves.run(self._table)

    def _run_rounds(self, rounds: Iterable[Round], kinds: Kinds, timeout_s: float | None) -> None:
        world, table = self.world, self._table
        for number, round_ in enumerate(rounds):
            if number:
                parity = (world.seq + 1) & 1
                for (rank, item), kind in kinds.items():
                    slot = world.boards[rank].slot(parity, self.staging.slot_bytes)
                    if kind == POOL:
                        table[self.bases.neighbour(rank, item)] = slot
                    if rank == world.rank:
                        table[self.bases.pool] = slot
                round_.stage.run(table)
            requests = self._post(round_)
            if number:
                world.meet_node(timeout_s)
            self._fetch(round_, requests, timeout_s)

    def _post(self, round_: Round) -> list[Any]:
        comm, table = self.world.comm, self._table
        requests = [post(comm.Irecv, m, table, Tag.DATA) for m in round_.receives]
        round_.pack.run(table)
        requests += [post(comm.Isend, m, table, Tag.DATA) for m in round_.sends]
        return requests

    def _fetch(self, round_: Round, requests: list[Any], timeout_s: float | None) -> None:
        table = self._table
        if requests and round_.combines:
            self._wait(round_, requests, timeout_s)
            requests = []
        round_.copies.run(table)
        for rank, moves in round_.reads:
            moves.read(self.world.pids[rank], table)
        if requests:
            self._wait(round_, requests, timeout_s)
        round_.unpack.run(table)
        for combine in round_.combines:
            combine.run(table)

    def _wait(self, round_: Round, requests: list[Any], timeout_s: float | None) -> None:
        """Wait for messages; after a failure none may be written into arrays that are others' again."""
        try:
            self.world.wait(requests, timeout_s)
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(requests[: len(round_.receives)], requests, self._held)
            raise

    def _program(self, rounds: Rounds, kinds: Kinds, strides: Layouts) -> Iterable[Round]:
        if len(rounds) > MOST_ROUNDS:
            compiler = self._compiler(kinds, strides)
            return (compiler.round(turns) for turns in rounds)
        key = rounds is self.whole, tuple(kinds.values()), strides
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= REMEMBERED:
                self._programs.clear()
            compiler = self._compiler(kinds, strides)
            found = self._programs[key] = tuple(compiler.round(turns) for turns in rounds)
        return found

    def _compiler(self, kinds: Kinds, strides: Layouts) -> Compiler:
        room = self.staging.send_bytes, self.staging.receive_bytes
        me, offsets = self.world.rank, self.staging.offsets
        return Compiler(
            me, self.loads, self.bases, kinds, offsets, strides.sources, strides.targets, room
        )

    # Repeating a call by a script

    def take_over(self, table: NDArray[np.uintp]) -> None:
        """Go on the long way from where a script has come."""
        self._table[:] = table

    def tables(self, call: StageRecord) -> tuple[NDArray[np.uintp], NDArray[np.uintp]]:
        """The base addresses of a call, for even and for odd meetings."""
        world = self.world
        tables = self._table.copy(), self._table.copy()
        for parity, table in enumerate(tables):
            for rank in world.node:
                slot = world.boards[rank].slot(parity, self.staging.slot_bytes)
                for item in range(len(self.loads)):
                    if call.kinds.get((rank, item)) == POOL:
                        table[self.bases.neighbour(rank, item)] = slot
                if rank == world.rank:
                    table[self.bases.pool] = slot
        return tables


def _run_bytes(piece: Piece, itemsize: int) -> int:
    form = canonical(
        piece.shape,
        itemsize,
        c_strides(piece.dst_shape, itemsize),
        c_strides(piece.src_shape, itemsize),
    )
    return form.block
