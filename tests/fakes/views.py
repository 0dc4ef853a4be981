"""Random views of arrays, for tests of strided copies."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def random_shape(rng: Random, most_dims: int = 4, most_elems: int = 600) -> tuple[int, ...]:
    """A shape; dims of one element and of none are common."""
    shape: list[int] = []
    left = most_elems
    for _ in range(rng.randint(0, most_dims)):
        shape.append(rng.choice([n for n in (0, 1, 1, 2, 2, 3, 3, 4, 5, 7) if n <= left]))
        left //= max(1, shape[-1])
    return tuple(shape)


def random_view(
    rng: Random, shape: tuple[int, ...], itemsize: int, repeats: bool = False
) -> tuple[Array, Array]:
    """Random bytes, and a view of them: dims in any order, with gaps, backwards, repeated if asked."""
    order = list(range(len(shape)))
    rng.shuffle(order)
    steps = [rng.choice((1, 1, 1, 2, 3, -1, -2)) for _ in shape]
    wide = [n * abs(step) + rng.choice((0, 0, 1, 2)) for n, step in zip(shape, steps, strict=True)]
    shift = rng.choice((0, 0, 1, 3))
    n_bytes = int(np.prod(wide, dtype=np.int64)) * itemsize
    memory = np.frombuffer(rng.randbytes(n_bytes + shift), np.uint8).copy()
    dtype = np.dtype((np.void, itemsize))
    stored = memory[shift:].view(dtype).reshape([wide[i] for i in order])
    view = stored.transpose(np.argsort(order)) if shape else stored.reshape(())
    for dim, (n, step) in enumerate(zip(shape, steps, strict=True)):
        at: list[Any] = [slice(None)] * len(shape)
        at[dim] = slice(None, None, step)
        view = view[tuple(at)]
        at[dim] = slice(0, n)
        view = view[tuple(at)]
    if repeats:
        for dim in range(len(shape)):
            if shape[dim] and rng.random() < 0.3:
                first = view[(*[slice(None)] * dim, slice(0, 1))]
                view = np.broadcast_to(first, shape)
    assert view.shape == shape
    return memory, view
