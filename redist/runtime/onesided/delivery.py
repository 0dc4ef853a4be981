"""Deliver records to ranks, sender by sender, with bounded staging."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.tiles import Ints
from redist.runtime.index_sets.part import Part
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.world import World
from redist.runtime.shm.segments import Bytes, Handle, find
from redist.text.units import ceil_div

# A write to a tile as bytes that travel: what to do, with which part, and the values or where they lie.


Tile = NDArray[Any]
REFERENCE = 6
"""Words that say where values lie, before their strides."""


def enclose(code: int, part: Part, values: Tile) -> Bytes:
    """A record with its values; those of size 1 along a dim stretch."""
    words = _head(code, 0, part, values)
    n_bytes = 8 * len(words) + values.nbytes
    record = np.empty(ceil_div(n_bytes, 8) * 8, np.uint8)
    record[: 8 * len(words)].view(np.int64)[:] = words
    body = record[8 * len(words) : n_bytes].view(values.dtype).reshape(values.shape)
    body[...] = values
    return record


def refer(code: int, part: Part, values: Any, place: Sequence[int]) -> Bytes:
    """A record for ranks of this node: the values stay where they are, at ``place``."""
    words = np.array([*place, *values.strides], dtype=np.int64)
    return np.concatenate([_head(code, 1, part, values), words]).view(np.uint8)


def segment_of(values: Tile, rank: int) -> tuple[int, ...]:
    """The place of values in this rank's shared memory."""
    found = find(values)
    assert found is not None
    handle, offset = found
    return rank, handle.pid, handle.fd, handle.number, handle.n_bytes, offset


def in_segment(place: Ints, shape: Sequence[int], dtype: np.dtype[Any], world: World) -> Tile:
    """**Local.** Values at a place in shared memory of the node, and their strides."""
    rank, pid, fd, number, size, offset = place[:REFERENCE].tolist()
    memory = world.map_segment(rank, Handle(pid, fd, number, size))
    return np.ndarray(shape, dtype, memory, offset, place[REFERENCE:].tolist())


def open_record(
    record: Bytes, dtype: np.dtype[Any], look: Callable[[Ints, Sequence[int]], Any]
) -> tuple[int, Part, Any]:
    """**Local.** What a record says: operation, part, values; ``look`` finds those that it refers to.

    >>> record = enclose(3, Part((range(4, 0, -2), np.array([5, 6]))), np.ones((2, 1)))
    >>> code, part, values = open_record(record, np.dtype("f8"), None)
    >>> code, part.dims, values.tolist()
    (3, (range(4, 0, -2), array([5, 6])), [[1.0], [1.0]])
    """
    words: Ints = record[: len(record) // 8 * 8].view(np.int64)
    code, refers = words[:2].tolist()
    part, n = Part.read(words[2:])
    at = 2 + n
    shape = words[at : at + len(part.dims)].tolist()
    at += len(part.dims)
    if refers:
        return code, part, look(words[at:], shape)
    n_bytes = math.prod(shape) * dtype.itemsize
    return code, part, record[8 * at : 8 * at + n_bytes].view(dtype).reshape(shape)


def once(values: Any) -> Any:
    """Undo broadcasting: dims with stride 0 become size 1.

    >>> once(np.broadcast_to(np.arange(3), (4, 3))).shape
    (1, 3)
    """
    dims = (slice(None if stride else 1) for stride in values.strides)
    return values[(*dims, ...)]  # with the dots it is a view, without dims too


def _head(code: int, refers: int, part: Part, values: Any) -> Ints:
    shape = np.array(values.shape, dtype=np.int64)
    return np.concatenate([np.array([code, refers], dtype=np.int64), part.words(), shape])


MESSAGE_BYTES = 2**20
"""Records travel in messages of at most this much; none is larger."""
EARLY_BYTES = 2**20
"""Up to this much is packed and sent at once."""
UNDER_WAY = 4
"""Messages that a sender has packed and that have not gone out."""


def deliver(
    world: World, records: Sequence[Sequence[Bytes]], take: Callable[[Bytes], None]
) -> None:
    """**Collective.** Give ``records[r]`` to rank r; ``take`` is called for each record that comes.

    A rank takes records in order of the ranks that give them and, from one rank, in the order given.
    It begins after every rank has come. Staging is a few messages, however much is delivered.
    """
    messages = [_messages(mine) for mine in records]
    counts = np.array([len(mine) for mine in messages], dtype=np.int64)
    coming = np.zeros(world.size, np.int64)
    world.wait([world.comm.Ialltoall(counts, coming)])
    early = _send_early(world, messages)
    for source in range(world.size):
        if source == world.rank:
            if early is None:
                _send(world, messages)
            for message in messages[world.rank]:
                for record in message:
                    take(record)
        elif coming[source]:
            _receive(world, source, int(coming[source]), take)
    if early:
        world.wait_for_messages(early)


def _send_early(world: World, messages: list[list[list[Bytes]]]) -> list[Any] | None:
    """Send at once if there is little to send, so that others need not wait; None if there is much."""
    others = [
        (rank, message)
        for rank, mine in enumerate(messages)
        for message in mine
        if rank != world.rank
    ]
    if sum(len(record) for _, message in others for record in message) > EARLY_BYTES:
        return None
    return [
        world.comm.Isend([_pack(message), MPI.BYTE], rank, Tag.RECORDS) for rank, message in others
    ]


def _messages(records: Sequence[Bytes]) -> list[list[Bytes]]:
    """Records in groups that fit a message, each behind a word with its size."""
    out: list[list[Bytes]] = []
    room = 0
    for record in records:
        need = 8 + len(record)
        if need > room:
            out.append([])
            room = MESSAGE_BYTES - 8
        out[-1].append(record)
        room -= need
    return out


def _send(world: World, messages: list[list[list[Bytes]]]) -> None:
    """Send to all others, a few messages at a time."""
    under_way: deque[Any] = deque()
    for k in range(max(map(len, messages))):
        for rank, mine in enumerate(messages):
            if rank == world.rank or k >= len(mine):
                continue
            if len(under_way) == UNDER_WAY:
                world.wait_for_messages([under_way.popleft()])
            under_way.append(world.comm.Isend([_pack(mine[k]), MPI.BYTE], rank, Tag.RECORDS))
    world.wait_for_messages(list(under_way))


def _receive(world: World, source: int, n: int, take: Callable[[Bytes], None]) -> None:
    """Take the messages of one rank; the next comes while one is taken."""
    buffers = [np.empty(MESSAGE_BYTES, np.uint8) for _ in range(min(2, n))]
    requests = [world.comm.Irecv([buffer, MPI.BYTE], source, Tag.RECORDS) for buffer in buffers]
    for k in range(n):
        world.wait_for_messages([requests[k % 2]])
        for record in _unpack(buffers[k % 2]):
            take(record)
        if k + 2 < n:
            requests[k % 2] = world.comm.Irecv([buffers[k % 2], MPI.BYTE], source, Tag.RECORDS)


def _pack(records: list[Bytes]) -> Bytes:
    """A message: how many records there are, then each behind its size."""
    words = np.array([len(records), *map(len, records)], dtype=np.int64).view(np.uint8)
    pieces = [words[:8]]
    for k, record in enumerate(records, 1):
        pieces += [words[8 * k : 8 * k + 8], record]
    return np.concatenate(pieces)


def _unpack(message: Bytes) -> Iterator[Bytes]:
    """The records of a message.

    >>> [bytes(r) for r in _unpack(_pack([np.frombuffer(b"one", "u1"), np.zeros(0, "u1")]))]
    [b'one', b'']
    """
    at = 8
    for _ in range(int(message[:8].view(np.int64)[0])):
        n = int(message[at : at + 8].view(np.int64)[0])
        yield message[at + 8 : at + 8 + n]
        at += 8 + n
