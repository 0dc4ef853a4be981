"""Device and pinned bytes that ranks really take during calls, against the bound of the plan.

Device bytes: what CuPy's pool has handed out, at every allocation. Pinned bytes: what is asked of
CuPy beyond the pool. A donated source cannot go back to the pool while its owner holds it: it serves
for tiles on the way where they fit into it, and the bound is that of a source that is kept.

As in ``mpirun -n 4 python -m tests.gpu.memory --only donated``.
"""

from __future__ import annotations

import argparse
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

import redist
from redist.runtime.phases import tile_shapes
from tests.mpi.together import all_well, main, meet

MIB = 2**20
TIMEOUT_S = 60.0
BOOKS_BYTES = 2**16
"""Tables of copies on the device, where a limit leaves no staging to have them in."""
GRAIN_BYTES = 512
"""The pool rounds every array up to a multiple."""
ROWS = ("f32[2048{x}, 2048]", "f32[2048, 2048{x}]")
UNEVEN = ("f32[1001{x}, 15, 555]", "f32[1001, 15, 555{x}]")
SWAP = ("f32[2048{x}, 2048{y}]", "f32[2048{y}, 2048{x}]")
SCATTER = ("f32[1024, 2048] sum{x}", "f32[1024{x}, 2048]")
REDUCE = ("f32[1024, 1024] sum{x}", "f32[1024, 1024]")
STEPS = {"strategy": "no_permute"}
MPI_ONLY = {"transport": "mpi"}


@dataclass(frozen=True)
class Way:
    """A problem and how it is moved; ``limit_bytes`` is what is granted beyond both ends."""

    name: str
    problem: tuple[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    grid: bool = False
    limit_bytes: int | None = None


WAYS = (
    Way("ipc", ROWS),
    Way("ipc uneven", UNEVEN),
    Way("ipc limit", ROWS, limit_bytes=MIB // 2),
    Way("ipc exact", ROWS, limit_bytes=0),
    Way("ipc donated", ROWS, {"donate": True}),
    Way("staged", ROWS, MPI_ONLY),
    Way("staged uneven", UNEVEN, MPI_ONLY),
    Way("staged limit", ROWS, MPI_ONLY, limit_bytes=MIB // 2),
    Way("nodes", ROWS, {"node_size": 2}),
    Way("steps", SWAP, STEPS, grid=True),
    Way("steps donated", SWAP, {**STEPS, "donate": True}, grid=True),
    Way("steps staged", SWAP, {**STEPS, **MPI_ONLY}, grid=True),
    Way("steps staged donated", SWAP, {**STEPS, **MPI_ONLY, "donate": True}, grid=True),
    Way("scatter", SCATTER),
    Way("scatter staged", SCATTER, MPI_ONLY),
    Way("reduce", REDUCE),
    Way("reduce staged", REDUCE, MPI_ONLY),
)


class Counted:
    """The most device bytes of the pool, and the most pinned bytes, at any moment."""

    def __init__(self) -> None:
        self.device = self.pinned = 0
        self._live = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count while inside, from what is there at the beginning."""
        import cupy
        from cupy.cuda.memory_hook import MemoryHook

        pool = cupy.get_default_memory_pool()
        base = pool.used_bytes()
        count = self

        class Hook(MemoryHook):  # type: ignore[misc]
            name = "redist.tests"

            def malloc_postprocess(self, **what: Any) -> None:
                count.device = max(count.device, pool.used_bytes() - base)

        real = cupy.cuda.PinnedMemory

        def pinned(n_bytes: int, *more: Any) -> Any:
            memory = real(n_bytes, *more)
            count._pin(n_bytes)
            weakref.finalize(memory, count._pin, -n_bytes)
            return memory

        with Hook(), patch.object(cupy.cuda, "PinnedMemory", pinned):
            yield

    def _pin(self, n_bytes: int) -> None:
        self._live += n_bytes
        self.pinned = max(self.pinned, self._live)


def moved(way: Way, comm: MPI.Comm, count: Counted) -> redist.Transfer:
    """Make a transfer and move twice, as a user would: new arrays in, new arrays out."""
    import cupy

    source, target = way.problem
    mesh = redist.Mesh(x=2, y=comm.size // 2) if way.grid else redist.Mesh(x=comm.size)
    options = dict(way.options)
    if way.limit_bytes is not None:
        free = redist.synthesize(source, target, mesh=mesh)
        options["limit_bytes"] = free.source.tile_bytes + free.target.tile_bytes + way.limit_bytes
    transfer = redist.Transfer(source, target, comm, mesh=mesh, timeout_s=TIMEOUT_S, **options)
    shape = tile_shapes(transfer.plan.source)[comm.rank]
    dtype = transfer.plan.source.dtype.to_numpy()
    with count.watching():
        for _ in range(2):
            local = cupy.full(shape, comm.rank + 1, dtype)
            out = transfer(local)
            del local, out
    cupy.cuda.get_current_stream().synchronize()
    meet(comm)
    return transfer


def wrong_with(way: Way, comm: MPI.Comm) -> str | None:
    """What this rank takes beyond the bound; rank 0 prints the worst of all."""
    own, count = comm.Dup(), Counted()
    transfer = moved(way, own, count)
    plan = transfer.plan
    staging = max(step.staging_bytes for step in plan.steps)
    transfer.close()
    del transfer
    own.Free()
    gc.collect()
    bound = plan.peak_bytes
    if len(plan.steps) > 1:  # a donated array lives as long as its owner holds it
        bound = plan.peak_bytes_if_kept
    device_bound = bound + 4 * GRAIN_BYTES
    if way.limit_bytes is not None:
        device_bound += BOOKS_BYTES
    figures = bound, count.device, staging, count.pinned
    worst = [comm.allreduce(n, op=MPI.MAX) for n in figures]
    if comm.rank == 0:
        steps = " ".join(step.op for step in plan.steps)
        print(f"{way.name:21s} {steps:24s}", *(f"{n / MIB:9.3f}" for n in worst), flush=True)
    if count.device > device_bound:
        return f"{count.device} bytes of the device, bound {device_bound}"
    if count.device < plan.source.tile_bytes:
        return f"{count.device} bytes of the device: they were not counted"
    if count.pinned > staging:
        return f"{count.pinned} pinned bytes, staging {staging}"
    if "staged" in way.name and not count.pinned:
        return "no pinned bytes: they were not counted"
    return None


def program() -> int:
    """0 if no rank takes more than its plan says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    ways = [way for way in WAYS if args.only in way.name and (comm.size > 2 or not way.grid)]
    wrong = 0
    if comm.rank == 0:
        print(f"{'MiB on the worst rank':46s}     bound    device   staging    pinned")
    for way in ways:
        wrong += not all_well(comm, way.name, wrong_with(way, comm))
    if comm.rank == 0:
        print(f"{len(ways) - wrong} of {len(ways)} ways keep the bound", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
