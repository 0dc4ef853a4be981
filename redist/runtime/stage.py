"""Run one stage of a transfer: the same phase of all its arrays, over whatever joins the ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from redist.runtime import program
from redist.runtime.datatypes import post
from redist.runtime.moves import Addresses, Moves, address_of
from redist.runtime.phases import Piece
from redist.runtime.program import NOTHING, POOL, READ, SHARED, Bases, Part, Round, compile_round
from redist.runtime.reduce import identity
from redist.runtime.rounds import Slab, make_rounds, whole
from redist.runtime.segments import Handle, find
from redist.runtime.strided import c_strides, canonical
from redist.runtime.world import LEAST_POOL_BYTES, TAG_DATA, Disagreement, World

Array = NDArray[Any]

SMALL_BYTES = 32768
"""Tiles up to this size pass through the pool even where they could be read in place: one meeting
less costs more than the copy."""
READ_RUN_BYTES = 4096
"""Shorter runs are not read from a neighbour's private memory: every run costs the kernel time."""
MAX_MESSAGE_BYTES = 2**29


@dataclass
class Counts:
    """What this rank did in a stage."""

    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    messages: int = 0
    rounds: int = 0
    ways: set[str] = field(default_factory=set)


class Stage:
    """A prepared stage. Making one is **collective** where ranks are on several nodes."""

    def __init__(self, world: World, parts: Sequence[Part], staging_bytes: int) -> None:
        self.world = world
        self.parts = tuple(parts)
        self.is_local = all(part.phase.is_local for part in parts)
        self.bases = Bases(len(parts), world.node)
        self.programs: dict[Any, tuple[Round, ...]] = {}
        self.exports = [self._exported(part) for part in parts]
        self.whole = whole([len(part.phase.src_tile) for part in parts])
        self.readable = [self._is_readable(part) for part in parts]
        self.slot_bytes = 0
        self.rounds = self.whole
        self.send_bytes = self.receive_bytes = 0
        if not self.is_local:
            self._plan_rounds(staging_bytes)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that this stage needs: two slots."""
        return 2 * self.slot_bytes

    def _exported(self, part: Part) -> bool:
        """Whether a neighbour reads this rank's tile."""
        me, node = self.world.rank, self.world.node
        return any(
            p.sender == me and p.receiver != me and p.receiver in node for p in part.phase.pieces
        )

    def _is_readable(self, part: Part) -> bool:
        """Whether reading this rank's private tile piece by piece is quick."""
        if not self.world.reads_memory or any(p.order for p in part.phase.pieces):
            return False
        return all(
            _run_bytes(p, part.itemsize) >= READ_RUN_BYTES
            for p in part.phase.pieces
            if p.sender == self.world.rank != p.receiver
        )

    def _plan_rounds(self, staging_bytes: int) -> None:
        """Choose rounds so that a pool slot, and what passes between nodes, stay within staging.

        Between nodes, copies that find no room in staging go by MPI's datatypes; partial values that
        are to be combined must find it, so slots are small enough for those of all their senders.
        """
        world = self.world
        tiles = [(part.phase.src_tile, part.itemsize) for part in self.parts]
        budget = max(staging_bytes, LEAST_POOL_BYTES)
        if world.one_node:
            self.slot_bytes = budget // 2
            self.rounds = make_rounds(tiles, self.slot_bytes)
            return
        shared = any(world.groups.count(group) > 1 for group in world.groups)
        share = budget // 2 if shared else budget
        senders = {
            (piece.sender, item)
            for item, part in enumerate(self.parts)
            for piece in part.phase.pieces
            if piece.receiver == world.rank and piece.order and piece.sender not in world.node
        }
        most = world.comm.allreduce(len(senders), op=MPI.MAX)
        slot = min(share // 2 // max(1, most), MAX_MESSAGE_BYTES)
        self.rounds = make_rounds(tiles, slot)
        self.slot_bytes = slot if shared else 0
        self.send_bytes = self.receive_bytes = share // 2

    def _compile(
        self,
        rounds: Sequence[Sequence[Slab]],
        kinds: dict[tuple[int, int], int],
        src_strides: Sequence[tuple[int, ...]],
        dst_strides: Sequence[tuple[int, ...]],
    ) -> tuple[Round, ...]:
        me, room = self.world.rank, (self.send_bytes, self.receive_bytes)
        return tuple(
            compile_round(me, self.parts, slabs, self.bases, kinds, src_strides, dst_strides, room)
            for slabs in rounds
        )

    # Running

    def run(
        self,
        word: int,
        sources: Sequence[Array | None],
        targets: Sequence[Array | None],
        staging: tuple[Array, Array],
        timeout_s: float | None,
        counts: Counts,
    ) -> bool:
        """Move; whether anyone reads a neighbour's array in place (and must be waited for).

        Raises :class:`Disagreement` after the first meeting if a rank came with another word.
        """
        start = time.perf_counter()
        bases = self.bases
        self._fill(targets)
        table = program.table(bases)
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if target is not None:
                table[bases.target(item)] = address_of(target)
            if source is not None:
                table[bases.source(item)] = address_of(source)
        table[bases.send], table[bases.receive] = map(address_of, staging)
        src_strides = tuple(() if s is None else s.strides for s in sources)
        dst_strides = tuple(() if t is None else t.strides for t in targets)
        in_place = False
        if self.is_local:
            (round_,) = self._program(self.whole, (), src_strides, dst_strides)
            round_.copies.run(table)
        else:
            in_place = self._run_rounds(
                word, sources, table, src_strides, dst_strides, timeout_s, counts
            )
        counts.seconds += time.perf_counter() - start
        return in_place

    def _fill(self, targets: Sequence[Array | None]) -> None:
        for part, target in zip(self.parts, targets, strict=True):
            if target is not None and part.phase.fills:
                assert part.phase.op is not None
                target[...] = identity(part.phase.op, part.dtype)

    def _run_rounds(
        self,
        word: int,
        sources: Sequence[Array | None],
        table: Addresses,
        src_strides: tuple[tuple[int, ...], ...],
        dst_strides: tuple[tuple[int, ...], ...],
        timeout_s: float | None,
        counts: Counts,
    ) -> bool:
        world = self.world
        mine = self._describe(sources)
        first: tuple[Round, ...] | None = None
        slot = self._slot(table, world.rank)
        if POOL in mine:  # stage the first round before it is known what the others do
            own = {(world.rank, item): kind for item, kind in enumerate(mine)}
            key = ("stage", tuple(mine), src_strides)
            if key not in self.programs:
                self.programs[key] = (self._stage_only(own, src_strides),)
            self.programs[key][0].stage.run(table)
        if not world.meet(word, timeout_s):
            raise Disagreement
        kinds, in_place = self._look(table, slot)
        rounds = self.rounds if POOL in kinds or not world.one_node else self.whole
        first = self._program(rounds, kinds, src_strides, dst_strides)
        for number, round_ in enumerate(first):
            if number:
                slot = self._slot(table, world.rank)
                round_.stage.run(table)
                requests = self._post(round_, table)
                world.meet_node(timeout_s)
                self._point_at_pools(table, kinds, slot)
            else:
                requests = self._post(round_, table)
            self._fetch(round_, table, requests, timeout_s, counts)
        counts.rounds += len(first)
        return in_place

    def _slot(self, table: Addresses, rank: int) -> int:
        """Point at the slot that the next meeting makes visible."""
        parity = (self.world.seq + 1) & 1
        board = self.world.boards[rank]
        table[self.bases.pool] = address_of(board.memory) + board.pool_at + parity * self.slot_bytes
        return parity

    def _stage_only(self, own: dict[tuple[int, int], int], strides: Any) -> Round:
        mine = tuple(
            slab for slab in self.rounds[0] if own.get((self.world.rank, slab.item)) == POOL
        )
        moves = [
            program.staging_move(
                self.parts[s.item], s, self.bases, strides[s.item], self.world.rank
            )
            for s in mine
        ]
        empty = Moves.of([])
        return Round(Moves.of(moves), empty, (), (), empty, (), empty, ())

    def _describe(self, sources: Sequence[Array | None]) -> list[int]:
        """Tell the neighbours where this rank's tiles are found."""
        world = self.world
        rows = world.boards[world.rank].descriptions((world.seq + 1) & 1)
        one_round = len(self.rounds) == 1
        kinds = []
        for item, source in enumerate(sources):
            kind, place = NOTHING, (0, 0, 0, 0)
            if source is not None and self.exports[item]:
                kind = POOL
                small = one_round and source.nbytes <= SMALL_BYTES
                if not small and source.flags.c_contiguous:
                    found = find(source)
                    if found is not None:
                        handle, offset = found
                        kind = SHARED
                        place = (handle.fd, handle.number, handle.n_bytes, offset)
                    elif self.readable[item] and not (one_round and source.nbytes < 2**18):
                        kind, place = READ, (0, 0, 0, address_of(source))
            kinds.append(kind)
            rows[item, 0] = kind
            rows[item, 1:5] = place
        return kinds

    def _look(self, table: Addresses, parity: int) -> tuple[tuple[int, ...], bool]:
        """Where every neighbour's tiles are found, in the order of the node's ranks."""
        world, n = self.world, len(self.parts)
        kinds: list[int] = []
        for rank in world.node:
            rows = world.boards[rank].descriptions(parity)
            for item in range(n):
                kind = int(rows[item, 0])
                kinds.append(kind)
                if rank == world.rank or kind in (NOTHING, POOL):
                    continue
                fd, number, n_bytes, place = (int(v) for v in rows[item, 1:5])
                if kind == SHARED:
                    handle = Handle(world.pids[rank], fd, number, n_bytes)
                    place += address_of(world.map_segment(rank, handle))
                table[self.bases.neighbour(rank, item)] = place
        found = tuple(kinds)
        self._point_at_pools(table, found, parity)
        return found, SHARED in found or READ in found

    def _point_at_pools(self, table: Addresses, kinds: tuple[int, ...], parity: int) -> None:
        world, n = self.world, len(self.parts)
        for k, rank in enumerate(world.node):
            board = world.boards[rank]
            pool = address_of(board.memory) + board.pool_at + parity * self.slot_bytes
            for item in range(n):
                if kinds[k * n + item] == POOL:
                    table[self.bases.neighbour(rank, item)] = pool

    def _program(
        self,
        rounds: tuple[tuple[Slab, ...], ...],
        kinds: tuple[int, ...],
        src_strides: tuple[tuple[int, ...], ...],
        dst_strides: tuple[tuple[int, ...], ...],
    ) -> tuple[Round, ...]:
        key = rounds is self.whole, kinds, src_strides, dst_strides
        found = self.programs.get(key)
        if found is None:
            if len(self.programs) >= 16:
                self.programs.clear()
            n = len(self.parts)
            where = {
                (rank, item): kinds[k * n + item]
                for k, rank in enumerate(self.world.node if kinds else ())
                for item in range(n)
            }
            found = self.programs[key] = self._compile(rounds, where, src_strides, dst_strides)
        return found

    def _post(self, round_: Round, table: Addresses) -> list[Any]:
        comm = self.world.comm
        requests = []
        for message in round_.receives:
            requests.append(post(comm.Irecv, message, table, TAG_DATA))
        round_.pack.run(table)
        for message in round_.sends:
            requests.append(post(comm.Isend, message, table, TAG_DATA))
        return requests

    def _fetch(
        self,
        round_: Round,
        table: Addresses,
        requests: list[Any],
        timeout_s: float | None,
        counts: Counts,
    ) -> None:
        if requests and round_.combines:
            self.world.wait(requests, timeout_s)
            requests = []
        round_.copies.run(table)
        for rank, moves in round_.reads:
            moves.read(self.world.pids[rank], table)
        if requests:
            self.world.wait(requests, timeout_s)
        round_.unpack.run(table)
        for combine in round_.combines:
            combine.run(table)
        counts.sent_bytes += sum(m.n_bytes for m in round_.sends)
        counts.messages += len(round_.receives)


def _run_bytes(piece: Piece, itemsize: int) -> int:
    form = canonical(
        piece.shape,
        itemsize,
        c_strides(piece.dst_shape, itemsize),
        c_strides(piece.src_shape, itemsize),
    )
    return form.block


def received_bytes(part: Part, rank: int) -> int:
    """Bytes that a rank fetches from others in a phase."""
    return sum(
        math.prod(p.shape) * part.itemsize
        for p in part.phase.pieces
        if p.receiver == rank != p.sender
    )
