"""A chain of layers, forth and back, whose weights lie in a file: tasks, their work, and straight on.

Tiles lie in memory that is used again: new pages cost more than a read from a quick disk.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.spill_file import aligned_memory
from redist.runtime.lanes.stores import TileStore, bytes_of
from redist.runtime.lanes.vertex_table import TaskWork

F32 = np.dtype(np.float32)
SMALL_BYTES = 2**14
"""Smaller tiles come from NumPy."""


class HostTiles:
    """Makes arrays for tiles, by number, and keeps the memory of dead ones for the next.

    Living and kept memory together stay within ``most_bytes``, as long as the living does: what is kept goes
    first. Arrays begin with a page, so that direct I/O needs no buffer. One thread at a time may call it;
    arrays may die in any.

    >>> tiles = HostTiles([(64, 64)] * 3, [np.dtype("f8")] * 3, 2**16)
    >>> one = tiles(0)
    >>> address = one.ctypes.data
    >>> del one
    >>> tiles(1).ctypes.data == address, tiles.kept_bytes
    (True, 0)
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype[Any]],
        most_bytes: int | None = None,
    ) -> None:
        self._shapes, self._dtypes, self._most = shapes, dtypes, most_bytes
        self._dead: deque[mmap.mmap] = deque()
        self._free: dict[int, list[mmap.mmap]] = {}
        self.live_bytes = self.kept_bytes = 0
        """Of arrays that live, and of memory that is kept: as of the last call, in whole pages."""

    def __call__(self, tile: int) -> Any:
        """**Local.** A new array for a tile, with whatever its memory held."""
        shape, dtype = self._shapes[tile], self._dtypes[tile]
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes < SMALL_BYTES:
            return np.empty(shape, dtype)
        memory = self._take(-(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        owner = _TileOwner(memory)
        weakref.finalize(owner, self._dead.append, memory).atexit = False
        return np.asarray(owner)[:n_bytes].view(dtype).reshape(shape)

    def _take(self, size: int) -> mmap.mmap:
        while self._dead:
            memory = self._dead.popleft()
            self.live_bytes -= len(memory)
            self.kept_bytes += len(memory)
            self._free.setdefault(len(memory), []).append(memory)
        self.live_bytes += size
        found = self._free.get(size)
        if found:
            self.kept_bytes -= size
            return found.pop()
        if self._most is not None:
            self.forget(self._most - self.live_bytes)
        return aligned_memory(size)

    def forget(self, most_bytes: int = 0) -> None:
        """**Local.** Give kept memory back until at most so much is left."""
        while self.kept_bytes > max(0, most_bytes):
            size = max(self._free)
            found = self._free[size]
            if found:
                found.pop()
                self.kept_bytes -= size
            else:
                del self._free[size]


class _TileOwner:
    """Lives as long as an array looks at the memory."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.__array_interface__ = np.frombuffer(memory, np.uint8).__array_interface__


@dataclass(frozen=True, slots=True)
class LayerChain:
    """``n_layers`` products of ``rows`` rows with square weights of ``side``, then the same back.

    Tiles: weights, the input, the value after each layer, what comes back through each layer.
    """

    n_layers: int
    rows: int
    side: int

    @property
    def weight_bytes(self) -> int:
        """Of one layer."""
        return self.side * self.side * F32.itemsize

    @property
    def value_bytes(self) -> int:
        """Of one value."""
        return self.rows * self.side * F32.itemsize

    def tasks(self, task_ps: int) -> TaskList:
        """The tasks, each of which is expected to take so long."""
        n = self.n_layers
        tiles = [MemoryTile(self.weight_bytes, (1,), (1,), name=f"weight {k}") for k in range(n)]
        tiles += [MemoryTile(self.value_bytes, name=f"value {k}") for k in range(n + 1)]
        tiles[n] = MemoryTile(self.value_bytes, (0,), (0,), True, "input")
        tiles += [MemoryTile(self.value_bytes, name=f"back {k}") for k in range(n)]
        tiles[-1] = MemoryTile(self.value_bytes, ends=(0,), name="result")
        tasks = [
            MemoryTask(f"forth {k}", (k, n + k), (n + k + 1,), time_ps=task_ps) for k in range(n)
        ]
        last = 2 * n
        for step, k in enumerate(reversed(range(n))):
            made = 2 * n + 1 + step
            tasks.append(MemoryTask(f"back {k}", (k, n + k, last), (made,), time_ps=task_ps))
            last = made
        return TaskList(tuple(tiles), tuple(tasks))

    def work(self) -> list[TaskWork]:
        """What each task does."""
        return [TaskWork(forth)] * self.n_layers + [TaskWork(back)] * self.n_layers

    def tiles(self, most_bytes: int | None = None) -> HostTiles:
        """Makes arrays for tiles."""
        shapes = [
            (self.side if k < self.n_layers else self.rows, self.side)
            for k in range(3 * self.n_layers + 1)
        ]
        return HostTiles(shapes, [F32] * len(shapes), most_bytes)

    def values(self) -> tuple[list[Any], Any]:
        """Weights and input."""
        rng = np.random.default_rng(0)
        scale, make = np.float32(1 / np.sqrt(self.side)), self.tiles()
        weights = []
        for k in range(self.n_layers):
            weights.append(make(k))
            rng.standard_normal(out=weights[-1], dtype=np.float32)
            weights[-1] *= scale
        x = make(self.n_layers)
        rng.standard_normal(out=x, dtype=np.float32)
        return weights, x

    def straight(self, weights: list[Any], x: Any, make: HostTiles) -> Any:
        """The result with everything in memory, task after task."""
        values = [x]
        for weight in weights:
            values.append(make(self.n_layers))
            forth(weight, values[-2], values[-1])
        came = values.pop()
        for weight, value in zip(reversed(weights), reversed(values), strict=True):
            out = make(self.n_layers)
            back(weight, value, came, out)
            came = out
        return came


def forth(weight: Any, value: Any, out: Any) -> None:
    """The next value."""
    np.matmul(value, weight, out=out)
    np.maximum(out, 0, out=out)


def back(weight: Any, value: Any, came: Any, out: Any) -> None:
    """What comes back through a layer, where its value was positive."""
    np.matmul(came, weight.T, out=out)
    out *= value > 0


def given_to(store: TileStore, weights: list[Any], x: Any) -> dict[tuple[int, int], Any]:
    """Weights in a store, the input in memory."""
    given: dict[tuple[int, int], Any] = {(len(weights), 0): x}
    for number, weight in enumerate(weights):
        given[number, 1] = store.take(weight.nbytes)
        store.write(given[number, 1], bytes_of(weight))
    return given
