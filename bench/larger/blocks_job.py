"""Blocks with and without a limit, inside an MPI job: ``mpirun -n 4 python -m bench.larger.blocks_job``.

Started by ``python -m bench larger blocks``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.larger.blocks import CUTS, BlockStack, stack_from
from bench.layouts.workload import cut_text
from bench.report.timing import slowest_s
from examples import transformer
from redist import pgas
from redist.measure.job import mpi_name
from redist.measure.timing import meet
from redist.pgas.memory import BUFFERS, TileMemory
from redist.pgas.programs.limited.compile_within import limit_in_force
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.signature import sign
from redist.pgas.spill.put_away import stored_tile
from redist.runtime.lanes.file_io import empty_aligned
from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.timeline import busy_s

ALONE, POLICIES = "unlimited", ("longest path", "in order", "synchronous")
ERROR = 1e-4


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", nargs=4, default=["24", "1024", "1", "64"])
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    data = measure(comm, stack_from(args.stack), args.share, args.repeat, args.folder)
    if comm.rank == 0 and args.json is not None:
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return int(bool(data["wrong"]))


def measure(
    comm: MPI.Intracomm, stack: BlockStack, share: float, repeats: int, folder: str
) -> dict[str, Any]:
    """Every way in turn, once to compare results and then timed. **Collective over `comm`.**"""

    def say(text: str) -> None:
        if comm.rank == 0:
            print(
                f"bench larger: {time.perf_counter() - begin:.0f} s: {text}",
                file=sys.stderr,
                flush=True,
            )

    begin = time.perf_counter()
    forward = partial(transformer.stack, pgas)
    given = global_arrays(stack)
    say(f"{stack}, arrays made")
    alone: Any = pgas.program(cache=False)(forward)  # keeps no moved copies: it holds the least
    with high_water() as most:
        want = alone(*given).gather()
    peak = comm.allreduce(most[0], MPI.MAX)
    budget = int(share * peak)
    # The limit counts all global arrays: those of the run without a limit come on top.
    gc.collect()
    others = comm.allreduce(BUFFERS.live_bytes, MPI.MAX)
    step: Any = pgas.program(limit=others + budget, spill=folder)(forward)
    within, arrays = fitted(step, *global_arrays(stack))
    say("captured and planned")
    ways: dict[str, Callable[[], Any]] = {ALONE: lambda: alone(*given)}
    for name in POLICIES:
        ways[name] = partial(within.run, arrays, policy=LanePolicy(name))
    wrong = [name for name, way in ways.items() if _error(way().gather(), want) > ERROR]
    rate = read_rate(comm, arrays)
    loaded = comm.allreduce(graph_of(within).moved_bytes["load"])
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats):
        for name, way in ways.items():
            before = sum(os.times()[:2])
            times[name].append(slowest_s(comm, way))
            cpu[name].append(comm.allreduce(sum(os.times()[:2]) - before))
        found = {name: (round(times[name][-1], 3), round(cpu[name][-1], 2)) for name in ways}
        say(f"turn {number}: seconds, and those of processors of all ranks: {found}")
    within.run(arrays, records=True, policy=LanePolicy())
    assert within.fitted is not None
    return {
        "ranks": comm.size, "mpi": mpi_name(), "stack": str(stack), "weight_bytes": stack.weight_bytes,
        "limit_bytes": budget, "peak_bytes": peak, "bound_bytes": within.fitted.bound_bytes,
        "held_bytes": within.peak_bytes[0], "largest_node_bytes": largest_node(within),
        "graph": str(graph_of(within)), "certificate": str(within.fitted.certificate),
        "loaded_bytes": loaded, "read_bytes_per_s": rate, "times": times,
        "cpu_s": cpu, "busy_s": busy_s(within.spans), "wrong": wrong,
    }  # fmt: skip


def global_arrays(stack: BlockStack) -> tuple[Any, list[dict[str, Any]]]:
    """The input whole on every rank, weights cut. **Collective over all ranks.**"""
    x = stack.x()
    weights = [
        {
            name: pgas.asarray(w, type=cut_text(CUTS[name], w.ndim), copy=True)
            for name, w in stack.layer(number).items()
        }
        for number in range(stack.n_layers)
    ]
    return pgas.asarray(x, type=cut_text(None, x.ndim)), weights


def fitted(step: Any, *args: Any) -> tuple[LimitedProgram, list[Any]]:
    """The program within its limit, and its arrays. **Collective over all ranks.**"""
    signature, limit = sign(args, {}), limit_in_force(step.options)
    assert limit is not None
    within = step.compiler.find(signature, limit, runs=True)
    assert isinstance(within, LimitedProgram), within
    return within, list(signature.arrays)


def graph_of(within: LimitedProgram) -> Any:
    """The memory graph that a program runs."""
    assert within.fitted is not None
    return within.fitted.graph


def largest_node(within: LimitedProgram) -> int:
    """The most bytes that one task works on, staging included."""
    listed = graph_of(within).tasks
    sizes = [tile.size_bytes for tile in listed.tiles]
    return max(task.staging_bytes + sum(sizes[n] for n in task.tiles) for task in listed.tasks)


def read_rate(comm: MPI.Intracomm, arrays: list[Any]) -> float:
    """Bytes a second that all ranks together read of what is put away. **Collective over `comm`.**"""
    stored = [one for array in arrays if (one := stored_tile(array)) is not None]
    buffer = empty_aligned((max(one.nbytes for one in stored),), np.dtype(np.uint8))
    rates = []
    for _ in range(3):
        meet(comm)
        start = time.perf_counter()
        for one in stored:
            one.space.read(buffer[: one.nbytes])
        seconds = comm.allreduce(time.perf_counter() - start, MPI.MAX)
        rates.append(comm.allreduce(sum(one.nbytes for one in stored)) / seconds)
    return float(np.median(rates))


@contextmanager
def high_water() -> Iterator[list[int]]:
    """The most bytes that global arrays hold on this rank while a block runs."""
    most, kind = [0], vars(TileMemory)
    empty = kind["empty"]

    def watched(self: TileMemory, *args: Any) -> Any:
        tile = empty(self, *args)
        most[0] = max(most[0], self.live_bytes)
        return tile

    TileMemory.empty = watched  # type: ignore[method-assign, assignment]
    try:
        yield most
    finally:
        TileMemory.empty = empty  # type: ignore[method-assign]


def _error(found: Any, want: Any) -> float:
    return float(np.abs(found - want).max() / np.abs(want).max())


if __name__ == "__main__":
    sys.exit(main())
