"""``python -m bench larger blocks``: blocks on 4 ranks, within a quarter of what they hold without a limit.

Beside it: without a limit, in a fixed order, one vertex at a time (load, compute, drop: synchronous offload),
and by Dask's workers, which spill.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from tempfile import gettempdir
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from bench.larger.blocks import CUTS, ERROR, BlockStack, largest_node_bytes
from bench.layouts.workload import cut_text, error_of
from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles, slowest_s
from bench.report.job import say
from bench.report.jobs import found_by, in_one_process, on_ranks
from bench.report.report import Row, Table, Tables
from examples import transformer
from redist import pgas
from redist.measure.job import mpi_name
from redist.pgas.memory import BUFFERS, TileMemory
from redist.pgas.programs.compile import limit_in_force
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.signature import sign
from redist.pgas.spill.memory_limit import stored_tile
from redist.runtime.lanes.spill_file import empty_aligned
from redist.runtime.lanes.vertex_table import LanePolicy
from redist.text.units import format_bytes

ALONE, CHOSEN = "unlimited", "as chosen"
POLICIES = ("longest path", "in order", "synchronous")
NAMES = {"longest path": "event-driven", "in order": "fixed order", "synchronous": "one at a time"}
SLOWDOWN_AIM, SYNCHRONOUS_AIM, DASK_AIM = 1.5, 1.4, 3.0
NEVER_SLOWER_AIM = 1.02
"""What programs choose should take at most this much of one at a time: the median of pairs, run in turn."""
NODES_AIM, RATIO_AIM = 2.0, 2.0
LIMIT_S = 600.0


def run(
    ranks: int = 4, layers: int = 24, width: int = 1024, sequences: int = 1, tokens: int = 64,
    share: float = 0.25, repeat: int = 9, folder: str = gettempdir(), dask: str = sys.executable,
) -> Tables:  # fmt: skip
    """Measure on ranks, then by Dask with the same limit.

    share: of the memory; folder: of the file; dask: a Python that has Dask, '' is none.
    """
    sizes = astuple(BlockStack(layers, width, sequences, tokens))
    asked: dict[str, Any] = {"sizes": sizes, "folder": folder, "repeat": repeat}
    data = found_by(on_ranks(ranks), "bench.larger.blocks_race", **asked, share=share)
    if data["wrong"]:
        raise WrongPlanError(f"other results: {', '.join(data['wrong'])}")
    asked |= {"workers": ranks, "limit_bytes": data["limit_bytes"]}
    return (table(data, _by_dask(dask, asked) if dask else None),)


def _by_dask(python: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    """What Dask's job found; None if it cannot run."""
    start = in_one_process(python, LIMIT_S)
    try:
        data: dict[str, Any] = found_by(start, "bench.larger.blocks", **asked)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
        print(f"bench larger: no Dask: {problem}", file=sys.stderr)
        return None
    if data["wrong"]:
        raise WrongPlanError("Dask has other results")
    return data


def table(data: dict[str, Any], rival: dict[str, Any] | None) -> Table:
    """Medians, quartiles, and the aims."""
    times = {name: np.array(one) for name, one in data["times"].items()}
    ours = times[POLICIES[0]]
    # All of a turn were measured one right after the other: medians of their ratios.
    rows = [
        _row(NAMES.get(name, name), one, one / times[ALONE], one / ours, data["cpu_s"][name])
        for name, one in times.items()
    ]
    if rival is not None:
        middle = np.median(rival["times"])
        beside = middle / np.median(times[ALONE]), middle / np.median(ours)
        rows.append(_row(rival["library"], rival["times"], *beside))
    title = (
        f"{data['stack']}: {data['ranks']} ranks, {data['mpi']}, {os.cpu_count()} cores, weights of "
        f"{format_bytes(data['weight_bytes'])} in a file"
    )
    return Table.of("blocks", title, rows, *notes_of(data, times, rival))


def _row(name: str, seconds: Any, of_alone: Any, of_ours: Any, busy: Any = None) -> Row:
    low, middle, high = quartiles(seconds)
    beside = {"of unlimited": of_alone, "of event-driven": of_ours}
    return {
        "way": name, "s": middle, "quartiles": f"{low:.2f}-{high:.2f}",
        "processor s": None if busy is None else float(np.median(busy)),
        **{column: float(np.median(one)) for column, one in beside.items()},
    }  # fmt: skip


def notes_of(
    data: dict[str, Any], times: dict[str, Any], rival: dict[str, Any] | None
) -> list[str]:
    """The conditions, what was certified, and whether aims are reached."""
    limit = data["limit_bytes"]
    nodes = limit / data["largest_node_bytes"]
    io_s = data["loaded_bytes"] / data["read_bytes_per_s"]
    ratio = float(np.median(times[ALONE])) / io_s
    ours = times[POLICIES[0]]
    slowdown = float(np.median(ours / times[ALONE]))
    gain = float(np.median(times["synchronous"] / ours))
    fixed = float(np.median(times["in order"] / ours))
    out = [
        f"limit {format_bytes(limit)} a rank of {format_bytes(data['peak_bytes'])}, {nodes:.1f} times the "
        f"largest node (condition {NODES_AIM:g}: {met(nodes >= NODES_AIM)}); {data['certificate']}; counted "
        f"{format_bytes(data['held_bytes'])}",
        f"{format_bytes(data['loaded_bytes'])} loaded a call, at {data['read_bytes_per_s'] / 1e9:.2f} GB/s "
        f"by all ranks {io_s:.2f} s: compute / I-O {ratio:.1f} (condition {RATIO_AIM:g}: "
        f"{met(ratio >= RATIO_AIM)})",
        f"of unlimited {slowdown:.2f}, aim at most {SLOWDOWN_AIM}: {met(slowdown <= SLOWDOWN_AIM)}",
        f"times as fast as one at a time {gain:.2f}, aim {SYNCHRONOUS_AIM}: {met(gain >= SYNCHRONOUS_AIM)}",
        f"a fixed order takes {fixed:.2f} of event-driven",
    ]
    if CHOSEN in times:
        chosen = float(np.median(times[CHOSEN] / times["synchronous"]))
        out.append(
            f"programs chose {data['chosen']}: {chosen:.2f} of one at a time, aim at most "
            f"{NEVER_SLOWER_AIM}: {met(chosen <= NEVER_SLOWER_AIM)}"
        )
    if rival is None:
        out.append("Dask was not there")
    else:
        far = float(np.median(rival["times"]) / np.median(ours))
        out.append(
            f"times as fast as Dask {far:.1f}, aim {DASK_AIM}: {met(far >= DASK_AIM)}; its workers had "
            f"{format_bytes(rival['spilled_bytes'])} on disk"
        )
    return out


def measure(sizes: list[int], share: float, repeat: int, folder: str) -> dict[str, Any]:
    """Every way in turn, once to compare results and then timed. **Collective over all ranks.**"""
    comm, stack = MPI.COMM_WORLD, BlockStack(*sizes)
    forward = partial(transformer.stack, pgas)
    given = global_arrays(stack)
    say(f"larger: {stack}, arrays made")
    alone: Any = pgas.program(cache=False)(forward)  # keeps no moved copies: it holds the least
    with high_water() as most:
        want = alone(*given).gather()
    peak = comm.allreduce(most[0], MPI.MAX)
    budget = int(share * peak)
    # The limit counts all global arrays: those of the run without a limit come on top.
    gc.collect()
    others = comm.allreduce(BUFFERS.live_bytes, MPI.MAX)
    step: Any = pgas.program(limit=others + budget, spill=folder)(forward)
    signature, limit = sign(global_arrays(stack), {}), limit_in_force(step.options)
    arrays = list(signature.arrays)
    within = step.compiler.find(signature, limit, runs=True)
    assert isinstance(within, LimitedProgram) and within.fitted is not None, within
    found, graph = within.fitted, within.fitted.graph
    say("larger: captured and planned")
    ways: dict[str, Callable[[], Any]] = {ALONE: lambda: alone(*given)}
    ways[CHOSEN] = partial(within.run, arrays)
    for name in POLICIES:
        policy = LanePolicy(name, admits=name == POLICIES[0])
        ways[name] = partial(within.run, arrays, policy=policy)
    wrong = [name for name, way in ways.items() if error_of([way().gather()], [want]) > ERROR]
    rate = read_rate(comm, arrays)
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeat):
        for name, way in ways.items():
            before = sum(os.times()[:2])
            times[name].append(slowest_s(comm, way))
            cpu[name].append(comm.allreduce(sum(os.times()[:2]) - before))
        last = {name: (round(times[name][-1], 3), round(cpu[name][-1], 2)) for name in ways}
        say(f"larger: turn {number}: seconds, and those of processors of all ranks: {last}")
    within.run(arrays, policy=LanePolicy())  # the last run is that whose bytes are counted
    return {
        "ranks": comm.size, "mpi": mpi_name(), "stack": str(stack), "weight_bytes": stack.weight_bytes,
        "limit_bytes": budget, "peak_bytes": peak, "held_bytes": within.peak_bytes[0],
        "largest_node_bytes": largest_node_bytes(graph), "certificate": str(found.certificate),
        "loaded_bytes": comm.allreduce(graph.moved_bytes["load"]), "read_bytes_per_s": rate,
        "times": times, "cpu_s": cpu, "wrong": wrong, "chosen": NAMES[within.policy.name],
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


def read_rate(comm: MPI.Intracomm, arrays: list[Any]) -> float:
    """Bytes a second that all ranks together read of what is put away. **Collective over `comm`.**"""
    stored = [one for array in arrays if (one := stored_tile(array)) is not None]
    buffer = empty_aligned((max(one.nbytes for one in stored),), np.dtype(np.uint8))

    def read() -> None:
        for one in stored:
            one.space.read(buffer[: one.nbytes])

    total = comm.allreduce(sum(one.nbytes for one in stored))
    return total / float(np.median([slowest_s(comm, read) for _ in range(3)]))


@contextmanager
def high_water() -> Iterator[list[int]]:
    """The most bytes that global arrays hold on this rank while a block runs."""
    most, empty = [0], TileMemory.empty

    def watched(self: TileMemory, *args: Any) -> Any:
        tile = empty(self, *args)
        most[0] = max(most[0], self.live_bytes)
        return tile

    with patch.object(TileMemory, "empty", watched):
        yield most
