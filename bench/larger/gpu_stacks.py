"""Stacks of layers on a GPU whose weights lie in pinned memory: a chain of products, blocks of a model.

What a stage computes is written once, for arrays of CuPy and of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from redist.program.tasks import MemoryTask, MemoryTile, TaskList

F32 = np.dtype(np.float32)
HEAD, TOKENS = 128, 256
"""Elements of a head, and rows of a sequence, of which attention is computed together."""
SMALL = 1e-6


class Stage(NamedTuple):
    """A part of a layer: ``function(kernels, weight, *values, out)`` fills ``out``; a weight may be None.

    ``reads`` and ``makes`` name values: ``x`` is what comes from the layer before, ``y`` what goes on.
    """

    name: str
    weight: tuple[int, int] | None
    reads: tuple[str, ...]
    makes: str
    width: int
    function: Callable[..., None]
    staging_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GpuStack:
    """``n_layers`` times the same stages on ``rows`` rows; stages say how wide values are, ``x`` is ``side``.

    >>> chain(3, 8, 4).tasks(0).tasks[1].reads
    (1, 4)
    """

    name: str
    n_layers: int
    rows: int
    side: int
    stages: tuple[Stage, ...]

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Shapes of all weights, layer by layer."""
        one = [stage.weight for stage in self.stages if stage.weight is not None]
        return one * self.n_layers

    @property
    def weight_bytes(self) -> int:
        """Of all weights."""
        return sum(map(bytes_of_shape, self.weights))

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of all tiles: weights, the input, and what every stage makes."""
        made = [(self.rows, stage.width) for stage in self.stages] * self.n_layers
        return [*self.weights, (self.rows, self.side), *made]

    def tasks(self, stack_ps: int) -> TaskList:
        """The tasks; all together are expected to take so long, each as its weights are large."""
        n = len(self.weights)
        tiles = [MemoryTile(bytes_of_shape(shape), (1,), (1,)) for shape in self.weights]
        tiles.append(MemoryTile(self.rows * self.side * 4, (0,), (0,), True, "input"))
        tasks: list[MemoryTask] = []
        weight, x = 0, n
        for layer in range(self.n_layers):
            values = {"x": x}
            for stage in self.stages:
                reads = [values[name] for name in stage.reads]
                share = 0
                if stage.weight is not None:
                    reads.insert(0, weight)
                    share = stack_ps * bytes_of_shape(stage.weight) // self.weight_bytes
                    weight += 1
                values[stage.makes] = len(tiles)
                tiles.append(MemoryTile(self.rows * stage.width * 4))
                tasks.append(
                    MemoryTask(
                        f"{stage.name} {layer}", tuple(reads), (values[stage.makes],),
                        staging_bytes=stage.staging_bytes, time_ps=share,
                    )
                )  # fmt: skip
            x = values["y"]
        tiles[-1] = MemoryTile(tiles[-1].size_bytes, ends=(0,), name="result")
        return TaskList(tuple(tiles), tuple(tasks))

    def functions(self) -> list[Stage]:
        """The stages of all tasks."""
        return list(self.stages) * self.n_layers

    def run(
        self, kernels: Any, layer_of: Callable[[int], Sequence[Any]], x: Any, empty: Any
    ) -> Any:
        """Straight on: ``layer_of(k)`` gives the weights of a layer, ``empty(shape)`` a new value."""
        for layer in range(self.n_layers):
            weights, values = iter(layer_of(layer)), {"x": x}
            for stage in self.stages:
                weight = None if stage.weight is None else next(weights)
                out = empty((self.rows, stage.width))
                stage.function(kernels, weight, *(values[name] for name in stage.reads), out)
                values[stage.makes] = out
            x = values["y"]
        return x


def bytes_of_shape(shape: Sequence[int]) -> int:
    """Bytes of an array of float32."""
    return math.prod(shape) * F32.itemsize


def chain(n_layers: int, rows: int, side: int) -> GpuStack:
    """Products with square weights, each followed by ``max(0, x)``."""

    def layer(kernels: Any, weight: Any, x: Any, out: Any) -> None:
        kernels.matmul(x, weight, out)
        kernels.cut(out)

    stage = Stage("product", (side, side), ("x",), "y", side, layer)
    return GpuStack("GEMM chain", n_layers, rows, side, (stage,))


def blocks(n_layers: int, rows: int, side: int) -> GpuStack:
    """Blocks of a model: attention within sequences of :data:`TOKENS` rows, then two wide products."""
    heads, tokens = max(1, side // HEAD), min(TOKENS, rows)
    width = side // heads
    batch = rows // tokens
    row_bytes = rows * side * F32.itemsize
    scores_bytes = batch * heads * tokens * tokens * F32.itemsize

    def ask(kernels: Any, weight: Any, x: Any, out: Any) -> None:
        kernels.matmul(kernels.normed(x), weight, out)

    def attend(kernels: Any, _: Any, asked: Any, out: Any) -> None:
        parts = asked.reshape(batch, tokens, 3, heads, width)
        query, key, value = (kernels.permuted(parts[:, :, n], (0, 2, 1, 3)) for n in range(3))
        scores = kernels.product(query, kernels.permuted(key, (0, 1, 3, 2)))
        kernels.weigh(scores, 1 / math.sqrt(width))
        found = kernels.permuted(kernels.product(scores, value), (0, 2, 1, 3))
        out.reshape(batch, tokens, heads, width)[...] = found

    def join(kernels: Any, weight: Any, found: Any, x: Any, out: Any) -> None:
        kernels.matmul(found, weight, out)
        out += x

    def widen(kernels: Any, weight: Any, x: Any, out: Any) -> None:
        kernels.matmul(kernels.normed(x), weight, out)
        kernels.cut(out)

    stages = (
        Stage("ask", (side, 3 * side), ("x",), "asked", 3 * side, ask, 2 * row_bytes),
        Stage("attend", None, ("asked",), "found", side, attend, 2 * scores_bytes + 5 * row_bytes),
        Stage("join", (side, side), ("found", "x"), "between", side, join),
        Stage("widen", (side, 4 * side), ("between",), "wide", 4 * side, widen, 2 * row_bytes),
        Stage("narrow", (4 * side, side), ("wide", "between"), "y", side, join),
    )
    return GpuStack("transformer blocks", n_layers, rows, side, stages)


class StackKernels:
    """The kernels of stages, by CuPy on its current stream or by PyTorch: names that both have."""

    def __init__(self, library: Any) -> None:
        self._xp = library
        self.permuted = getattr(library, "permute", None) or library.transpose
        """A view with dims in another order."""

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        """A product of matrices."""
        self._xp.matmul(a, b, out=out)

    def product(self, a: Any, b: Any) -> Any:
        """Products of many small matrices."""
        return self._xp.matmul(a, b)

    def cut(self, x: Any) -> None:
        """Nothing below zero."""
        self._xp.clip(x, 0.0, math.inf, out=x)

    def normed(self, x: Any) -> Any:
        """Rows of mean square one."""
        return x / self._xp.sqrt(self._xp.mean(x * x, axis=1, keepdims=True) + SMALL)

    def weigh(self, scores: Any, scale: float) -> None:
        """Softmax along the last dim, in place."""
        scores *= scale
        scores -= self._xp.amax(scores, axis=-1, keepdims=True)
        self._xp.exp(scores, out=scores)
        scores /= self._xp.sum(scores, axis=-1, keepdims=True)
