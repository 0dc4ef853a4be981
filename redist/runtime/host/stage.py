"""Run one stage of a transfer: a step of each of its arrays, over whatever joins the ranks."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import identity
from redist.runtime.copies.strided import c_strides, canonical
from redist.runtime.host.messages import MessageRounds
from redist.runtime.host.staging import Staging
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Bases, Compiler, Round, TileAt
from redist.runtime.schedule.pieces import Piece
from redist.runtime.schedule.rounds import Rounds, whole
from redist.runtime.schedule.stages import StagePart
from redist.runtime.shm.pages import release_pages
from redist.runtime.shm.segments import Handle, find

AnyArray = NDArray[Any]
Strides = tuple[tuple[int, ...], ...]
Kinds = dict[tuple[int, int], TileAt]
"""Where the tile of (rank, item) is found."""
NOTHING, POOL = TileAt.NOTHING, TileAt.POOL
IN_PLACE = (TileAt.SHARED, TileAt.PRIVATE)
TILE_AT = tuple(TileAt)

SMALL_BYTES = 32768
"""Tiles up to this size pass through the pool even where they could be read in place, if few rounds
suffice: that takes two meetings as well, and recorded calls serve arrays other than those before."""
FEW_ROUNDS = 4
READ_RUN_BYTES = 4096 if platform.machine() == "x86_64" else 2**62
"""Runs of this size are read from a neighbour's private memory: the kernel of the system copies them once.
On x86_64 that takes three quarters of the pool's time, on aarch64 half as much again."""
BROUGHT_BYTES = 2**18
"""Smaller targets are not opened to neighbours: they stay in the cache, wherever they are read from."""
MOST_ROUNDS = 64
"""Programs of more rounds are not kept: their tables would outgrow the staging that rounds save."""
REMEMBERED = 16
"""Programs that a stage keeps: one for each kind of request and memory layout."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """Strides of the arrays of a call; empty where there is none."""

    sources: Strides
    targets: Strides


@dataclass(frozen=True, slots=True)
class Found:
    """Where the tiles of a node are: sources by (rank, item), and the targets opened to neighbours."""

    kinds: Kinds
    opened: frozenset[tuple[int, int]] = frozenset()

    @property
    def in_place(self) -> bool:
        """Whether someone reads a neighbour's array in place."""
        return any(kind in IN_PLACE for kind in self.kinds.values())

    def is_pooled(self, parts: Sequence[StagePart]) -> bool:
        """Whether data passes through a pool: all do so round by round."""
        ranks = {rank for rank, _ in self.kinds}
        brought = {
            item
            for item, part in enumerate(parts)
            if part.step.is_brought and all((rank, item) in self.opened for rank in ranks)
        }
        return any(kind == POOL and item not in brought for (_, item), kind in self.kinds.items())

    def without_pools(self) -> Found:
        """The same if nobody reads the pools."""
        kinds = {key: NOTHING if kind == POOL else kind for key, kind in self.kinds.items()}
        return Found(kinds, self.opened)


NOWHERE = Found({})
NO_COPIES = CopyList.of(())


@dataclass(frozen=True, slots=True, eq=False)
class StageReplay:
    """What a stage did, in enough detail to do it again: see :mod:`redist.runtime.host.recorded`.

    ``first`` is published before the ranks meet. ``table`` has the base addresses of the arrays of the
    call; ``descriptions`` what the ranks whose
    arrays are read or written in place said about theirs.
    """

    flag: int
    strides: Layouts
    first: CopyList
    rounds: tuple[Round, ...]
    found: Found
    descriptions: dict[int, NDArray[np.int64]]
    table: Addresses


@dataclass(frozen=True, slots=True, eq=False)
class StageRecord:
    """How a stage ran.

    ``in_place`` says that someone reads a neighbour's array in place, and must be waited for;
    ``replay`` is None if the stage cannot be repeated from what is kept of it.
    """

    in_place: bool
    replay: StageReplay | None = None


class Stage:
    """Moves the arrays of one stage through memory and messages. Making one is **collective**."""

    def __init__(
        self, world: World, parts: Sequence[StagePart], staging_bytes: int, is_limited: bool
    ) -> None:
        self.world = world
        self.parts = tuple(parts)
        self.is_local = all(part.step.is_local for part in parts)
        self.bases = Bases(len(parts), world.node.ranks)
        self.whole = whole(len(parts))
        self._programs: dict[Any, tuple[Round, ...]] = {}
        self._first: dict[Any, CopyList] = {}
        self._is_limited = is_limited
        self.staging = Staging.none(len(parts))
        if not self.is_local:
            self.staging = Staging.of(world, parts, staging_bytes, is_limited)
        self._readable = [self._is_readable(part) for part in parts]

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that this stage needs: two slots."""
        return 2 * self.staging.slot_bytes

    # Preparing

    def _is_readable(self, part: StagePart) -> bool:
        """Whether this rank's private tile is better read in place than passed through its pool."""
        pieces = part.step.pieces
        if not self.world.reads_memory or any(p.order for p in pieces):
            return False
        given = [p for p in pieces if p.sender == self.world.rank != p.receiver]
        return len(self.staging.rounds) > MOST_ROUNDS or all(
            _run_bytes(p, part.itemsize) >= READ_RUN_BYTES for p in given
        )

    # Running

    def run(
        self,
        token: int,
        sources: Sequence[AnyArray | None],
        targets: Sequence[AnyArray | None],
        buffer: AnyArray,
        release: Sequence[AnyArray] = (),
    ) -> StageRecord:
        """**Collective.** Move; ``buffer`` is for messages to send and to receive.

        Pages of the arrays in ``release`` are given back once all ranks have met. Raises
        :class:`Disagreement` after the first meeting if a rank came with another token.
        """
        world, bases = self.world, self.bases
        table = np.zeros(bases.size, dtype=np.uintp)
        strides = Layouts(
            tuple([() if s is None else s.strides for s in sources]),
            tuple([() if t is None else t.strides for t in targets]),
        )
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if target is not None:
                table[bases.target(item)] = address_of(target)
                self._fill(item, target)
            if source is not None:
                table[bases.source(item)] = address_of(source)
        if self.is_local:
            rounds = tuple(self._program(self.whole, NOWHERE, strides))
            rounds[0].copies.run(table)
            return StageRecord(
                False, StageReplay(0, strides, NO_COPIES, rounds, NOWHERE, {}, table)
            )
        kinds = self._kinds(sources)
        opens = [self._opens(item, target) for item, target in enumerate(targets)]
        flag = int(TileAt.SHARED in kinds or TileAt.PRIVATE in kinds or any(opens))
        parity = (world.meeting.seq + 1) & 1
        table[bases.send] = address_of(buffer)
        table[bases.receive] = address_of(buffer) + self.staging.halves * self.staging.send_bytes
        table[bases.pool] = world.pages.own.slot(parity, self.staging.slot_bytes)
        if TileAt.POOL in kinds:
            pages = world.pages
            pages.touched_bytes = max(pages.touched_bytes, self.staging.slot_bytes)
            self._first_moves(tuple(kinds), strides).run(table)
        if flag:
            self._describe(kinds, sources, parity)
            self._describe_targets(opens, targets, parity)
        met = world.meet(token, flag)
        return self.resume(met, flag, strides, table, (sources, targets, buffer), release)

    def _fill(self, item: int, target: AnyArray) -> None:
        """Write the identity of the reduction if pieces leave room in a tile."""
        part = self.parts[item]
        if part.step.fills:
            target.view(part.dtype.to_numpy())[...] = identity(part.step.op or "", part.dtype)

    def resume(
        self,
        met: Met,
        flag: int,
        strides: Layouts,
        table: Addresses,
        held: Any = None,
        release: Sequence[AnyArray] = (),
    ) -> StageRecord:
        """**Collective.** Go on after the first meeting; addresses of neighbours go into ``table``.

        ``held`` is kept alive for good if a failure leaves messages behind.
        """
        if met is Met.DISAGREE:
            raise Disagreement
        world = self.world
        if self._is_limited:  # all have come, so nobody reads what passed before
            world.pages.trim(self.staging.slot_bytes)
        for array in release:  # and nothing can be wrong with the request any more
            release_pages(array)
        parity = world.meeting.seq & 1
        found = self._look(parity, met is Met.SAME and not flag, table)
        pooled = found.is_pooled(self.parts)
        places = found if pooled else found.without_pools()
        in_rounds = pooled or self.staging.crosses
        rounds = self._program(self.staging.rounds if in_rounds else self.whole, places, strides)
        described = {
            rank: world.pages[rank].descriptions[parity][:1].copy()
            for rank in world.node.ranks
            if world.meeting.flag_of(rank)
        }
        self._run_rounds(rounds, found.kinds if pooled else {}, table, held)
        in_place = found.in_place
        if found.opened:  # targets are theirs again when all have written
            world.meet_node()
            in_place = False
        if not isinstance(rounds, tuple):
            return StageRecord(in_place)
        own = tuple(found.kinds[world.rank, item] for item in range(len(self.parts)))
        first = self._first_moves(own, strides)
        replay = StageReplay(flag, strides, first, rounds, found, described, table)
        return StageRecord(in_place, replay)

    def _kinds(self, sources: Sequence[AnyArray | None]) -> list[TileAt]:
        """Decide where the neighbours shall find this rank's tiles."""
        few = len(self.staging.rounds) <= FEW_ROUNDS
        kinds = []
        for item, source in enumerate(sources):
            kind = TileAt.NOTHING
            if source is not None and self.staging.exports[self.world.rank, item]:
                kind = TileAt.POOL
                n_bytes = source.nbytes
                if not (few and n_bytes <= SMALL_BYTES) and source.flags.c_contiguous:
                    if find(source) is not None:
                        kind = TileAt.SHARED
                    elif self._readable[item]:
                        kind = TileAt.PRIVATE
            kinds.append(kind)
        return kinds

    def _opens(self, item: int, target: AnyArray | None) -> bool:
        """Decide whether neighbours shall write into this rank's target, if they bring at all."""
        return (
            self.parts[item].step.is_brought
            and len(self.world.node.ranks) > 1
            and (target is None or target.nbytes == 0 or self._can_open(target))
        )

    def _can_open(self, target: AnyArray) -> bool:
        large = target.nbytes >= BROUGHT_BYTES
        return large and target.flags.c_contiguous and find(target) is not None

    def _describe_targets(
        self, opens: Sequence[bool], targets: Sequence[AnyArray | None], parity: int
    ) -> None:
        """Tell the neighbours which targets they write, and where these are."""
        rows = self.world.pages.own.descriptions[parity]
        for item, (is_open, target) in enumerate(zip(opens, targets, strict=True)):
            place = (0, 0, 0, 0)
            found = find(target) if is_open and target is not None and target.nbytes else None
            if found is not None:
                handle, offset = found
                place = (handle.fd, handle.number, handle.n_bytes, offset)
            rows[item, 5:10] = (is_open, *place)

    def _describe(
        self, kinds: list[TileAt], sources: Sequence[AnyArray | None], parity: int
    ) -> None:
        """Tell the neighbours where this rank's tiles are found."""
        rows = self.world.pages.own.descriptions[parity]
        for item, (kind, source) in enumerate(zip(kinds, sources, strict=True)):
            place = (0, 0, 0, 0)
            if kind == TileAt.SHARED and source is not None:
                found = find(source)
                assert found is not None
                handle, offset = found
                place = (handle.fd, handle.number, handle.n_bytes, offset)
            elif kind == TileAt.PRIVATE and source is not None:
                place = (0, 0, 0, address_of(source))
            rows[item, :5] = (kind, *place)

    def _look(self, parity: int, all_pooled: bool, table: Addresses) -> Found:
        """Find every neighbour's tiles; their addresses go into the table."""
        world, n = self.world, len(self.parts)
        kinds: Kinds = {}
        opened: set[tuple[int, int]] = set()
        world.forget_segments()
        for rank in world.node.ranks:
            page = world.pages[rank]
            described = not all_pooled and world.meeting.flag_of(rank)
            for item in range(n):
                kind = TileAt.POOL if self.staging.exports[rank, item] else TileAt.NOTHING
                if described:
                    kind = TILE_AT[page.descriptions[parity][item, 0]]
                kinds[rank, item] = kind
                place = page.slot(parity, self.staging.slot_bytes)
                if kind in IN_PLACE and rank != world.rank:
                    fd, number, n_bytes, place = page.descriptions[parity][item, 1:5].tolist()
                    if kind == TileAt.SHARED:
                        handle = Handle(world.node.pids[rank], fd, number, n_bytes)
                        place += address_of(world.map_segment(rank, handle))
                table[self.bases.neighbour(rank, item)] = place
                if described and page.descriptions[parity][item, 5]:
                    opened.add((rank, item))
                    fd, number, n_bytes, place = page.descriptions[parity][item, 6:10].tolist()
                    if n_bytes and rank != world.rank:
                        handle = Handle(world.node.pids[rank], fd, number, n_bytes)
                        place += address_of(world.map_segment(rank, handle, writes=True))
                        table[self.bases.open_target(rank, item)] = place
        return Found(kinds, frozenset(opened))

    def _first_moves(self, kinds: tuple[TileAt, ...], strides: Layouts) -> CopyList:
        """What is published before it is known what the others do: the first round."""
        if TileAt.POOL not in kinds:
            return NO_COPIES
        moves = self._first.get((kinds, strides))
        if moves is None:
            own = {(self.world.rank, item): kind for item, kind in enumerate(kinds)}
            moves = self._compiler(Found(own), strides).publish(self.staging.rounds[0])
            self._first[kinds, strides] = moves
        return moves

    def _run_rounds(
        self, rounds: Iterable[Round], kinds: Kinds, table: Addresses, held: Any
    ) -> None:
        """With two halves of staging, messages of the next round are under way before this one's end.

        Without ``kinds`` nothing passes through pools, and ranks of a node do not meet for every round.
        """
        world, halves = self.world, self.staging.halves
        starts = int(table[self.bases.send]), int(table[self.bases.receive])
        todo = enumerate(rounds)
        following = next(todo, None)
        with MessageRounds(world, held) as messages:
            while following is not None:
                number, round_ = following
                following = next(todo, None)
                if number and kinds:
                    self._publish(round_, kinds, table)
                if number == 0 or halves == 1:
                    messages.post(number, round_, table)
                if halves > 1 and following is not None:
                    self._point_at_half(following[0] % halves, starts, table)
                    messages.post(*following, table)
                self._point_at_half(number % halves, starts, table)
                if number and kinds:
                    world.meet_node()
                self._fetch(number, round_, messages, table)

    def _publish(self, round_: Round, kinds: Kinds, table: Addresses) -> None:
        """Copy this rank's data of a round into its pool, where the coming meeting finds it."""
        world = self.world
        parity = (world.meeting.seq + 1) & 1
        for (rank, item), kind in kinds.items():
            slot = world.pages[rank].slot(parity, self.staging.slot_bytes)
            if kind == TileAt.POOL:
                table[self.bases.neighbour(rank, item)] = slot
            if rank == world.rank:
                table[self.bases.pool] = slot
        round_.publish.run(table)

    def _point_at_half(self, half: int, starts: tuple[int, int], table: Addresses) -> None:
        """Let the table say where one half of the staging of messages begins."""
        send, receive = starts
        table[self.bases.send] = send + half * self.staging.send_bytes
        table[self.bases.receive] = receive + half * self.staging.receive_bytes

    def _fetch(self, number: int, round_: Round, messages: MessageRounds, table: Addresses) -> None:
        if round_.combines:
            messages.wait(number)
        round_.copies.run(table)
        for rank, moves in round_.reads:
            moves.read(self.world.node.pids[rank], table)
        messages.wait(number)
        round_.unpack.run(table)
        for combine in round_.combines:
            combine.run(table)

    def _program(self, rounds: Rounds, places: Found, strides: Layouts) -> Iterable[Round]:
        if len(rounds) > MOST_ROUNDS:
            compiler = self._compiler(places, strides)
            return (compiler.round(round_parts) for round_parts in rounds)
        key = rounds is self.whole, tuple(places.kinds.values()), places.opened, strides
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= REMEMBERED:
                self._programs.clear()
            compiler = self._compiler(places, strides)
            found = self._programs[key] = tuple(
                compiler.round(round_parts) for round_parts in rounds
            )
        return found

    def _compiler(self, found: Found, strides: Layouts) -> Compiler:
        return Compiler(
            self.world.rank,
            self.parts,
            self.bases,
            found.kinds,
            self.staging.offsets,
            strides.sources,
            strides.targets,
            (self.staging.send_bytes, self.staging.receive_bytes),
            opened=found.opened,
        )

    def tables(self, replay: StageReplay) -> tuple[Addresses, Addresses]:
        """The base addresses of a recorded stage, for even and for odd meetings."""
        world = self.world
        tables = replay.table.copy(), replay.table.copy()
        for parity, table in enumerate(tables):
            for rank in world.node.ranks:
                slot = world.pages[rank].slot(parity, self.staging.slot_bytes)
                for item in range(len(self.parts)):
                    if replay.found.kinds.get((rank, item)) == TileAt.POOL:
                        table[self.bases.neighbour(rank, item)] = slot
                if rank == world.rank:
                    table[self.bases.pool] = slot
        return tables


def _run_bytes(piece: Piece, itemsize: int) -> int:
    source, target = c_strides(piece.src_shape, itemsize), c_strides(piece.dst_shape, itemsize)
    return canonical(piece.shape, itemsize, target, source).block
