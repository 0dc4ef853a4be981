"""Memory graphs on several ranks, with collectives as moves: results, failing stores, interrupts.

As in ``mpirun -n 3 python -m tests.programs.mpi.larger``.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import PeerError, RequestError, SpillError
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.run_graph import GraphRunner, make_together, run_together
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import TileStore
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork
from redist.runtime.ranks.collectives import tell_all
from tests.fakes.troubled_store import TroubledStore
from tests.programs.together import main, run_named

SIDE, LAYERS = 48, 6
N_BYTES = SIDE * SIDE * 8
BAD = 1
TIMEOUT_S, SOON_S = 20.0, 10.0


def layers() -> TaskList:
    """Products with weights from a store, then sums over ranks; all values are added at the end."""
    tiles = [MemoryTile(N_BYTES, (1,), (1,), name=f"weight {k}") for k in range(LAYERS)]
    tiles.append(MemoryTile(N_BYTES, (0,), (0,), True, "input"))
    tasks, value, values = [], LAYERS, []
    for k in range(LAYERS):
        product, total = len(tiles), len(tiles) + 1
        tiles += [MemoryTile(N_BYTES, name=f"product {k}"), MemoryTile(N_BYTES, name=f"sum {k}")]
        tasks.append(MemoryTask(f"multiply {k}", (k, value), (product,), time_ps=5))
        tasks.append(
            MemoryTask(f"add up {k}", (product,), (total,), lane="moves", staging_bytes=N_BYTES)
        )
        value = total
        values.append(total)
    last = len(tiles)
    tiles.append(MemoryTile(N_BYTES, ends=(0,), name="result"))
    tasks.append(MemoryTask("begin", (values[0],), (last,)))
    tasks += [MemoryTask(f"add {one}", (one,), updates=(last,)) for one in values[1:]]
    return TaskList(tuple(tiles), tuple(tasks))


def compiled() -> MemoryGraph:
    """Within so little memory that values are stored, too."""
    return compile_memory(
        layers(), (MemoryPlace("memory", 4 * N_BYTES), MemoryPlace("disk", None, 10))
    )


def work_of(comm: MPI.Intracomm, moves: str) -> list[TaskWork]:
    """What tasks do; ``moves`` says by what: rows of all ranks, or a transfer, at once or started."""
    mesh = redist.Mesh(x=comm.size)
    ends = f"f64[{SIDE}, {SIDE}] sum{{x}}", f"f64[{SIDE}, {SIDE}]"
    transfer = redist.Transfer(*ends, comm, mesh=mesh) if moves != "rows" else None

    def add_up(product: Any, out: Any) -> Any:
        if transfer is None:
            np.sum(tell_all(comm, product, TIMEOUT_S), axis=0, out=out)
            return None
        return transfer.start(product, out) if moves == "started" else transfer(product, out)

    def begin(value: Any, out: Any) -> None:
        out[:] = value

    out = []
    for task in layers().tasks:
        if task.name.startswith("multiply"):
            out.append(TaskWork(lambda w, x, to: np.matmul(w, x, out=to)))
        elif task.lane == "moves":
            out.append(TaskWork(add_up, starts=moves == "started"))
        elif task.name == "begin":
            out.append(TaskWork(begin))
        else:
            out.append(TaskWork(lambda value, total: np.add(total, value, out=total)))
    return out


def make_tile(tile: int) -> Any:
    return np.full((SIDE, SIDE), np.nan)


def values_of(comm: MPI.Intracomm) -> tuple[list[Any], Any]:
    """Weights of this rank, and the input: small whole numbers, so that sums are exact."""
    rng = np.random.default_rng([3, comm.rank])
    weights = [rng.integers(-1, 2, (SIDE, SIDE)).astype(float) for _ in range(LAYERS)]
    return weights, np.random.default_rng(5).integers(-2, 3, (SIDE, SIDE)).astype(float)


def given_to(store: TileStore, weights: Sequence[Any], x: Any) -> dict[tuple[int, int], Any]:
    given: dict[tuple[int, int], Any] = {(LAYERS, 0): x}
    for number, weight in enumerate(weights):
        given[number, 1] = store.take(weight.nbytes)
        store.write(given[number, 1], weight.reshape(-1).view(np.uint8))
    return given


def expected(comm: MPI.Intracomm) -> Any:
    weights, x = values_of(comm)
    total = 0.0
    for weight in weights:
        x = np.sum(comm.allgather(weight @ x), axis=0)
        total = total + x
    return total


def results_are_those_of_straight_runs(comm: MPI.Intracomm, moves: str) -> str | None:
    """Why not, if a graph gives another result, by any policy, or takes more than its limit."""
    want = expected(comm)
    weights, x = values_of(comm)
    graph = compiled()
    if not graph.moved_bytes["store"]:
        return "nothing is stored"
    for policy in (
        LanePolicy(),
        LanePolicy("in order"),
        LanePolicy("synchronous"),
        *(LanePolicy("random", comm.rank + 10 * seed) for seed in range(4)),
    ):  # other ranks may choose in other ways: only moves have one order
        with tempfile.TemporaryDirectory() as folder:
            store = TroubledStore(SpillFile(folder, cached=True), 2e-4, comm.rank)
            work = work_of(comm, moves)
            runner = make_together(
                comm, partial(GraphRunner, graph, work, [store], make_tile, policy=policy)
            )
            given = given_to(store, weights, x)
            for _ in range(2):
                outcome = run_together(comm, runner, given, checks=True)
                if not (outcome.held[len(graph.tasks.tiles) - 1, 0] == want).all():
                    return f"{policy}: wrong result"
                if outcome.peak_bytes[0] > 4 * N_BYTES:
                    return f"{policy}: {outcome.peak_bytes[0]} bytes"
                given = {**given, **{k: v for k, v in outcome.held.items() if k in given}}
            store.close()
            if list(Path(folder).iterdir()):
                return "a file is left"
    return None


def fails_everywhere(
    comm: MPI.Intracomm, moves: str, trouble: Callable[[str, int], None], says: str, bad: type
) -> str | None:
    """Why not, if a failure on one rank does not end all soon, with its words."""
    own = comm.Dup()
    weights, x = values_of(comm)
    store = TroubledStore(SpillFile(tempfile.gettempdir(), cached=True))
    work = work_of(own, moves)
    runner = make_together(own, partial(GraphRunner, compiled(), work, [store], make_tile))
    given = given_to(store, weights, x)
    own.Barrier()
    if comm.rank == BAD:
        base = dict(store.counts)
        store._trouble = lambda verb, number: trouble(verb, number - base[verb])
    start = time.monotonic()
    try:
        run_together(own, runner, given, timeout_s=TIMEOUT_S)
    except BaseException as error:
        caught: BaseException | None = error
    else:
        caught = None
    store.close()
    if time.monotonic() - start > SOON_S:
        return f"took {time.monotonic() - start:.1f} s"
    if any(one.name in ("redist-load", "redist-store") for one in threading.enumerate()):
        return "a thread is left"
    if comm.rank == BAD:
        return None if type(caught) is bad and says in str(caught) else f"raised {caught!r}"
    if not isinstance(caught, PeerError):
        return f"raised {caught!r}"
    text = str(caught)
    return None if f"rank {BAD}" in text and says in text else f"says {text!r}"


def full_disk(verb: str, number: int) -> None:
    if verb == "write" and number == 1:
        raise OSError(errno.ENOSPC, "No space left on device")


def short_read(verb: str, number: int) -> None:
    if verb == "read" and number == 4:
        raise SpillError("cannot read 18 KiB of a spill file: it ends after 4 KiB")


def interrupt(verb: str, number: int) -> None:
    if verb == "read" and number == 2:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)


def no_room_is_one_error(comm: MPI.Intracomm) -> str | None:
    """Why not, if a rank without room on its disk is not the same error for all, before anything runs."""
    own = comm.Dup()

    class Full(TroubledStore):
        def reserve(self, n_bytes: int) -> None:
            if comm.rank == BAD:
                raise SpillError(f"cannot spill: needs {n_bytes} bytes, 5 bytes are available")

    store = Full(SpillFile(tempfile.gettempdir()))
    work = work_of(own, "rows")
    try:
        make_together(own, partial(GraphRunner, compiled(), work, [store], make_tile))
    except SpillError as error:
        said = own.allgather(str(error))
        good = len(set(said)) == 1 and f"rank {BAD}: cannot spill: needs" in said[0]
        return None if good else f"says {said}"
    return "nobody minded"


def different_graphs_are_one_error(comm: MPI.Intracomm) -> str | None:
    """Why not, if ranks with other moves begin; graphs may differ in anything else."""
    own = comm.Dup()
    store = SpillFile(tempfile.gettempdir())
    work = work_of(own, "rows")
    limit = (4 + (comm.rank == BAD)) * N_BYTES
    places = (MemoryPlace("memory", limit), MemoryPlace("disk"))
    graph = compile_memory(layers(), places)
    make_together(own, partial(GraphRunner, graph, work, [store], make_tile))
    if comm.rank == BAD:
        moves = [one for one in graph.tasks.tasks if one.lane == "moves"]
        names = {moves[0].name: moves[1].name, moves[1].name: moves[0].name}
        tasks = [replace(one, name=names.get(one.name, one.name)) for one in graph.tasks.tasks]
        graph = compile_memory(TaskList(graph.tasks.tiles, tuple(tasks)), places)
    try:
        make_together(own, partial(GraphRunner, graph, work, [store], make_tile))
    except RequestError as error:
        return None if "ranks disagree" in str(error) else f"says {error}"
    return "nobody minded"


CHECKS = (
    "results, rows",
    "results, transfers",
    "results, started transfers",
    "full disk",
    "full disk, transfers",
    "short read",
    "interrupt",
    "no room",
    "different graphs",
)


def program() -> int:
    """0 if all is well."""
    comm = MPI.COMM_WORLD
    results = results_are_those_of_straight_runs
    full = (full_disk, "No space left", OSError)
    checks: list[Callable[[], str | None]] = [
        partial(results, comm, "rows"),
        partial(results, comm, "transfers"),
        partial(results, comm, "started"),
        partial(fails_everywhere, comm, "rows", *full),
        partial(fails_everywhere, comm, "transfers", *full),
        partial(fails_everywhere, comm, "rows", short_read, "it ends after", SpillError),
        partial(fails_everywhere, comm, "rows", interrupt, "", KeyboardInterrupt),
        partial(no_room_is_one_error, comm),
        partial(different_graphs_are_one_error, comm),
    ]
    return run_named(dict(zip(CHECKS, checks, strict=True)))


if __name__ == "__main__":
    main(program)
