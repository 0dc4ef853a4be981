"""Windows: how a rank reads every tile of one array.

Tiles of its own node it reads where they lie; a thread of every rank answers reads from other nodes while
the rank computes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import PeerError, RequestError, TransferError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, grid
from redist.runtime.copies.addresses import address_of
from redist.runtime.index_sets.part import Part
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import abandon, wait_for
from redist.runtime.ranks.world import World
from redist.runtime.shm.process_reads import peek, peeker
from redist.runtime.shm.segments import Bytes, Handle, find

LEAST_PAUSE_S, MOST_PAUSE_S = 2e-5, 1e-3
"""An idle thread looks for requests so often: soon after one, seldom when none come."""
ANSWER_BYTES = 2**22
"""The largest answer; larger reads are several requests."""
UNDER_WAY = 8
"""Requests that a rank has under way at once; this many answers, at most, wait at a server."""

Ask = tuple[int, int, Part, NDArray[Any]]
"""Rank, number of the array, part of the rank's tile, where it goes (contiguous)."""
Answer = Callable[[Part], Bytes]
"""Reads a part of a tile, for another rank."""


class ReadService:
    """The ranks' readers of each other. Making one is **collective over** ``comm``.

    The thread takes part in MPI beside the program: it needs ``MPI_THREAD_MULTIPLE``. It answers as
    soon as Python lets it run: at once where the program waits or computes in NumPy, within the
    5 ms of Python's switching where it runs Python code.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise TransferError(
                "cannot read arrays of other nodes: MPI was started without MPI_THREAD_MULTIPLE; "
                "start it with threads (mpi4py does unless told otherwise)"
            )
        self._comm = comm.Dup()
        self.answers: dict[int, Answer] = {}
        """How this rank reads its tile of an array for others, by the array's number."""
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="redist-service", daemon=True)
        self._thread.start()
        atexit.register(self._end)  # before MPI ends

    def ask(self, asked: Sequence[Ask], wait: Callable[[list[Any]], None]) -> None:
        """**Local.** Fill arrays with what other ranks hold; ``wait`` waits for MPI's requests."""
        with self._one_at_a_time:
            for k in range(0, len(asked), UNDER_WAY):
                self._ask(asked[k : k + UNDER_WAY], wait)

    def _ask(self, asked: Sequence[Ask], wait: Callable[[list[Any]], None]) -> None:
        receives, sends, kept = [], [], []
        verdicts = np.zeros((len(asked), 1), np.int64)
        for verdict, (rank, number, part, out) in zip(verdicts, asked, strict=True):
            words = np.concatenate([np.array([number], dtype=np.int64), part.words()])
            kept.append(words)
            into = out.reshape(-1).view(np.uint8)
            receives.append(self._comm.Irecv(verdict, rank, Tag.READ_VERDICT))
            receives.append(self._comm.Irecv([into, MPI.BYTE], rank, Tag.READ_DATA))
            sends.append(self._comm.Isend(words, rank, Tag.READ_REQUEST))
        try:
            wait([*receives, *sends])
        except BaseException:
            abandon(receives, kept, verdicts, [out for *_, out in asked])
            raise
        for n_bytes, (rank, _, part, out) in zip(verdicts[:, 0].tolist(), asked, strict=True):
            if n_bytes != out.nbytes:
                raise PeerError(f"rank {rank} could not read {part.shape} elements of its tile")

    def _serve(self) -> None:
        pause_s = LEAST_PAUSE_S
        status = MPI.Status()
        answers: list[tuple[Any, Any, Bytes, Ints]] = []
        while not self._stop.is_set():
            if self._comm.Iprobe(MPI.ANY_SOURCE, Tag.READ_REQUEST, status):
                words = np.empty(status.Get_count(MPI.INT64_T), np.int64)
                self._comm.Recv(words, status.source, Tag.READ_REQUEST)
                data = self._answer(words)
                verdict = np.array([len(data)], dtype=np.int64)
                first = self._comm.Isend(verdict, status.source, Tag.READ_VERDICT)
                second = self._comm.Isend([data, MPI.BYTE], status.source, Tag.READ_DATA)
                answers.append((first, second, data, verdict))
                pause_s = LEAST_PAUSE_S
                continue
            answers = [answer for answer in answers if not _is_sent(*answer[:2])]
            time.sleep(pause_s)
            pause_s = LEAST_PAUSE_S if answers else min(MOST_PAUSE_S, pause_s * 1.2)

    def _answer(self, words: Ints) -> Bytes:
        """The bytes of a part; none where the request makes no sense."""
        try:
            answer = self.answers[int(words[0])]
            part, _ = Part.read(words[1:])
            return answer(part)
        except (KeyError, IndexError, ValueError):
            return np.empty(0, np.uint8)

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        atexit.unregister(self._end)

    def close(self) -> None:
        """**Collective.** End the thread and free the communicator."""
        self._end()
        self._comm.Free()


def _is_sent(first: Any, second: Any) -> bool:
    return bool(MPI.Request.Testall([first, second]))


# Make the tiles of an array reachable from every rank, and keep them while anyone may reach.


class Windows:
    """The windows of a world: which numbers they have, and which arrays have died."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.live: dict[int, Window] = {}
        self.dead: set[int] = set()
        """Arrays that died here; their tiles stay until they have died everywhere."""
        self.service: ReadService | None = None

    def drop(self, numbers: set[int]) -> None:
        """Let go of arrays that are dead everywhere."""
        for number in numbers:
            window = self.live.pop(number, None)
            self.dead.discard(number)
            if self.service is not None:
                self.service.answers.pop(number, None)
            if window is not None:
                window.close()

    def close(self) -> None:
        """**Collective.** End the service."""
        if self.service is not None:
            self.service.close()


def windows_of(world: World) -> Windows:
    """The windows of a world."""
    return world.kept(Windows) or world.keep(Windows())


W = TypeVar("W", bound="Window")


def publish(
    world: World,
    owner: Any,
    t: ArrayType,
    tile: Any,
    timeout_s: float | None,
    kind: Callable[[World, int, ArrayType, Any, float | None], W],
) -> W:
    """**Collective.** Open a window on an array of these tiles, for as long as ``owner`` lives on any rank.

    A tile stays in memory until its array has died on every rank and the ranks have met again to
    publish another: so a rank that is behind reads what it means to read. ``kind`` makes the window.
    """
    windows = windows_of(world)
    number = next(windows.numbers)
    with world.operation(timeout_s):
        window = kind(world, number, t, tile, timeout_s)
        said = f"{window.name}{window.lies}"
        answers = world.gather((said, window.place(), tuple(windows.dead)))
        if len({text for text, *_ in answers}) == 1:
            windows.drop(set.intersection(*(set(dead) for *_, dead in answers)))
            if window.connect([place for _, place, _ in answers]):
                if windows.service is None:
                    windows.service = ReadService(world.comm)
                window.service = windows.service
            if windows.service is not None and tile is not None:
                windows.service.answers[number] = window.answer
            windows.live[number] = window
            weakref.finalize(owner, windows.dead.add, number).atexit = False
            world.wait([world.comm.Ibarrier()])
            return window
    parts = "; ".join(f"rank {rank}: {text}" for rank, (text, *_) in enumerate(answers))
    raise RequestError(f"cannot open one array on all ranks: they disagree on it; {parts}")


def retire(window: Window) -> None:
    """**Local.** Say that a window is no longer used here; its array may have another."""
    windows_of(window.world).dead.add(window.number)


Tile = NDArray[Any]
Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TilePlace:
    """Where a rank's tile lies, as other processes need it."""

    pid: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    handle: Handle | None
    offset: int
    writable: bool
    is_near: bool
    """Whether the other ranks of the node reach it without help."""


class Peeked:
    """A tile in the private memory of a neighbour."""

    def __init__(self, place: TilePlace, dtype: np.dtype[Any]) -> None:
        self._place, self._dtype = place, dtype
        self._one = np.empty(1, dtype)
        self._peek_one = peeker(place.pid, self._one.view(np.uint8))

    def item(self, inside: Sequence[int]) -> Any:
        """One element, by its indices in the tile."""
        address = self._place.address
        for i, stride in zip(inside, self._place.strides):  # noqa: B905
            address += i * stride
        self._peek_one(address)
        return self._one[0]

    def read(self, part: Part, out: Tile) -> None:
        """Copy a part to a contiguous array."""
        place = self._place
        offsets, run_bytes = part.runs(place.shape, place.strides, self._dtype.itemsize)
        peek(place.pid, offsets + place.address, run_bytes, out.reshape(-1).view(np.uint8))


class Window:
    """The tiles of an array as this rank reaches them. Made by ``publish``.

    ``views`` has an array for each tile that is a load away: this rank's own, and those in shared
    memory of the node. Other tiles are read through the kernel, or by asking their rank.
    """

    lies = ""
    """Where its tiles do, if not in memory."""

    def __init__(
        self, world: World, number: int, t: ArrayType, tile: Any, timeout_s: float | None
    ) -> None:
        self.world, self.number, self.type, self.tile = world, number, t, tile
        self.raw = tile
        """The tile as elements that are copied."""
        self.service: ReadService | None = None
        """Reads tiles of other nodes; None if there is none to read."""
        self.near = world.node.ranks
        """Ranks whose tiles this one reaches without their help, if these can be shared."""
        self.timeout_s, self.name = timeout_s, str(t)
        self.dtype = t.dtype.named_numpy()
        numbers = grid(t)
        self.shape = t.shape
        self.cuts = tuple(map(t.cut, range(t.ndim)))
        shards, holders = numbers.shards().tolist(), t.mesh.ranks
        self.holders: dict[int, list[int]] = {}
        for shard, rank in zip(shards, holders, strict=True):
            self.holders.setdefault(shard, []).append(rank)
        self.views: list[Tile | None] = [None] * (max(shards) + 1)
        self.peeked: dict[int, Peeked] = {}
        self.sources: dict[int, int] = {}
        self.fixed: tuple[int, ...] = ()

    def place(self) -> Any:
        """**Local.** Where this rank's tile lies, for the others; None where it has none."""
        tile = self.tile
        if tile is None:
            return None
        handle, offset = find(tile) or (None, 0)
        here = os.getpid(), address_of(tile)
        near = handle is not None or self.world.reads_memory
        writable = tile.flags.writeable
        return TilePlace(*here, tile.shape, tile.strides, handle, offset, writable, near)

    def connect(self, places: Sequence[Any]) -> bool:
        """**Collective.** Find the nearest copy of every tile; whether some rank has to ask for one."""
        self.fixed = tuple(
            rank for rank, place in enumerate(places) if place is not None and not place.writable
        )
        self.look(places)
        alone = all(place is None or place.is_near for place in places)
        return len(set(self.world.node.groups)) > 1 or not alone

    def look(self, places: Sequence[Any]) -> None:
        """**Local.** Reach every tile in place, if its rank is near and it can be; else note whom to ask."""
        for shard, holders in self.holders.items():
            if self.world.rank in holders:
                self.views[shard] = self.raw
            elif not any(self.reach(shard, r, places[r]) for r in holders if r in self.near):
                self.sources[shard] = holders[self.world.rank % len(holders)]

    def reach(self, shard: int, rank: int, place: Any) -> bool:
        """**Local.** Reach a tile in place; whether it can be."""
        if place.handle is not None:
            memory = self.world.map_segment(rank, place.handle)
            self.views[shard] = np.ndarray(
                place.shape, self.dtype, memory, place.offset, place.strides
            )
        elif place.is_near:
            self.peeked[shard] = Peeked(place, self.dtype)
        return bool(place.is_near)

    def answer(self, part: Part) -> Bytes:
        """**Local.** The bytes of a part of this rank's tile, for another rank; in a thread of its own."""
        tile: Tile = self.tile
        return np.ascontiguousarray(tile[part.index(tile.shape)]).reshape(-1).view(np.uint8)

    def close(self) -> None:
        """**Local.** Let go of other ranks' tiles: nobody reaches for them any more."""

    def fetch(self, wanted: Iterable[tuple[int, Part]]) -> list[Any]:
        """**Local.** Parts of tiles on other nodes as contiguous arrays, asked for together."""
        asked: list[Ask] = []
        blocks: list[Any] = []
        for shard, part in wanted:
            blocks.append(np.empty(part.shape, self.dtype))
            asked += self._asks(shard, part, blocks[-1])
        self._ask(asked)
        return blocks

    def put(self, blocks: Iterable[tuple[Any, Index]], out: Any) -> None:
        """**Local.** Copy contiguous arrays to their places in ``out``."""
        for block, where in blocks:
            out[where] = block

    def _asks(self, shard: int, part: Part, block: Any) -> list[Ask]:
        """**Local.** What to ask the holder of a tile, so that a part of it comes into a contiguous array."""
        most = max(1, ANSWER_BYTES // self.dtype.itemsize)
        rank, whole = self.sources[shard], cast(Any, self.type.dtype.raw(block))
        return [(rank, self.number, p, whole[(*there, ...)]) for p, there in part.split(most)]

    def _ask(self, asked: list[Ask]) -> None:
        if asked:
            assert self.service is not None
            watch = self.world.failure
            self.service.ask(asked, lambda requests: wait_for(requests, self.timeout_s, watch))

    def read(self, parts: Iterable[tuple[int, Part, Index]], out: Tile) -> None:
        """**Local.** Copy parts of tiles, by number, to places in ``out``."""
        asked: list[Ask] = []
        answers: list[tuple[Index, Tile]] = []
        for shard, part, where in parts:
            view = self.views[shard]
            if view is not None:
                out[where] = view[part.index(view.shape)]
                continue
            piece: Any = out[(*where, ...)]
            if not (np.may_share_memory(piece, out) and piece.flags.c_contiguous):
                piece = np.empty(part.shape, self.dtype)
                answers.append((where, piece))
            if shard in self.peeked:
                self.peeked[shard].read(part, piece)
            else:
                asked += self._asks(shard, part, piece)
        self._ask(asked)
        for where, piece in answers:
            out[where] = piece
