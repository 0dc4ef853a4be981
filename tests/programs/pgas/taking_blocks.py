"""Blocks of random grids become global arrays of random types, each block taken once and by whom it concerns.

As in ``mpirun -n 3 python -m tests.programs.pgas.taking_blocks --n 20 --seed 1``. The blocks are slices of an
array that all ranks have: tests/programs/foreign has those of Dask and Ray.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.layout.tiles import boxes_of
from redist.measure.memory import can_measure, held_bytes, peak_bytes
from redist.pgas.files.blocks import LEAST_BYTES
from redist.pgas.files.shares import Wanted
from redist.pgas.foreign.blocks import BlockGrid, Index, take_blocks
from redist.pgas.memory import BUFFERS
from tests.programs.pgas.reading import refused
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
SLACK = 2**20
"""For objects of Python, and pages that the allocator rounds up."""


class Blocks:
    """An array in blocks, and which of them this rank took."""

    def __init__(self, values: Any, sizes: Sequence[Sequence[int]]) -> None:
        self.values = np.asarray(values)
        self.grid = BlockGrid(tuple(map(tuple, sizes)), self.values.dtype.newbyteorder("="))
        self.taken: list[Index] = []

    def box(self, index: Index) -> tuple[slice, ...]:
        """Where a block lies."""
        starts = [self.grid.starts(dim) for dim in range(len(index))]
        return tuple(slice(at[i], at[i + 1]) for at, i in zip(starts, index, strict=True))

    def take(self, indices: Sequence[Index]) -> list[Any]:
        """Some blocks, as copies."""
        self.taken += indices
        return [self.values[self.box(index)].copy() for index in indices]

    def array(self, cut: Any = None, limit: Any = None, **where: Any) -> pgas.Array:
        """**Collective.** A global array of them."""
        wanted = Wanted(COMM, cut, where.get("mesh"), None)
        return take_blocks("test blocks", lambda: self.grid, self.take, wanted, limit)


def random_sizes(rng: random.Random, n: int) -> list[int]:
    """Sizes of blocks along a dim; some are 0."""
    edges = sorted([0, n, *(rng.randint(0, n) for _ in range(rng.randint(0, 4)))])
    return [hi - lo for lo, hi in pairwise(edges)]


def meshes() -> list[redist.Mesh]:
    """Lines of all ranks, of some, and grids of all."""
    n = COMM.size
    found = [redist.Mesh(x=n), redist.Mesh({"x": n}, ranks=range(n - 1, -1, -1))]
    if n > 1:
        found.append(redist.Mesh({"x": n - 1}, ranks=range(1, n)))
    if n % 2 == 0:
        found.append(redist.Mesh(x=2, y=n // 2))
    return found


def random_cut(rng: random.Random, mesh: redist.Mesh, shape: Sequence[int]) -> str:
    """The cuts of a type for an array of this shape."""
    axes = [name for name, _ in mesh.axes]
    rng.shuffle(axes)
    cuts = ["{}"] * len(shape)
    for name in axes:
        if shape and rng.random() < 0.8:
            dim = rng.randrange(len(shape))
            cuts[dim] = "{" + ",".join([*filter(None, [cuts[dim][1:-1]]), name]) + "}"
    sizes = dict(mesh.axes)
    if shape and rng.random() < 0.2 and "{x}" in cuts:
        dim = cuts.index("{x}")
        rest = shape[dim]
        parts = []
        for left in range(sizes["x"], 0, -1):
            parts.append(rest if left == 1 else rng.randint(0, rest))
            rest -= parts[-1]
        cuts[dim] = f"{shape[dim]}{{x={';'.join(map(str, parts))}}}" if sizes["x"] > 1 else "{}"
    return ", ".join(cuts)


def random_grids(n: int, seed: int) -> str | None:
    """Every array equals NumPy's, every block was taken by one rank, whose tile has elements of it."""
    rng = random.Random(seed)
    for turn in range(n):
        shape = [rng.choice([1, 2, 5, 9, 16]) for _ in range(rng.randint(0, 3))]
        dtype = rng.choice(["f8", "f4", "i2", "u1", "c16", ">f4", "?"])
        values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        blocks = Blocks(values, [random_sizes(rng, k) for k in shape])
        mesh = rng.choice(meshes())
        cut = random_cut(rng, mesh, shape)
        limit = rng.choice([None, "1MiB", LEAST_BYTES + 2 * blocks.grid.largest_bytes])
        case = f"case {turn} of seed {seed}: {blocks.grid} to {cut!r} on {mesh} within {limit}"
        a = blocks.array(cut, limit, mesh=mesh)
        if not np.array_equal(a.gather(), values) or a.dtype != values.dtype.newbyteorder("="):
            return f"{case}: {a.gather()}"
        every = [one for taken in COMM.allgather(blocks.taken) for one in taken]
        if sorted(every) != sorted(blocks.grid.indices()):
            return f"{case}: taken {every}"
        tile = None if a.type.segments else boxes_of(a.type).get(COMM.rank)
        for index in blocks.taken:
            box = [(one.start, one.stop) for one in blocks.box(index)]
            if a.type.segments:
                continue
            if tile is None or any(
                max(lo, at) >= min(hi, end) for (lo, hi), (at, end) in zip(box, tile, strict=True)
            ):
                return f"{case}: rank {COMM.rank} took {index}, which is not in its tile"
    return None


def aligned_blocks_do_not_move() -> str | None:
    values = np.arange(8.0 * COMM.size * 6).reshape(-1, 6)
    blocks = Blocks(values, [[4] * (2 * COMM.size), [3, 3]])
    with redist.trace() as seen:
        blocks.array("{x}, {}")
    moved, crossing = seen.received_bytes, Blocks(values, [[8 * COMM.size], [1] * 6])
    with redist.trace() as seen:
        crossing.array("{x}, {}")
    missing = (
        values.nbytes // COMM.size
        - sum(map(crossing.grid.block_bytes, crossing.taken)) // COMM.size
    )
    if seen.received_bytes != missing:
        return f"received {seen.received_bytes} of {missing}"
    return None if moved == 0 and len(blocks.taken) == 4 else f"moved {moved}, took {blocks.taken}"


def work_is_shared_out() -> str | None:
    """Where all tiles have about as much of every block, each rank takes as many."""
    for cut, columns in (("{}, {}", 2), ("{}, {x}", 17 * COMM.size - 1)):
        values = np.ones((12 * COMM.size, columns))
        blocks = Blocks(values, [[3] * (4 * COMM.size), [columns]])
        blocks.array(cut)
        if len(blocks.taken) != 4:
            return f"{cut}: took {len(blocks.taken)} of {4 * COMM.size}"
    return None


def beyond(once: Callable[[], None]) -> int:
    """**Collective.** What a call takes at its worst; the lower of two tries: others may add to it."""
    found = []
    for _ in range(2):
        BUFFERS.forget()  # the tile of the call before
        before = held_bytes(COMM)
        found.append(peak_bytes(COMM, once) - before)
    return min(found)


def the_limit_holds() -> str | None:
    """32 MiB in blocks of 256 KiB across tiles: what is taken beside the tile, as the kernel counts."""
    if not can_measure(COMM):
        return None
    n = 2048
    blocks = Blocks(np.broadcast_to(np.arange(float(n)), (n, n)), [[n], [16] * (n // 16)])
    for limit in (2**20, 4 * 2**20, 16 * 2**20):
        kept: list[Any] = []

        def once(limit: int = limit, kept: list[Any] = kept) -> None:
            kept[:] = [blocks.array("{x}, {}", limit)]

        once()
        tile = kept[0].local.nbytes
        kept.clear()
        took = COMM.allreduce(beyond(once) - tile, MPI.MAX)
        kept.clear()
        if took > limit + SLACK:
            return f"within {limit}: took {took} beside a tile of {tile}"
    least = LEAST_BYTES + 2 * blocks.grid.largest_bytes
    blocks.array("{x}, {}", least)
    said = refused(partial(blocks.array, "{x}, {}", least - 1))
    return None if f"limit_bytes={least}" in said else said


def failures_are_one_error() -> str | None:
    last = COMM.size - 1

    class Failing(Blocks):
        def take(self, indices: Sequence[Index]) -> list[Any]:
            if COMM.rank == last:
                raise ZeroDivisionError("no such luck")
            return super().take(indices)

    class Other(Blocks):
        def take(self, indices: Sequence[Index]) -> list[Any]:
            return [one.astype("f4") for one in super().take(indices)]

    class Masked(Blocks):
        def take(self, indices: Sequence[Index]) -> list[Any]:
            return [np.ma.masked_equal(one, 0) for one in super().take(indices)]

    values = np.arange(24.0 * COMM.size).reshape(-1, 4)
    sizes = [[6] * COMM.size, [4]]
    rows = "{x}, {}"
    wrong = [
        (f"take block ({last}, 0) of test blocks: ZeroDivisionError: no such luck",
         lambda: Failing(values, sizes).array(rows)),
        ("it is float32[6, 4], and should be float64[6, 4]", lambda: Other(values, sizes).array(rows)),
        ("mask", lambda: Masked(values, sizes).array(rows)),
        ("3 dims, but the array has 2", lambda: Blocks(values, sizes).array("{x}, {}, {}")),
        ("as a number of bytes", lambda: Blocks(values, sizes).array(rows, "many")),
    ]  # fmt: skip
    if COMM.size > 1:
        odd = [[6 * COMM.size], [4]] if COMM.rank else sizes
        wrong.append(("ranks disagree", lambda: Blocks(values, odd).array(rows)))
        t = f"f64[{6 * COMM.size}, 4] sum{{x}}"
        wrong.append(("nothing is pending", lambda: Blocks(values, sizes).array(t)))
    for words, work in wrong:
        said = refused(work)
        if words not in said:
            return f"{words}: {said}"
    return None if np.array_equal(Blocks(values, sizes).array(rows).gather(), values) else "broken"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


CHECKS = {
    "random grids": lambda: random_grids(parsed().n, parsed().seed),
    "aligned blocks do not move": aligned_blocks_do_not_move,
    "work is shared out": work_is_shared_out,
    "the limit holds": the_limit_holds,
    "failures are one error": failures_are_one_error,
}


def program() -> int:
    """**Collective.** 0 if all checks hold."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
