"""``python -m bench larger blocks``: blocks on 4 ranks, within a quarter of what they hold without a limit.

Beside it: without a limit, in a fixed order, one vertex at a time (load, compute, drop: synchronous offload),
and by Dask's workers, which spill.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.larger.blocks import BlockStack, words_of
from bench.larger.blocks_job import ALONE, POLICIES
from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles
from bench.report.jobs import found_by, in_one_process, on_ranks
from bench.report.report import Report, Table, Value, save_json
from redist.text.units import format_bytes

LAST = Path(__file__).parents[1] / "results" / "last" / "larger-blocks.json"
SLOWDOWN_AIM, SYNCHRONOUS_AIM, DASK_AIM = 1.5, 1.4, 3.0
NODES_AIM, RATIO_AIM = 2.0, 2.0
LIMIT_S = 600.0
NAMES = {"longest path": "event-driven", "in order": "fixed order", "synchronous": "one at a time"}


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench larger blocks", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.25, help="of the memory (%(default)s)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="of the file (%(default)s)")
    parser.add_argument("--dask", default=sys.executable, help="a Python that has Dask; '' is none")
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    stack = BlockStack(args.layers, args.width, args.sequences, args.tokens)
    try:
        report = run(stack, args.ranks, args.share, args.repeat, args.folder, args.dask)
    except WrongPlanError as error:
        print(f"bench larger: {error}", file=sys.stderr)
        return 1
    print(report)
    save_json(args.json, [report], {name: str(value) for name, value in vars(args).items()})
    return 0


def run(stack: BlockStack, ranks: int, share: float, repeat: int, folder: str, dask: str) -> Report:
    """Start the MPI job, then Dask with the same limit; a table of both."""
    job: list[object] = ["--stack", *words_of(stack), "--repeat", repeat, "--folder", folder]
    what = "measure blocks", "bench.larger.blocks_job"
    data = found_by(on_ranks(ranks), *what, *job, "--share", share)
    if data["wrong"]:
        raise WrongPlanError(f"other results: {', '.join(data['wrong'])}")
    job += ["--workers", ranks, "--limit", data["limit_bytes"]]
    return Report("larger", (table(data, _by_dask(dask, job) if dask else None),))


def _by_dask(python: str, options: list[object]) -> dict[str, Any] | None:
    """What Dask's program wrote; None if it cannot run."""
    start = in_one_process(python, LIMIT_S)
    try:
        data: dict[str, Any] = found_by(start, "run Dask", "bench.larger.blocks_dask", *options)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
        print(f"bench larger: no Dask: {problem}", file=sys.stderr)
        return None
    if data["wrong"]:
        raise WrongPlanError("Dask has other results")
    return data


def table(data: dict[str, Any], rival: dict[str, Any] | None) -> Table:
    """Medians, quartiles, and the aims."""
    times = {name: np.array(one) for name, one in data["times"].items()}
    rows: list[tuple[Value, ...]] = []
    ours = times[POLICIES[0]]
    for name, one in times.items():
        # All of a turn were measured one right after the other: medians of their ratios.
        beside = np.median(one / times[ALONE]), np.median(one / ours)
        busy = float(np.median(data["cpu_s"][name]))
        rows.append(_row(NAMES.get(name, name), one, busy, *map(float, beside)))
    if rival is not None:
        one = np.array(rival["times"])
        middle = float(np.median(one))
        beside = middle / np.median(times[ALONE]), middle / np.median(ours)
        rows.append(_row(rival["library"], one, None, *map(float, beside)))
    return Table(
        f"{data['stack']}: {data['ranks']} ranks, {data['mpi']}, {os.cpu_count()} cores, weights of "
        f"{format_bytes(data['weight_bytes'])} in a file",
        ("way", "s", "quartiles", "processor s", "of unlimited", "of event-driven"),
        tuple(rows),
        tuple(notes_of(data, times, rival)),
        "blocks",
    )


def _row(name: str, seconds: Any, *beside: float | None) -> tuple[Value, ...]:
    low, middle, high = quartiles(seconds)
    return (name, middle, f"{low:.2f}-{high:.2f}", *beside)


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
    if rival is None:
        out.append("Dask was not there")
    else:
        far = float(np.median(rival["times"]) / np.median(ours))
        out.append(
            f"times as fast as Dask {far:.1f}, aim {DASK_AIM}: {met(far >= DASK_AIM)}; its workers had "
            f"{format_bytes(rival['spilled_bytes'])} on disk"
        )
    return out
