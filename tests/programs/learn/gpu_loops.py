"""Loops over pairs of points on a GPU, and of a growing tree, against NumPy and C; NumPy stands for CuPy.

As in ``python -m tests.programs.learn.gpu_loops``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from redist.learn.kernels.cuda import near
from redist.learn.kernels.cuda.near import OutsideOnGpu
from redist.learn.near.spanning_tree import Apart, OutsideTree, step_of
from redist.runtime.cuda.arrays import to_device, to_host
from redist.spmd import ExactGrid
from tests.fakes import numpy_cupy as standin
from tests.programs.together import main, run_named

SHAPES = ((300, 1, 2100), (1, 3, 40), (131, 3, 1), (260, 33, 300), (129, 20, 800))
"""Points, dims, others: of one tile and several, of one block and several."""


def pairs() -> Iterator[tuple[Any, Any, Any, float]]:
    """Points, others, the squares of their distances added dim by dim, and a limit that some meet."""
    for seed, (n, d, m) in enumerate(SHAPES):
        random = np.random.default_rng(seed)
        for dtype in (np.float64, np.float32):
            points, others = (random.normal(size=(size, d)).astype(dtype) for size in (n, m))
            if d == 3:
                points, others = np.rint(points * 2), np.rint(others * 2)  # so that distances tie
            far = np.zeros((n, m))
            for one, other in zip(points.T.astype(float), others.T.astype(float), strict=True):
                far += (one[:, None] - other) ** 2
            yield points, others, far, float(np.sort(far, axis=None)[far.size // 9])


def same(got: Any, want: Any) -> str | None:
    """What is wrong if an array of the GPU has other bits than one of NumPy."""
    found = to_host(got)
    return None if np.array_equal(found, want) else f"{found} instead of {want}"


def weighing() -> Iterator[str | None]:
    """Weights of what is near: given ones, and 1 each."""
    for points, others, far, limit in pairs():
        given = np.random.default_rng(1).integers(-9, 99, (2, len(others))) / 8
        for weights in (None, given):
            sums = to_device(np.zeros((2, len(points))))
            theirs = None if weights is None else to_device(weights)
            near.weigh_near(to_device(points), to_device(others), limit, theirs, sums)
            known = np.stack([np.ones(len(others)), np.zeros(len(others))])
            yield same(sums, (known if weights is None else weights) @ (far <= limit).T)


def joining() -> Iterator[str | None]:
    """Parts of what is near, of points among themselves and with others; then of what is told."""
    for points, others, far, limit in pairs():
        n, m = far.shape
        graph = np.zeros((n + m, n + m))
        graph[:n, n:] = far <= limit
        numbers = [to_device(np.arange(*ends, dtype=np.int32)) for ends in ((0, n), (n, n + m))]
        parent = to_device(np.arange(n + m, dtype=np.int32))
        own, theirs = to_device(points), to_device(others)
        near.join_near(own, numbers[0], theirs, numbers[1], limit, parent)
        near.flatten(own, parent)
        yield same(parent, lowest(graph))
        within = np.zeros((m, m))
        for column in others.T.astype(float):
            within += (column[:, None] - column) ** 2
        graph[n:, n:] = within <= limit / 4
        near.join_near(theirs, numbers[1], theirs, numbers[1], limit / 4, parent)
        told = np.arange(n + m, dtype=np.int32)
        told[n // 2 :: 7] = n // 2
        graph[told, np.arange(n + m)] = 1
        near.join_told(own, parent, to_device(told))
        near.flatten(own, parent)
        yield same(parent, lowest(graph))


def lowest(graph: Any) -> Any:
    """The lowest number of every number's part."""
    count, parts = connected_components(graph, directed=False)
    least = np.full(count, len(parts))
    np.minimum.at(least, parts, np.arange(len(parts)))
    return least[parts]


def least_labels() -> Iterator[str | None]:
    """The least label of what is near."""
    for points, others, far, limit in pairs():
        theirs = np.random.default_rng(2).permutation(len(others)).astype(np.int32)
        labels = to_device(np.full(len(points), 700, np.int32))
        near.least_near(to_device(points), to_device(others), to_device(theirs), limit, labels)
        yield same(labels, np.where(far <= limit, theirs, 700).min(axis=1, initial=700))


def nearest() -> Iterator[str | None]:
    """The least distances, all distances, and the nearest of all."""
    for points, others, far, _ in pairs():
        own, theirs = to_device(points), to_device(others)
        for k in (1, 7):
            least = to_device(np.full((k, len(points)), np.inf))
            half = len(others) // 2
            near.least_squares(own, to_device(others[:half]), least)
            near.least_squares(own, to_device(others[half:]), least)
            padded = np.column_stack([far, np.full((len(far), k), np.inf)])
            yield same(least, np.sort(padded, axis=1)[:, :k].T)
        every = to_device(np.empty(far.T.shape))
        near.all_squares(own, theirs, every)
        yield same(every, far.T)
        which, least = near.nearest_of(own, theirs)
        yield same(which, far.argmin(axis=1))
        yield same(least, far.min(axis=1))


def sums() -> Iterator[str | None]:
    """Exact sums of what is near, and how many there are."""
    for points, others, far, limit in pairs():
        grid = ExactGrid.for_sum(float(np.abs(others).max()), len(others))
        is_near = far <= limit
        parts = grid.split(others.astype(float))
        want = [is_near @ parts[0], is_near @ parts[1], is_near.sum(axis=1)]
        found = near.sums_near(to_device(points), to_device(others), limit, grid)
        yield same(found, np.column_stack(want))


def trees() -> Iterator[str | None]:
    """A tree that grows step by step, and one that grows alone, as on the host."""
    for points, others, _, limit in pairs():
        rows = np.concatenate([others, points]).astype(float)
        core = np.abs(rows).min(axis=1)
        one_sided = Apart(most=limit, unit=1e15, both=False, fused=len(rows) % 2 > 0)
        for apart in (Apart(1.0), Apart(0.7), one_sided):
            want = np.empty((len(rows), rows.shape[1] + 4))
            want[0] = 0, 0, 0, core[0], *rows[0]
            found, offer = np.empty((len(rows), 3)), np.empty_like(want[0])
            host = OutsideTree(rows, core, 0)
            alone, one = (
                OutsideOnGpu(to_device(rows), to_device(core), 0, apart) for _ in range(2)
            )
            for outside in (host, alone, one):
                outside.state[1] = 0
            step = step_of(host, apart)
            for i in range(1, len(rows)):
                step(want[i - 1], want[i])
            alone.grow_alone(want[0], found)
            yield same(found, want[:, :3])
            for i in range(1, len(want) // 9):
                one.grow(want[i - 1], offer)
                yield same(offer, want[i])


def first_wrong(check: Callable[[], Iterator[str | None]]) -> Callable[[], str | None]:
    """The first thing that a check finds."""
    return lambda: next(filter(None, check()), None)


CHECKS: dict[str, Callable[[], str | None]] = {
    check.__name__: first_wrong(check)
    for check in (weighing, joining, least_labels, nearest, sums, trees)
}


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-gpu", action="store_true")
    if not parser.parse_args().with_gpu:
        standin.install()
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
