"""Pairs of points on a GPU: what is near each, how near the nearest are, and the sums of what is near.

Points are ``n, d`` arrays of one type on the GPU, floats of single or double precision. Distances are
compared as squares, worked out in double precision as scikit-learn's trees do: the same bits. Also a
spanning tree that grows on a GPU: the points outside it stay there, and so does what steps tell. And merges
by chains of nearest neighbours, whose steps follow each other without a word from the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.learn.kernels.library import C_TYPES, source_of
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for, n_processors, run_loop
from redist.spmd import ExactGrid, lies_on_gpu
from redist.text.progress import Said

THREADS = 128
"""Of a block; each looks after a point."""
MOST_DIMS = 2048
"""Points of more dims do not fit into a block's memory."""
MOST_NEAREST = 64
"""This many least distances a thread holds at most."""
HELD_BYTES, MOST_HELD, GROUP = 2**14, 1024, 8
"""What a block holds of the other points, at most; how many are compared at a time, as in pairs.cu."""
BLOCKS = 64
"""Blocks that are started for each processor, at most."""
FAR = np.inf
TREE_THREADS = 256
"""Of a block of a growing tree."""
TREE_BLOCKS = 4
"""Blocks for each processor, at most."""
STAGE = 4096
"""Steps after which fewer blocks may do."""
CHAIN_STAGE = 4096
"""Steps of a chain that are started before the host looks how many merges are done."""
SHARED_BYTES = 8 * (3 * TREE_THREADS + 1)
"""What a block takes of a processor's memory, as prim.cu lays it out."""


def can_stay(x: Any) -> bool:
    """**Local.** Whether these are rows on GPUs for which there are loops."""
    return bool(lies_on_gpu(x) and x.shape[-1] <= MOST_DIMS)


def weigh_near(points: Any, others: Any, limit: float, weights: Any, sums: Any) -> None:
    """**Local.** Add to ``sums`` (``2, n``) the weights of the others within a distance of each point.

    ``limit`` is the square of the distance. ``weights`` are coarse and fine parts, ``2, n``; None for 1 each.
    """
    jobs = _jobs(points, others)
    _run("near", "weigh", jobs, points, others, limit, weights, sums)


def join_near(
    points: Any, numbers: Any, others: Any, their_numbers: Any, limit: float, parent: Any
) -> None:
    """**Local.** Join each point with the others near it, in ``parent``; numbers ascend.

    What leads to itself in ``parent`` is the lowest number of its part.
    """
    jobs, n, d = _jobs(points, others), len(points), points.shape[1]
    if jobs:
        same = points is others
        run_loop(
            source_of("pairs", "near"), "join_near", _blocks(jobs), THREADS, points, n, numbers, others,
            len(others), their_numbers, limit, same, parent, options=_options(points),
            shared_bytes=8 * d * held(d),
        )  # fmt: skip


def least_near(points: Any, others: Any, their_labels: Any, limit: float, labels: Any) -> None:
    """**Local.** Lower the label of each point to the least of the others near it."""
    jobs = _jobs(points, others)
    _run("near", "least_near", jobs, points, others, their_labels, limit, labels)


def join_told(points: Any, parent: Any, told: Any) -> None:
    """**Local.** Join every number with the one told of it; ``points`` say which loops are there."""
    _run_plain(points, "join_told", parent, told, len(parent))


def flatten(points: Any, parent: Any) -> None:
    """**Local.** Let every number lead to the lowest of its part at once."""
    _run_plain(points, "flatten", parent, len(parent))


def least_squares(points: Any, others: Any, least: Any) -> None:
    """**Local.** Lower ``least`` (``k, n``, in order) to the squares of the least distances to the others."""
    blocks = -(-len(points) // THREADS) if len(others) else 0
    _run("nearest", "k_least", blocks, points, others, least, k=len(least))


def all_squares(points: Any, others: Any, far: Any, fused: bool = False) -> None:
    """**Local.** Write the squares of all distances into ``far``: ``others, points``."""
    _run("nearest", "all_squares", _jobs(points, others), points, others, far, fused=fused)


def nearest_of(points: Any, others: Any) -> tuple[Any, Any]:
    """**Local.** The number of the nearest of the others, of several the first, and the squared distance."""
    xp = functions_for(points)
    which, least = xp.zeros(len(points), np.int64), xp.full(len(points), FAR)
    blocks = -(-len(points) // THREADS) if len(others) else 0
    _run("nearest", "nearest", blocks, points, others, which, least)
    return which, least


def sums_near(places: Any, points: Any, limit: float, grid: ExactGrid) -> Any:
    """**Local.** Of the points near each place coarse and fine sums and the number: ``n, 2 d + 1``."""
    sums = functions_for(points).zeros((len(places), 2 * points.shape[1] + 1))
    _run("means", "sum_near", _jobs(places, points), places, points, limit, *grid.steps, sums)
    return sums


def held(d: int) -> int:
    """**Local.** How many of the others a block holds at a time.

    >>> held(2), held(16), held(1000)
    (1024, 128, 8)
    """
    fits = HELD_BYTES // (8 * d) // GROUP * GROUP
    return min(MOST_HELD, max(GROUP, fits))


def _jobs(points: Any, others: Any) -> int:
    """How many pairs of a block's points and of held ones there are."""
    return -(-len(points) // THREADS) * -(-len(others) // held(points.shape[1]))


def _blocks(jobs: int) -> int:
    return min(jobs, BLOCKS * n_processors())


def _options(points: Any, k: int = 1, fused: bool = False) -> tuple[str, ...]:
    d = points.shape[1]
    given = f"-DREAL={C_TYPES[points.dtype]}", f"-DDIMS={d}", f"-DHELD={held(d)}"
    return (*given, f"-DTHREADS={THREADS}", f"-DK={k}", f"-DFUSED={int(fused)}")


def _run(
    name: str, loop: str, jobs: int, points: Any, others: Any, *args: Any, k: int = 1,
    fused: bool = False,
) -> None:  # fmt: skip
    """**Local.** Start a loop over pairs, if there are any."""
    if jobs:
        d = points.shape[1]
        run_loop(
            source_of("pairs", name), loop, _blocks(jobs), THREADS, points, len(points), others,
            len(others), *args, options=_options(points, k, fused), shared_bytes=8 * d * held(d),
        )  # fmt: skip


def _run_plain(points: Any, loop: str, parent: Any, *args: Any) -> None:
    """**Local.** Start a loop with a thread for each number."""
    blocks = _blocks(-(-len(parent) // THREADS))
    source = source_of("pairs", "near")
    run_loop(source, loop, blocks, THREADS, parent, *args, options=_options(points))


class OutsideOnGpu:
    """As :class:`redist.learn.near.spanning_tree.OutsideTree`, on a GPU."""

    __slots__ = ("_apart", "_found", "_options", "_parts", "_told", "state")

    def __init__(self, rows: Any, core: Any, first: int, apart: Any) -> None:
        """``apart`` says how far points are apart: an ``Apart`` of the module that has the host's."""
        xp, (n, d) = functions_for(rows), rows.shape
        self._apart = float(apart.alpha), float(apart.most), float(apart.unit), FAR
        self._options = tuple(
            f"-D{name}={int(value)}"
            for name, value in (
                ("THREADS", TREE_THREADS),
                ("BOTH", apart.both),
                ("FUSED", apart.fused),
            )
        )
        self._parts = (
            xp.ascontiguousarray(rows.T, dtype=np.float64), xp.full(n, FAR), xp.full(n, -1, np.int64),
            xp.array(core, dtype=np.float64), xp.arange(first, first + n, dtype=np.int64), n, d,
        )  # fmt: skip
        self.state = xp.zeros(4, np.int64)
        """Places in use, the place offered last or -1, blocks that have arrived, steps that are done."""
        self.state[:2] = to_device(np.array([n, -1]))
        self._found = xp.zeros(TREE_BLOCKS * n_processors(), np.int64)
        self._told = xp.zeros((2, d + 4))

    def grow(self, added: Any, offer: Any) -> None:
        """**Local.** Let the tree have a point more, and offer the nearest of those outside; in memory."""
        self._told[0] = to_device(added)
        self._run(self._told, 0, self._parts[-2], 1)
        offer[:] = to_host(self._told[1])

    def grow_alone(self, added: Any, found: Any) -> None:
        """**Local.** Take all points, nearest first, into the rows of ``found``; nobody waits in between."""
        steps = len(found) - 1
        told = functions_for(self.state).zeros((steps + 1, len(added)))
        told[0] = to_device(added)
        for done in range(0, steps, STAGE):
            self._run(told, len(added), steps - done, min(STAGE, steps - done))
        found[:] = to_host(told[:, :3])

    def _run(self, told: Any, advance: int, n: int, times: int) -> None:
        """**Local.** Start steps for at most ``n`` points outside."""
        blocks = min(-(-n // TREE_THREADS), TREE_BLOCKS * n_processors())
        run_loop(
            source_of("least", "prim"), "grow", blocks, TREE_THREADS, *self._parts, self.state, told, advance,
            *self._apart, self._found, options=self._options,
            shared_bytes=SHARED_BYTES, times=times,
        )  # fmt: skip


def merge_on_gpu(linkage: int, far: Any, said: Said) -> Any:
    """**Local.** All merges of points in the order of chains, in memory; ``far`` is changed.

    ``linkage`` is its number in chain.cu.
    """
    xp, n = functions_for(far), len(far)
    blocks = min(-(-n // TREE_THREADS), n_processors())
    size, chain, merges = xp.ones(n), xp.zeros(n, np.int64), xp.zeros((n - 1, 4))
    # Length of the chain, where it begins, merges done, from, into, the last of the chain, the one before.
    state = to_device(np.array([1, 0, 0, -1, -1, 0, -1, 0]))
    places = xp.zeros(3), xp.zeros(blocks, np.int64), xp.zeros(blocks)
    options = f"-DTHREADS={TREE_THREADS}", f"-DLINKAGE={linkage}"
    done = 0
    while done < n - 1:
        run_loop(
            source_of("least", "chain"), "chain_step", blocks, TREE_THREADS, far, n, size, chain, merges,
            state, *places, np.inf, options=options, shared_bytes=SHARED_BYTES,
            times=min(CHAIN_STAGE, 3 * (n - done)),
        )  # fmt: skip
        done = int(to_host(state)[2])
        said(done, n - 1)
    return to_host(merges)
