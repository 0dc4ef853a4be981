"""Run one stage of a transfer on GPUs: kernels on the caller's stream, meetings of the hosts.

Ranks of a node read each other's tiles in place, by CUDA IPC, also where they share a GPU. Between
nodes, or where IPC does not work, packed data passes through staging in rounds, as the carrier of the
world has it. Hosts meet as they do for arrays in memory; streams wait for each other by events, so
that nobody waits for a GPU but for data that is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.runtime.copies.reduce import identity
from redist.runtime.cuda.arrays import current_stream, device_address, fill_with
from redist.runtime.cuda.kernels.rounds import CudaRound
from redist.runtime.cuda.transports.all_gather import pack_once, room_for
from redist.runtime.cuda.transports.carriers import StagingLease
from redist.runtime.cuda.transports.ipc import NoPeers, PeerEvent
from redist.runtime.cuda.transports.opened_memory import WORDS, OpenedMemory
from redist.runtime.cuda.transports.shared_gpu import Described, Descriptions, GpuMates, meet_awake
from redist.runtime.host.places import Kinds
from redist.runtime.host.stage import Layouts, StageRecord
from redist.runtime.host.staging import FROM_GPUS, Staging
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.schedule.compiler import Bases, Compiler, Round, TileAt
from redist.runtime.schedule.rounds import Rounds, whole
from redist.runtime.schedule.stages import StagePart

MOST_KEPT_ROUNDS = 64
"""Of all programs that are kept: tables of a round take some 3 KiB of the GPU."""

FarStrides = dict[tuple[int, int], tuple[int, ...]]


class LazyRounds(Sequence[Any]):
    """A sequence whose items are made when they are asked for; only the last two are kept.

    >>> rounds = LazyRounds(str, (1, 2, 3))
    >>> rounds[0], rounds[1], len(rounds), list(rounds)
    ('1', '2', 3, ['1', '2', '3'])
    """

    def __init__(self, make: Callable[[Any], Any], of: Sequence[Any]) -> None:
        self._make, self._of = make, of
        self._made: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, k: Any) -> Any:
        if k not in self._made:
            made = self._make(self._of[k])
            self._made = {j: thing for j, thing in self._made.items() if j == k - 1}
            self._made[k] = made
        return self._made[k]


class CudaStage:
    """Moves the arrays of one stage that lie on GPUs. Making one is **collective**."""

    def __init__(
        self,
        peers: NoPeers,
        lease: StagingLease,
        parts: Sequence[StagePart],
        mate_parts: Callable[[int], Sequence[StagePart]],
        staging_bytes: int,
        is_limited: bool,
    ) -> None:
        self.world, self.peers, self.parts = peers.world, peers, tuple(parts)
        self.bases = Bases(len(parts), self.world.node.ranks)
        self.is_local = all(part.step.is_local for part in parts)
        self.whole = whole(len(parts))
        self.staging = Staging.none(len(parts))
        if not self.is_local:
            self.staging = Staging.of(self.world, parts, staging_bytes, is_limited, FROM_GPUS)
        self.lease = lease
        self._gathers: tuple[int, ...] = ()
        """Ranks among which messages are one all-gather."""
        self._half = self.staging.send_bytes, self.staging.receive_bytes
        """Bytes to send from and to receive into, of one half of the staging."""
        if not self.is_local and not self.world.one_node:
            self._gathers = peers.carrier.all_gather(parts)
            if self._gathers:
                self._half = room_for(self._gathers, self.staging)
        lease.reserve(*(self.staging.halves * n_bytes for n_bytes in self._half))
        me = self.world.rank
        self._read = {
            (piece.sender, item): len(piece.src_shape)
            for item, part in enumerate(parts)
            for piece in part.step.pieces
            if piece.receiver == me != piece.sender
        }
        """Whose tiles this rank reads, and how many dims they have."""
        self._mates: GpuMates | None = None
        if peers.mates and self.world.one_node and not self.is_local:
            first = peers.mates[0] == me
            self._mates = GpuMates(
                self.world.node.ranks, {r: mate_parts(r) for r in peers.mates if first}
            )
        self._found: tuple[int, Described] | None = None
        """How often memory of neighbours had been closed, and all tiles as they were found then."""
        self._descriptions = Descriptions()
        self._own: list[Any] = []
        self._table = np.zeros(self.bases.size, dtype=np.uintp)
        self._programs: dict[Any, Sequence[CudaRound]] = {}

    def run(self, token: int, sources: Sequence[Any], targets: Sequence[Any]) -> StageRecord:
        """**Collective.** Start to move on the current stream.

        Raises :class:`Disagreement` after the first meeting if a rank came with another token, or with
        an array that cannot be shared.
        """
        world, bases, table = self.world, self.bases, self._table
        stream = current_stream()
        error = self._describe(sources, targets)
        if error is not None:
            world.meet(Token.ERROR)
            raise Disagreement(error)
        self._fill(targets)
        if self._mates is not None:
            self._run_for_all(self._mates, token, sources, targets, stream)
            return StageRecord(in_place=False)
        strides = Layouts(
            tuple([() if s is None else s.strides for s in sources]),
            tuple([() if t is None else t.strides for t in targets]),
        )
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if target is not None:
                table[bases.target(item)] = device_address(target)
            if source is not None:
                table[bases.source(item)] = device_address(source)
        if self.is_local:
            self._program(self.whole, {}, {}, strides)[0].fetch(table, stream)
            return StageRecord(in_place=False)
        self._meet(token, 0, stream)
        kinds, far = self._look(world.meeting.seq & 1)
        givers = {rank for rank, _ in self._read if rank in world.node.ranks}
        self.peers.await_all(PeerEvent.READY, givers, stream)
        self._run_rounds(kinds, far, strides, stream, (sources, targets))
        self.peers.say(PeerEvent.DONE, stream)
        return StageRecord(in_place=len(world.node.ranks) > 1)

    def _fill(self, targets: Sequence[Any]) -> None:
        """**Local.** Write what leaves others as they are where values will be combined with it."""
        for part, target in zip(self.parts, targets, strict=True):
            if target is not None and part.step.fills:
                blank = identity(part.step.op or "", part.dtype)
                fill_with(target.view(part.dtype.to_numpy()), blank)

    def _meet(self, token: int, flag: int, stream: Any) -> Met:
        """**Collective.** Meet when all tiles may be read, as soon as their streams say so."""
        self.peers.begin()
        self.peers.say(PeerEvent.READY, stream)
        met = self.world.meet(token, flag)
        if met is Met.DISAGREE:
            raise Disagreement
        return met

    def _run_for_all(
        self,
        mates: GpuMates,
        token: int,
        sources: Sequence[Any],
        targets: Sequence[Any],
        stream: Any,
    ) -> None:
        """**Collective.** Let the first rank of every GPU move for those that share it.

        The flag of a meeting says that a tile of the rank is not where it was in the last call.
        """
        own = [None if a is None else (device_address(a), a.strides) for a in (*sources, *targets)]
        are_new = self._descriptions.are_new or own != self._own
        met = self._meet(token, int(are_new), stream)
        self._descriptions.note_read()
        self._own = own
        if mates.parts:
            found, n_closed = self._found, self.peers.n_closed
            if are_new or met is not Met.SAME or found is None or found[0] != n_closed:
                found = n_closed, self._all_tiles(self.world.meeting.seq & 1, own)
                self._found = found
            mates.run(found[1], stream)
            stream.synchronize()
        # Another rank has written this one's targets.
        meet_awake(self.world) if self.peers.have_cores else self.world.meet_node()

    def _all_tiles(self, parity: int, own: Sequence[Any]) -> Described:
        """Find the tiles of all ranks of the node; ``own`` has address and strides of this one's."""
        world, n = self.world, len(self.parts)
        found = Described(n, world.node.ranks)
        for number, one in enumerate(own):
            if one is not None:
                found.put(number // n, world.rank, number % n, *one)
        for rank in world.node.ranks:
            rows = world.pages[rank].descriptions[parity]
            for number in range(2 * n):
                # Nobody writes what ranks on other GPUs have.
                skips = number >= n and rank not in self.peers.mates
                if rank == world.rank or rows[number, 0] != TileAt.SHARED or skips:
                    continue
                n_dims = len(self.parts[number % n].step.src_tile)
                address = self.peers.opened(rank, OpenedMemory.read(rows[number, 1 : 1 + WORDS]))
                strides = tuple(rows[number, 1 + WORDS : 1 + WORDS + n_dims].tolist())
                found.put(number // n, rank, number % n, address, strides)
        return found

    def settle(self) -> None:
        """**Local.** Let the stream wait, after a meeting, until the neighbours have read."""
        self.peers.await_all(PeerEvent.DONE, self.world.node.ranks, current_stream())

    def _describe(self, sources: Sequence[Any], targets: Sequence[Any]) -> RequestError | None:
        """Tell the neighbours where to find this rank's tiles; the error if they cannot be shared."""
        world = self.world
        if self.is_local or len(world.node.ranks) == 1:
            return None
        rows = world.pages[world.rank].descriptions[(world.meeting.seq + 1) & 1]
        if self._mates is None:
            exports = self.staging.exports
            sources = [s if exports[world.rank, item] else None for item, s in enumerate(sources)]
        are_written = self._mates is not None and len(self.peers.mates) > 1
        try:
            self._descriptions.write(rows, sources, targets if are_written else ())
        except RequestError as error:
            return error
        return None

    def _look(self, parity: int) -> tuple[Kinds, FarStrides]:
        """Find every neighbour's tiles and their strides; addresses go into the table."""
        world = self.world
        kinds: Kinds = {}
        strides: FarStrides = {}
        for rank in world.node.ranks:
            rows = world.pages[rank].descriptions[parity]
            for item in range(len(self.parts)):
                given = self.staging.exports[rank, item] and len(world.node.ranks) > 1
                kinds[rank, item] = TileAt.SHARED if given else TileAt.NOTHING
                if given and (rank, item) in self._read:
                    place = OpenedMemory.read(rows[item, 1 : 1 + WORDS])
                    self._table[self.bases.neighbour(rank, item)] = self.peers.opened(rank, place)
                    last = 1 + WORDS + self._read[rank, item]
                    strides[rank, item] = tuple(rows[item, 1 + WORDS : last].tolist())
        return kinds, strides

    def _run_rounds(
        self, kinds: Kinds, far: FarStrides, strides: Layouts, stream: Any, held: Any
    ) -> None:
        table = self._table
        if self.world.one_node:
            (round_,) = self._program(self.whole, kinds, far, strides)
            round_.fetch(table, stream)
            round_.take_apart(table, stream)
            return
        rounds = self._program(self.staging.rounds, kinds, far, strides)
        with self.lease.lent() as starts:
            tables = []
            for half in range(self.staging.halves):
                places = zip(starts, self._half, strict=True)
                table[self.bases.send], table[self.bases.receive] = (
                    start + half * n_bytes for start, n_bytes in places
                )
                tables.append(table.copy())
            self.peers.carrier.carry(rounds, self.lease, tables, stream, held)

    def _program(
        self, rounds: Rounds, kinds: Kinds, far: FarStrides, strides: Layouts
    ) -> Sequence[CudaRound]:
        key = rounds is self.whole, tuple(kinds.values()), tuple(far.items()), strides
        found = self._programs.get(key)
        if found is None:
            compiler = Compiler(
                self.world.rank,
                self.parts,
                self.bases,
                kinds,
                self.staging.offsets,
                strides.sources,
                strides.targets,
                (self.staging.send_bytes, self.staging.receive_bytes),
                packs_all=True,
                far_strides=far,
            )
            found = LazyRounds(lambda parts: self._on_gpu(compiler.round(parts)), rounds)
            if len(rounds) <= MOST_KEPT_ROUNDS:
                if sum(map(len, self._programs.values())) + len(rounds) > MOST_KEPT_ROUNDS:
                    self._programs.clear()
                self._programs[key] = found = tuple(found)
        return found

    def _on_gpu(self, round_: Round) -> CudaRound:
        if not self._gathers:
            return CudaRound.of(round_)
        return pack_once(round_, self._gathers, self.world.rank, self.bases.receive)
