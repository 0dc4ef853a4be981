"""What tiles are stored in: the protocol of a store, and one that is plain memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from redist.errors import SpillError

Bytes = NDArray[np.uint8]


class UnderWay(Protocol):
    """A task or copy that was started: ask whether it is done, then take its result."""

    def is_done(self) -> bool:
        """**Local.** Whether it has ended, well or not."""

    def wait(self) -> Any:
        """The result, once it is there; the error that ended it is raised."""


class TileStore(Protocol):
    """A place behind the memory that tasks work in.

    ``take`` and ``give`` are called by one thread at a time; ``write`` and ``read`` by several at once, for
    different ranges. A ``space`` is what ``take`` gives, and nobody else looks into it. Where ``starts``,
    ``write`` and ``read`` only start a copy and give what is under way.
    """

    starts: bool

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Make sure of room for this many bytes at once, or raise :class:`SpillError`."""

    def take(self, n_bytes: int) -> Any:
        """**Local.** Room for a copy of a tile: a space."""

    def give(self, space: Any) -> None:
        """**Local.** End a copy; its room may be taken again."""

    def write(self, space: Any, data: Any) -> UnderWay | None:
        """**Local.** Copy bytes there."""

    def read(self, space: Any, out: Any) -> UnderWay | None:
        """**Local.** Copy the first bytes from there, as many as ``out`` has."""

    def memory_of(self, space: Any) -> Bytes | None:
        """**Local.** The bytes of a copy, where the host can read and write them in place; else None."""

    def close(self) -> None:
        """**Local.** Give everything back. A second call does nothing."""


def memory_order(array: Any) -> tuple[int, ...] | None:
    """The dims of an array from the outermost in memory to the innermost; None if there are gaps.

    >>> memory_order(np.zeros((2, 3, 4)).transpose(1, 2, 0)), memory_order(np.zeros((4, 4))[:, :2])
    ((2, 0, 1), None)
    """
    if array.flags.c_contiguous:
        return tuple(range(array.ndim))
    order = sorted(range(array.ndim), key=lambda dim: (-array.strides[dim], dim))
    return tuple(order) if array.transpose(order).flags.c_contiguous else None


def bytes_of(array: Any) -> Any:
    """The memory of an array without gaps, as bytes, in whatever order its dims lie.

    >>> bytes_of(np.array([[1, 2], [3, 4]], "u1").T)
    array([1, 2, 3, 4], dtype=uint8)
    """
    order = memory_order(array)
    if order is None:
        raise SpillError(
            f"cannot store or load a tile of shape {array.shape} and strides {array.strides}: there are "
            "gaps in it; give a copy"
        )
    return array.transpose(order).reshape(-1).view(np.uint8)


class MemoryStore:
    """A store in plain memory, as for tests.

    >>> store = MemoryStore()
    >>> space = store.take(4)
    >>> store.write(space, np.arange(4, dtype=np.uint8))
    >>> out = np.zeros(4, np.uint8)
    >>> store.read(space, out)
    >>> out, store.live_bytes
    (array([0, 1, 2, 3], dtype=uint8), 4)
    """

    starts = False

    def __init__(self) -> None:
        self.live_bytes = 0

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Nothing: memory is there or is not."""

    def take(self, n_bytes: int) -> Bytes:
        """**Local.** Memory for a copy."""
        self.live_bytes += n_bytes
        return np.empty(n_bytes, np.uint8)

    def give(self, space: Bytes) -> None:
        """**Local.** Forget a copy."""
        self.live_bytes -= space.nbytes

    def write(self, space: Bytes, data: Bytes) -> None:
        """**Local.** Copy bytes there."""
        np.copyto(space[: data.nbytes], data)

    def read(self, space: Bytes, out: Bytes) -> None:
        """**Local.** Copy the first bytes from there."""
        np.copyto(out, space[: out.nbytes])

    def memory_of(self, space: Bytes) -> Bytes:
        """**Local.** The copy itself."""
        return space

    def close(self) -> None:
        """**Local.** Nothing: memory goes with those who hold it."""
