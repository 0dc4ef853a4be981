"""The bytes that ranks really take during a call, against the bound of its plan.

Three measures. What a rank allocates: every array that NumPy makes and every shared segment,
counted exactly, at any moment. What it holds: pages, as the kernel sees them, while data moves. And
the proportional set size of all ranks together, right after.

As in ``mpirun -n 4 python -m tests.programs.mpi.memory --only pool``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.layout.tiles import tile_shapes
from redist.plan.topology import Level
from redist.runtime.ranks.world import MpiNode
from tests.programs.mpi.counting import Count, Held, give_back, held_bytes, proportional_bytes, tidy
from tests.programs.together import all_well, main, meet

MIB = 2**20
BOOKS_BYTES = 3 * 2**16
TIMEOUT_S = 60.0
MOST_TIMES = 6
"""How often a way is measured at most while it is beyond the bound; the least counts."""
ROWS = ("f64[2048{x}, 2048]", "f64[2048, 2048{x}]", {"x": 4})
SMALL = ("f64[1024{x}, 1024]", "f64[1024, 1024{x}]", {"x": 4})
UNEVEN = ("f32[1001{x}, 15, 555]", "f32[1001, 15, 555{x}]", {"x": 4})
SWAP = ("f64[2048{x}, 2048{y}]", "f64[2048{y}, 2048{x}]", {"x": 2, "y": 2})
SCATTER = ("f64[1024, 1024] sum{x}", "f64[1024{x}, 1024]", {"x": 4})
REDUCE = ("f64[1024, 1024] sum{x}", "f64[1024, 1024]", {"x": 4})
STEPS = {"strategy": "no_permute"}
SLOW_LINKS = {
    "node_size": 2,
    "topology": redist.Topology(
        (
            Level("node", 2, 10**6, 10**5),
            Level("net", None, 5 * 10**7, 8 * 10**6, 8 * 10**6),
        )
    ),
}
"""Between two nodes of two ranks: sums take three steps."""


@dataclass(frozen=True)
class Way:
    """A problem and how it is moved.

    ``own`` says that the arrays are the transfer's, ``reads`` that neighbours may read private
    memory, ``limit_bytes`` what is granted beyond both ends, ``books_bytes`` what lists and tables may
    take on top: where a limit leaves next to nothing for staging, they do not fit into it.
    """

    name: str
    problem: tuple[str, str, dict[str, int]]
    options: dict[str, Any]
    own: bool = False
    reads: bool = True
    limit_bytes: int | None = None
    books_bytes: int = 0


WAYS = (
    Way("own", ROWS, {}, own=True),
    Way("own uneven", UNEVEN, {}, own=True),
    Way("read", ROWS, {}),
    Way("pool", ROWS, {}, reads=False),
    Way("pool uneven", UNEVEN, {}, reads=False),
    Way("pool limit", ROWS, {}, reads=False, limit_bytes=MIB // 2),
    Way("pool tight", ROWS, {}, reads=False, limit_bytes=MIB // 8),
    Way("mpi", ROWS, {"transport": "mpi"}),
    Way("mpi uneven", UNEVEN, {"transport": "mpi"}),
    Way("mpi limit", ROWS, {"transport": "mpi"}, limit_bytes=MIB // 2),
    Way("mpi tight", ROWS, {"transport": "mpi"}, limit_bytes=MIB // 8),
    Way("pool exact", SMALL, {}, reads=False, limit_bytes=0, books_bytes=BOOKS_BYTES),
    Way("read exact", SMALL, {}, limit_bytes=0, books_bytes=BOOKS_BYTES),
    Way("mpi exact", SMALL, {"transport": "mpi"}, limit_bytes=0, books_bytes=BOOKS_BYTES),
    Way("nodes exact", SMALL, {"node_size": 2}, limit_bytes=0, books_bytes=BOOKS_BYTES),
    Way("nodes", ROWS, {"node_size": 2}),
    Way("nodes own", ROWS, {"node_size": 2}, own=True),
    Way("nodes sums", REDUCE, SLOW_LINKS),
    Way("nodes sums own", REDUCE, SLOW_LINKS, own=True),
    Way("steps", SWAP, STEPS),
    Way("steps own", SWAP, STEPS, own=True),
    Way("steps donated", SWAP, {**STEPS, "donate": True}),
    Way("steps mpi donated", SWAP, {**STEPS, "donate": True, "transport": "mpi"}),
    Way("scatter", SCATTER, {}, reads=False),
    Way("scatter mpi", SCATTER, {"transport": "mpi"}),
    Way("reduce", REDUCE, {}),
    Way("reduce mpi", REDUCE, {"transport": "mpi"}),
)


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """Names of the ways that ``--only`` and ``--third`` leave."""
    only = args[args.index("--only") + 1] if "--only" in args else ""
    third = int(args[args.index("--third") + 1]) if "--third" in args else None
    return tuple(way.name for way in chosen(only, third))


def chosen(only: str, third: int | None) -> list[Way]:
    """The ways with a name like this, of all or of one third of them."""
    ways = WAYS if third is None else WAYS[third::3]
    return [way for way in ways if only in way.name]


def move(way: Way, comm: MPI.Comm) -> tuple[redist.Transfer, Any, Any]:
    """Make a transfer and its arrays, and move twice, the second time into the same array."""
    source, target, axes = way.problem
    mesh = redist.Mesh(axes)
    options = dict(way.options)
    if way.limit_bytes is not None:
        free = redist.synthesize(source, target, mesh=mesh)
        ends = free.source.tile_bytes + free.target.tile_bytes
        options["limit_bytes"] = ends + way.limit_bytes
    t = redist.Transfer(source, target, comm, mesh=mesh, timeout_s=TIMEOUT_S, **options)
    shape = tile_shapes(t.plan.source)[comm.rank]
    local = t.input if way.own else np.empty(shape, t.plan.source.dtype.to_numpy())
    out = None
    for _ in range(2):
        local[...] = comm.rank + 1
        out = t() if way.own else t(local, out)
    meet(comm)
    return t, local, out


def run(way: Way, comm: MPI.Comm, watch: AbstractContextManager[Any]) -> tuple[redist.Plan, int]:
    """Do it on a communicator of its own; the plan, and what all ranks hold together after it."""
    own = comm.Dup()
    with watch:
        t, local, out = move(way, own)
    plan = t.plan
    meet(comm)
    together = comm.allreduce(proportional_bytes())
    t.close()
    del t, local, out
    own.Free()
    give_back()
    meet(comm)
    return plan, together


@contextmanager
def reading(allowed: bool) -> Iterator[None]:
    """Whether ranks may read their neighbours' private memory."""
    original: Any = MpiNode.can_read_memory
    probe: Any = original if allowed else lambda node: False
    MpiNode.can_read_memory = probe  # type: ignore[method-assign]
    try:
        yield
    finally:
        MpiNode.can_read_memory = original  # type: ignore[method-assign]


def wrong_with(way: Way, comm: MPI.Comm, mpi_bytes: int) -> str | None:
    """What this rank takes beyond the bound, or all together; ``mpi_bytes`` of pages are MPI's own."""
    held = Held()
    figures: dict[str, int] = {}
    least = sys.maxsize
    with reading(way.reads):
        for time in range(MOST_TIMES):
            before, before_all = held_bytes(), comm.allreduce(proportional_bytes())
            meet(comm)
            plan, together = run(way, comm, held)
            if time == 0:  # there is more: code, and buffers of the MPI library
                continue
            found = {
                "held": held.most - before,
                "proportional": (together - before_all) // comm.size,
            }
            # What the move takes comes every time, what libraries keep but once.
            figures = {name: min(n, figures.get(name, n)) for name, n in found.items()}
            good = max(figures.values()) <= plan.peak_bytes + way.books_bytes + mpi_bytes
            if comm.allreduce(good, op=MPI.LAND):
                break
        for _ in range(MOST_TIMES):
            counted = Count()
            run(way, comm, counted)
            # Objects of Python that live for a moment, such as those of a wait, are among what is counted;
            # they come in some runs, arrays and segments in all.
            least = min(least, counted.most)
            good = len(plan.steps) > 1 or least <= plan.peak_bytes + way.books_bytes
            if comm.allreduce(good, op=MPI.LAND):
                break
    figures = {"counted": least, **figures}
    worst = [comm.allreduce(n, op=MPI.MAX) for n in (plan.peak_bytes, *figures.values())]
    if comm.rank == 0:
        steps = " ".join(step.op for step in plan.steps)
        print(f"{way.name:18s} {steps:32s}", *(f"{n / MIB:9.3f}" for n in worst), flush=True)
    if len(plan.steps) > 1:  # arrays that stay allocated give their pages back on the way
        del figures["counted"]
    bound = plan.peak_bytes + way.books_bytes
    beyond = {
        name: n - bound
        for name, n in figures.items()
        if n > bound + (0 if name == "counted" else mpi_bytes)
    }
    return f"bytes beyond the bound of {bound}: {beyond}" if beyond else None


def program() -> int:
    """0 if no rank takes more than its plan says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--third", type=int, choices=range(3))
    parser.add_argument("--mpi-bytes", type=int, default=0, help="for MPI's own messages by TCP")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    tidy()
    wrong = 0
    if comm.rank == 0:
        print(f"{'MiB on the worst rank':51s}     bound   counted      held proportional")
    ways = chosen(args.only, args.third)
    for way in ways:
        wrong += not all_well(comm, way.name, wrong_with(way, comm, args.mpi_bytes))
    if comm.rank == 0:
        print(f"{len(ways) - wrong} of {len(ways)} ways keep the bound", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
