"""A stack of transformer blocks with its weights cut over all ranks: what ``bench larger blocks`` runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.layouts.workload import error_of
from bench.peers.dask import DaskPrograms
from bench.report.figures import timed
from bench.report.job import say
from examples import transformer
from redist.program.memory_graph import MemoryGraph

HEADS = 8
N_NUMBERS = 4_194_301
"""So many random numbers are repeated: weights are made at the speed of memory, and no two rows are alike."""
CUTS: dict[str, int | None] = {
    **dict.fromkeys(("q", "k", "v", "gate", "up"), 1), "o": 0, "down": 0, "before": None, "between": None
}  # fmt: skip
"""By weight, the dim that is cut: heads and hidden elements, so that no weight has to move."""


@dataclass(frozen=True, slots=True)
class BlockStack:
    """``n_layers`` blocks of a ``width``, on sequences of ``tokens``; hidden elements are twice as many.

    >>> BlockStack(2, 64, 1, 8).weight_bytes == 2 * (10 * 64 * 64 + 2 * 64) * 4
    True
    """

    n_layers: int
    width: int
    sequences: int
    tokens: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights of a block."""
        return transformer.shapes(self.width, HEADS, 2 * self.width)

    @property
    def weight_bytes(self) -> int:
        """Of all blocks."""
        return self.n_layers * sum(4 * int(np.prod(shape)) for shape in self.shapes.values())

    def layer(self, number: int) -> dict[str, NDArray[Any]]:
        """The weights of a block; the same wherever they are made."""
        numbers = _numbers()
        weights: dict[str, NDArray[Any]] = {}
        for n, (name, shape) in enumerate(self.shapes.items()):
            weights[name] = np.ones(shape, "f4")
            if len(shape) > 1:
                inner = 2 * self.width if name == "down" else self.width
                fill(weights[name], numbers, 7919 * (10 * number + n))
                weights[name] *= np.float32(inner**-0.5)
        return weights

    def x(self) -> NDArray[Any]:
        """The input."""
        out = np.empty((self.sequences, self.tokens, self.width), "f4")
        fill(out, _numbers(), 0)
        return out

    def by_numpy(self) -> NDArray[Any]:
        """The result, with one block in memory at a time."""
        x: NDArray[Any] = self.x()
        for number in range(self.n_layers):
            x = transformer.block(np, x, self.layer(number))
        return x

    def __str__(self) -> str:
        return f"{self.n_layers} blocks of width {self.width}, {self.sequences} x {self.tokens} tokens f4"


@cache
def _numbers() -> NDArray[Any]:
    return np.random.default_rng(7).standard_normal(N_NUMBERS, dtype=np.float32)


def fill(out: NDArray[Any], numbers: NDArray[Any], first: int) -> None:
    """Write numbers one after another from the ``first`` on, and again from their beginning."""
    flat, at, first = out.reshape(-1), 0, first % len(numbers)
    while at < flat.size:
        part = numbers[first : first + flat.size - at]
        flat[at : at + part.size] = part
        at, first = at + part.size, 0


def largest_node_bytes(graph: MemoryGraph) -> int:
    """The most bytes that one task works on, staging included."""
    sizes = [tile.size_bytes for tile in graph.tasks.tiles]
    return max(task.staging_bytes + sum(sizes[n] for n in task.tiles) for task in graph.tasks.tasks)


ERROR = 1e-4


def measure(
    sizes: list[int], workers: int, limit_bytes: int, repeat: int, folder: str
) -> dict[str, Any]:
    """Weights are cut as redist's are, one chunk a worker; a worker may hold so many bytes of them."""
    stack, programs = BlockStack(*sizes), DaskPrograms(workers, limit_bytes, folder)
    given = programs.place(stack.x(), None)
    weights = [
        {name: programs.place(w, CUTS[name]) for name, w in stack.layer(number).items()}
        for number in range(stack.n_layers)
    ]
    call = programs.ready(partial(transformer.stack, programs.xp), [given, weights])
    error = error_of(programs.values(call()), [stack.by_numpy()])
    seconds = []
    for _ in range(repeat):
        seconds.append(timed(call)[0])
        say(f"larger: {programs.library} {seconds[-1]:.3f} s")
    spilled = programs.spilled_bytes()
    programs.close()
    about = {"library": programs.library, "times": seconds, "wrong": bool(error > ERROR)}
    return {**about, "spilled_bytes": spilled}
