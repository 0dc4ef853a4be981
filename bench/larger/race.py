"""``python -m bench larger``: a chain of layers with its weights in a file, within less and less memory."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.larger import blocks_race, empty
from bench.larger.host_tiles import HostTiles
from bench.larger.layers import LayerChain, given_to
from bench.problems.judge import WrongPlanError
from bench.report.report import Report, Table, Value, save_json
from redist.check.certify_memory import certify_memory
from redist.offload.compile import compile_memory
from redist.offload.least_limit import least_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import bytes_of
from redist.text.units import format_bytes

POLICIES = ("longest path", "in order", "synchronous")
ALONE = "alone"
SHARES: tuple[float | None, ...] = (None, 0.5, 0.25)
LAST = Path(__file__).parents[1] / "results" / "last" / "larger.json"


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a result is wrong. With ``blocks`` first, a program on ranks instead."""
    parser = argparse.ArgumentParser(prog="python -m bench larger", description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument(
        "--side", type=int, default=2048, help="of the square weights (%(default)s)"
    )
    parser.add_argument("--rows", type=int, default=256, help="of the values (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="of the file (%(default)s)")
    parser.add_argument("--json", type=Path, default=LAST)
    if arguments and arguments[0] == "blocks":
        return blocks_race.main(arguments[1:])
    args = parser.parse_args(arguments)
    chain = LayerChain(args.layers, args.rows, args.side)
    try:
        report = run(chain, args.folder, args.repeats)
    except WrongPlanError as error:
        print(f"bench larger: {error}")
        return 1
    print(report)
    options = {name: str(value) for name, value in vars(args).items()}
    save_json(args.json, [report], options)
    return 0


def run(chain: LayerChain, folder: str, repeats: int) -> Report:
    """Time all policies within all limits, in turn; results are compared bit for bit first."""
    weights, x = chain.values()
    make = chain.tiles()
    want = chain.straight(weights, x, make)
    alone_s = median_s(lambda: chain.straight(weights, x, make), repeats)
    store = SpillFile(folder)
    try:
        given = given_to(store, weights, x)
        read_s = median_s(lambda: read_all(chain, store, given, make), repeats)
        n_bytes = chain.n_layers * chain.weight_bytes
        byte_fs = int(read_s / n_bytes * 1e15)
        task_ps = int(alone_s / (2 * chain.n_layers) * 1e12)
        graphs = compiled(chain, task_ps, byte_fs)
        runners = {
            (share, policy): GraphRunner(graph, chain.work(), [store], make, policy=policy)
            for share, graph in graphs.items()
            for make in [chain.tiles(graph.places[0].limit_bytes)]
            for policy in map(LanePolicy, POLICIES)
        }
        times: dict[Any, list[float]] = {key: [] for key in (ALONE, *runners)}
        for repeat in range(repeats + 1):
            if repeat:
                times[ALONE].append(seconds_of(lambda: chain.straight(weights, x, make)))
            for key, runner in runners.items():
                start = time.perf_counter()
                outcome = runner.run(given)
                seconds = time.perf_counter() - start
                judge(graphs[key[0]], outcome, want)
                if repeat:
                    times[key].append(seconds)
                del outcome
    finally:
        store.close()
    kind = "direct I/O" if store.is_direct else "pages written out and dropped"
    notes = (
        f"in memory alone {np.median(times[ALONE]):.3f} s; reading all weights once {read_s:.3f} s: "
        f"{n_bytes / read_s / 1e9:.2f} GB/s ({kind}); medians of {repeats}, all in turn; "
        "of alone, synchronous / event-driven: medians of the ratios of a turn",
        "bound: the longer of computing alone and of reading what is loaded at that rate; stores not counted",
    )
    measured = _table(chain, graphs, times, byte_fs, notes)
    return Report("larger", (measured, empty.table()))


def _table(
    chain: LayerChain,
    graphs: dict[float | None, MemoryGraph],
    times: dict[Any, list[float]],
    byte_fs: int,
    notes: tuple[str, ...],
) -> Table:
    rows: list[tuple[Value, ...]] = []
    for share, graph in graphs.items():
        limit, moved = graph.places[0].limit_bytes, graph.moved_bytes
        bound = max(float(np.median(times[ALONE])), moved["load"] * byte_fs / 1e15)
        free, fixed, synchronous = (
            np.array(times[share, one]) for one in map(LanePolicy, POLICIES)
        )
        rows.append(
            (
                "unlimited" if share is None else f"{share:.0%} of it",
                "-" if limit is None else format_bytes(limit),
                format_bytes(moved["load"]),
                format_bytes(moved["store"]),
                bound,
                *(float(np.median(one)) for one in (free, fixed, synchronous)),
                float(np.median(free / np.array(times[ALONE]))),
                float(np.median(free)) / bound,
                float(np.median(synchronous / free)),
            )
        )
    return Table(
        f"{chain.n_layers} layers forth and back, weights of {format_bytes(chain.weight_bytes)} in a file, "
        f"{chain.rows} rows",
        (
            *("memory", "limit", "loaded", "stored", "bound s", "event-driven s", "in order s"),
            *("synchronous s", "of alone", "of bound", "synchronous / event-driven"),
        ),
        tuple(rows),
        notes,
        "layers",
    )


def compiled(chain: LayerChain, task_ps: int, byte_fs: int) -> dict[float | None, MemoryGraph]:
    """Graphs by share of the bytes that the program takes without a limit."""
    tasks, disk = chain.tasks(task_ps), MemoryPlace("disk", None, byte_fs)
    whole = sum(tile.size_bytes for tile in tasks.tiles)
    free = compile_memory(tasks, (MemoryPlace("memory", whole), disk))
    peak = certify_memory(free).bound_bytes[0]
    assert peak is not None
    graphs: dict[float | None, MemoryGraph] = {None: free}
    for share in SHARES[1:]:
        assert share is not None
        limit = max(least_memory(tasks)[0], int(share * peak))
        graphs[share] = compile_memory(tasks, (MemoryPlace("memory", limit), disk))
    return graphs


def judge(graph: MemoryGraph, outcome: Any, want: Any) -> None:
    """Raise if a result has other bits, or a limit was passed."""
    result = outcome.held[len(graph.tasks.tiles) - 1, 0]
    if result.tobytes() != want.tobytes():
        raise WrongPlanError("a result has other bits than that computed in memory")
    limit = graph.places[0].limit_bytes
    if limit is not None and outcome.peak_bytes[0] > limit:
        raise WrongPlanError(f"{outcome.peak_bytes[0]} bytes within a limit of {limit}")


def read_all(
    chain: LayerChain, store: SpillFile, given: dict[tuple[int, int], Any], make: HostTiles
) -> None:
    """Read every weight once, as loads do."""
    for number in range(chain.n_layers):
        store.read(given[number, 1], bytes_of(make(number)))


def median_s(act: Callable[[], Any], repeats: int) -> float:
    """Seconds of an act, after one to warm up."""
    return float(np.median([seconds_of(act) for _ in range(repeats + 1)][1:]))


def seconds_of(act: Callable[[], Any]) -> float:
    """Seconds of an act."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
