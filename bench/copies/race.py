"""``python -m bench copies``: kernels beside the fastest contiguous copy, one process a core."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import numpy as np

from bench.copies.cases import N_BYTES, CopyCase, cases
from bench.report.report import Report, Table
from redist.text.progress import Progress
from redist.text.units import format_bytes

REPEATS = 9


def run(n: int, seed: int) -> Report:
    """Measure every case; ``n`` and ``seed`` are for benchmarks with random cases."""
    n_cores = len(os.sched_getaffinity(0))
    every, rows = cases(), []
    progress = Progress("copies")
    for number, case in enumerate(every):
        progress(number, len(every))
        ms = {way: seconds * 1e3 for way, seconds in measure(number, n_cores).items()}
        floor = min(value for way, value in ms.items() if way.startswith("floor"))
        cells = floor, ms["kernel"], ms["kernel"] / floor, ms["NumPy"], ms.get("OpenBLAS")
        rows.append((case.name, case.run_bytes, *cells))
    progress(len(every), len(every))
    return Report(
        "copies",
        (
            Table(
                f"Copies of {format_bytes(N_BYTES)} by each of {n_cores} processes, one a core",
                ("what", "bytes of a run", "floor ms", "kernel ms", "of floor", "NumPy ms", "OpenBLAS ms"),
                tuple(rows),
                (f"medians of {REPEATS}, all ways in turn; floor: the fastest contiguous copy",),
                "kernels",
                2,
            ),
        ),
    )  # fmt: skip


def measure(number: int, n_processes: int) -> dict[str, float]:
    """Seconds of every way of a case, by all processes at once, in turn."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(n_processes), context.Queue()
    started = [
        context.Process(target=_time, args=(number, barrier, queue), daemon=True)
        for _ in range(n_processes)
    ]
    for process in started:
        process.start()
    found: list[dict[str, list[float]]] = [queue.get(timeout=300) for _ in started]
    for process in started:
        process.join()
    slowest = {way: np.max([one[way] for one in found], axis=0) for way in found[0]}
    return {way: float(np.median(seconds)) for way, seconds in slowest.items()}


def _time(number: int, barrier: Any, queue: Any) -> None:
    """The program of a process."""
    case: CopyCase = cases()[number]
    ways = case.ways()
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(REPEATS + 1):
        for way, work in ways.items():
            barrier.wait(60)
            start = time.perf_counter()
            work()
            if repeat:
                seconds[way].append(time.perf_counter() - start)
    queue.put(seconds)
