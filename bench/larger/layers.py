"""A chain of layers, forth and back, whose weights lie in a file: tasks, their work, and straight on.

Tiles lie in memory that is used again: new pages cost more than a read from a quick disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.memory import TileMemory
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.stores import TileStore, bytes_of
from redist.runtime.lanes.vertex_table import TaskWork

F32 = np.dtype(np.float32)
Make = Callable[[int], Any]
"""Makes an array for a tile, by number."""


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

    def tiles(self, memory: TileMemory) -> Make:
        """Makes arrays for tiles, with whatever their memory held."""

        def make(tile: int) -> Any:
            height = self.side if tile < self.n_layers else self.rows
            return memory.empty((height, self.side), F32, 0)

        return make

    def values(self) -> tuple[list[Any], Any]:
        """Weights and input."""
        rng = np.random.default_rng(0)
        scale, make = np.float32(1 / np.sqrt(self.side)), self.tiles(TileMemory())
        weights = []
        for k in range(self.n_layers):
            weights.append(make(k))
            rng.standard_normal(out=weights[-1], dtype=np.float32)
            weights[-1] *= scale
        x = make(self.n_layers)
        rng.standard_normal(out=x, dtype=np.float32)
        return weights, x

    def straight(self, weights: list[Any], x: Any, make: Make) -> Any:
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
