"""Device and pinned bytes that ranks really take during calls, against the bound of the plan.

Device bytes: what CuPy's pool has handed out, at every allocation. Pinned bytes: what is asked of
CuPy beyond the pool. A donated source goes back to the pool where the plan says so, unless it is a
view: then the bound is that of a source that is kept.

As in ``mpirun -n 4 python -m tests.programs.gpu.memory --only donated``; ``--pretend`` needs no GPU.
"""

from __future__ import annotations

import argparse
import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

import redist
from redist.layout.tiles import tile_shapes
from tests.fakes import counted_gpu as lent
from tests.programs.together import all_well, main, meet

MIB = 2**20
TIMEOUT_S = 60.0
BOOKS_BYTES = 2**16
"""Tables of copies on the device, where a step has no staging to have them in."""
GRAIN_BYTES = 512
"""The pool rounds every array up to a multiple."""
ROWS = ("f32[2048{x}, 2048]", "f32[2048, 2048{x}]")
UNEVEN = ("f32[1001{x}, 15, 555]", "f32[1001, 15, 555{x}]")
SWAP = ("f32[2048{x}, 2048{y}]", "f32[2048{y}, 2048{x}]")
TURN = ("f32[2048{x,y}, 2048]", "f32[2048{y,x}, 2048]")
SCATTER = ("f32[1024, 2048] sum{x}", "f32[1024{x}, 2048]")
REDUCE = ("f32[1024, 1024] sum{x}", "f32[1024, 1024]")
SLICED = ("f32[1024, 1024] sum{x}", "f32[1024{y}, 1024{x}]")
SMALLER = {"2048": "256", "1024": "128", "1001": "101", "555": "55"}
"""Dims where nothing but bytes are counted."""
STEPS = {"strategy": "no_permute"}
MPI_ONLY = {"transport": "mpi"}
DONATE = {"donate": True}


@dataclass(frozen=True)
class Way:
    """A problem and how it is moved; ``room`` is granted beyond all tiles, in parts of a source's."""

    name: str
    problem: tuple[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    grid: bool = False
    room: float | None = None

    @property
    def is_view(self) -> bool:
        """Whether the source does not own its memory."""
        return "view" in self.name

    def ends(self, pretends: bool) -> tuple[str, str]:
        """Source and target."""
        source, target = self.problem
        for large, small in SMALLER.items() if pretends else ():
            source, target = source.replace(large, small), target.replace(large, small)
        return source, target


WAYS = (
    Way("ipc", ROWS),
    Way("ipc uneven", UNEVEN),
    Way("ipc limit", ROWS, room=1 / 8),
    Way("ipc exact", ROWS, room=0),
    Way("ipc donated", ROWS, DONATE),
    Way("staged", ROWS, MPI_ONLY),
    Way("staged uneven", UNEVEN, MPI_ONLY),
    Way("staged limit", ROWS, MPI_ONLY, room=1 / 8),
    Way("nodes", ROWS, {"node_size": 2}),
    Way("steps", SWAP, STEPS, grid=True),
    Way("steps donated", SWAP, {**STEPS, **DONATE}, grid=True),
    Way("steps donated limit", SWAP, {**STEPS, **DONATE}, grid=True, room=1 / 8),
    Way("steps donated view", SWAP, {**STEPS, **DONATE}, grid=True),
    Way("steps staged", SWAP, {**STEPS, **MPI_ONLY}, grid=True),
    Way("steps staged donated", SWAP, {**STEPS, **MPI_ONLY, **DONATE}, grid=True),
    Way("steps staged donated limit", SWAP, {**STEPS, **MPI_ONLY, **DONATE}, True, 1 / 8),
    Way("turn donated", TURN, {**STEPS, **DONATE}, grid=True),
    Way("turn nodes donated", TURN, {**STEPS, "node_size": 2, **DONATE}, True, 1 / 8),
    Way("sliced donated", SLICED, {**STEPS, **DONATE}, grid=True),
    Way("sliced donated limit", SLICED, {**STEPS, **DONATE}, grid=True, room=0),
    Way("scatter", SCATTER),
    Way("scatter staged", SCATTER, MPI_ONLY),
    Way("reduce", REDUCE),
    Way("reduce donated", REDUCE, DONATE),
    Way("reduce staged", REDUCE, MPI_ONLY),
)


class Counted:
    """The most device bytes of the pool, and the most pinned bytes, at any moment."""

    def __init__(self) -> None:
        self.device = self.pinned = 0
        self._live = 0
        self.shapes: list[tuple[int, ...]] = []
        """Of the sources, after the calls."""

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


def moved(way: Way, comm: MPI.Comm, count: Counted, pretends: bool) -> redist.Transfer:
    """Make a transfer and move twice, as a user would: new arrays in, new arrays out."""
    import cupy

    ends = way.ends(pretends)
    mesh = redist.Mesh(x=2, y=comm.size // 2) if way.grid else redist.Mesh(x=comm.size)
    options = dict(way.options)
    if way.room is not None:
        asked = {name: options[name] for name in options if name in ("strategy", "donate")}
        free = redist.synthesize(*ends, mesh=mesh, **asked)
        bare = max(step.peak_bytes - step.staging_bytes for step in free.steps)
        options["limit_bytes"] = bare + int(way.room * free.source.tile_bytes)
    transfer = redist.Transfer(*ends, comm, mesh=mesh, timeout_s=TIMEOUT_S, **options)
    shape = tile_shapes(transfer.plan.source)[comm.rank]
    dtype = transfer.plan.source.dtype.to_numpy()
    with count.watching():
        for _ in range(2):
            if way.is_view:
                local = cupy.full((shape[0] + 1, *shape[1:]), comm.rank + 1, dtype)[1:]
            else:
                local = cupy.full(shape, comm.rank + 1, dtype)
            out = transfer(local)
            count.shapes.append(local.shape)
            del local, out
    cupy.cuda.get_current_stream().synchronize()
    meet(comm)
    return transfer


def wrong_with(way: Way, comm: MPI.Comm, pretends: bool) -> str | None:
    """What this rank takes beyond the bound; rank 0 prints the worst of all."""
    own, count = comm.Dup(), Counted()
    transfer = moved(way, own, count, pretends)
    plan = transfer.plan
    staging = max(step.staging_bytes for step in plan.steps)
    transfer.close()
    del transfer
    own.Free()
    gc.collect()
    bound = plan.peak_bytes_if_kept if way.is_view else plan.peak_bytes
    device_bound = bound + 4 * GRAIN_BYTES
    if way.is_view:
        device_bound += plan.source.tile_bytes // tile_shapes(plan.source)[comm.rank][0]
    if min(step.staging_bytes for step in plan.steps) < BOOKS_BYTES and not pretends:
        device_bound += BOOKS_BYTES
    figures = bound, count.device, staging, count.pinned
    worst = [comm.allreduce(n, op=MPI.MAX) for n in figures]
    if comm.rank == 0:
        steps = " ".join(step.op for step in plan.steps)
        print(f"{way.name:26s} {steps:40s}", *(f"{n / MIB:9.3f}" for n in worst), flush=True)
    if count.device > device_bound:
        return f"{count.device} bytes of the device, bound {device_bound}"
    if count.device < plan.source.tile_bytes:
        return f"{count.device} bytes of the device: they were not counted"
    if count.pinned > staging:
        return f"{count.pinned} pinned bytes, staging {staging}"
    if "staged" in way.name and not count.pinned:
        return "no pinned bytes: they were not counted"
    shape = tile_shapes(plan.source)[comm.rank]
    frees = plan.donate and len(plan.steps) > 1 and not way.is_view
    if len(plan.steps) > 1 and set(count.shapes) != {(0,) if frees else shape}:
        return f"the source has shape {count.shapes} after the call"
    return None


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """Names of the ways that ``--only`` leaves on so many ranks."""
    only = args[args.index("--only") + 1] if "--only" in args else ""
    return tuple(way.name for way in WAYS if only in way.name and (ranks > 2 or not way.grid))


def program() -> int:
    """0 if no rank takes more than its plan says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--pretend", action="store_true")
    args = parser.parse_args()
    if args.pretend:
        lent.install()
    comm = MPI.COMM_WORLD
    names = checks_on(comm.size, ("--only", args.only))
    ways = [way for way in WAYS if way.name in names]
    wrong = 0
    if comm.rank == 0:
        print(f"{'MiB on the worst rank':67s}     bound    device   staging    pinned")
    for way in ways:
        wrong += not all_well(comm, way.name, wrong_with(way, comm, args.pretend))
    if comm.rank == 0:
        print(f"{len(ways) - wrong} of {len(ways)} ways keep the bound", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
