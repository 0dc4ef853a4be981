"""Run one stage of a transfer: a step of each of its arrays, over whatever joins the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import identity
from redist.runtime.host.messages import MessageRounds
from redist.runtime.host.places import NOWHERE, Found, Kinds, TilePlaces
from redist.runtime.host.staging import BY_MPI, Staging
from redist.runtime.ranks.letters import Enclosed
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import MOST_ROUNDS, Bases, Compiler, Round, TileAt
from redist.runtime.schedule.rounds import Rounds, whole
from redist.runtime.schedule.stages import StagePart
from redist.runtime.shm.segments import release_pages
from redist.text.latest import Latest

AnyArray = NDArray[Any]
Strides = tuple[tuple[int, ...], ...]
REMEMBERED = 16
"""Programs that a stage keeps: one for each kind of request and memory layout."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """Strides of the arrays of a call; empty where there is none."""

    sources: Strides
    targets: Strides


NO_COPIES = CopyList.of(())


@dataclass(frozen=True, slots=True, eq=False)
class StageReplay:
    """What a stage did, in enough detail to do it again: see :mod:`redist.runtime.host.recorded`.

    ``first`` is published before the ranks meet. ``table`` has the base addresses of the arrays of the
    call; ``descriptions`` what the ranks whose arrays are read or written in place said about theirs.
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
        self._programs: Latest[Any, tuple[Round, ...]] = Latest(REMEMBERED)
        self._first: dict[Any, CopyList] = {}
        self._is_limited = is_limited
        self.staging = Staging.none(len(parts))
        if not self.is_local:
            packing = replace(BY_MPI, letters=None if is_limited else world.letters)
            self.staging = Staging.of(world, parts, staging_bytes, is_limited, packing)
        self._letters: dict[Strides, list[CopyList]] = Latest(REMEMBERED)
        """What is copied into each letter, by the strides of the sources."""
        self.places = TilePlaces(world, self.parts, self.bases, self.staging)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that this stage needs: two slots."""
        return 2 * self.staging.slot_bytes

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
            if source is not None:
                table[bases.source(item)] = address_of(source)
        if self.is_local:
            self._fill(targets)
            rounds = tuple(self._program(self.whole, NOWHERE, strides))
            rounds[0].copies.run(table)
            return StageRecord(
                False, StageReplay(0, strides, NO_COPIES, rounds, NOWHERE, {}, table)
            )
        kinds, opens = self.places.kinds(sources), self.places.opens(targets)
        flag = int(TileAt.SHARED in kinds or TileAt.PRIVATE in kinds or any(opens))
        parity = (world.meeting.seq + 1) & 1
        starts = address_of(buffer), self.staging.halves * self.staging.send_bytes
        table[bases.send], table[bases.receive] = starts[0], sum(starts)
        table[bases.pool] = world.pages.own.slot(parity, self.staging.slot_bytes)
        if TileAt.POOL in kinds:
            pages = world.pages
            pages.touched_bytes = max(pages.touched_bytes, self.staging.slot_bytes)
            self._first_moves(kinds, strides).run(table)
        if flag:
            self.places.describe(parity, kinds, sources, opens, targets)
        met = self.meet(token, flag, strides, table)
        if met is not Met.DISAGREE:
            self._fill(targets)
        return self.resume(met, flag, strides, table, (sources, targets, buffer), release)

    def meet(self, token: int, flag: int, strides: Layouts, table: Addresses) -> Met:
        """**Collective.** Meet; what passes between nodes may come with the letters."""
        return self.world.meet(token, flag, self.enclosed(strides, table))

    def enclosed(self, strides: Layouts, table: Addresses) -> Enclosed | None:
        """**Local.** What letters are to carry, from where the table says; None if nothing passes so."""
        letters, sizes = self.world.letters, self.staging.enclosed
        if letters is None or sizes is None:
            return None
        table[self.bases.send], table[self.bases.receive] = letters.sent, letters.got
        packs = self._letters.get(strides.sources)
        if packs is None:
            compiler = self._compiler(NOWHERE, strides)
            packs = self._letters[strides.sources] = [compiler.letter_to(r) for r in letters.far]
        compiled = self.world.node.kernels
        if compiled is None:
            return letters.enclose(sizes, [partial(moves.run, table) for moves in packs])
        where = address_of(table)
        runs = [partial(compiled.copy, *moves.pointer, where, 0) for moves in packs]
        return letters.enclose(sizes, runs)

    def _fill(self, targets: Sequence[AnyArray | None]) -> None:
        """Write the identity of the reduction into tiles in which pieces leave room."""
        for part, target in zip(self.parts, targets, strict=True):
            if target is not None and part.step.fills:
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
        found = self.places.look(parity, met is Met.SAME and not flag, table)
        pooled = found.is_pooled(self.parts)
        places = found if pooled else found.without_pools()
        in_rounds = pooled or self.staging.crosses
        rounds = self._program(self.staging.rounds if in_rounds else self.whole, places, strides)
        described = {
            rank: world.pages[rank].descriptions[parity][: len(self.parts)].copy()
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
            return self._compiler(places, strides).program(rounds)
        key = rounds is self.whole, tuple(places.kinds.values()), places.opened, strides
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = tuple(self._compiler(places, strides).program(rounds))
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
            letters=self._places_in_letters(),
        )

    def _places_in_letters(self) -> dict[int, int]:
        letters = self.world.letters
        if letters is None or self.staging.enclosed is None:
            return {}
        return {rank: letters.place(rank) for rank in letters.far}

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
