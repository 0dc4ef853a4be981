"""``python -m bench copies``: kernels beside the fastest contiguous copy, one process a core."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report.figures import in_turn, timed
from bench.report.report import Row, Table, Tables
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.strided import Strided, canonical
from redist.text.progress import track
from redist.text.units import format_bytes

REPEATS = 9
N_BYTES = 2**25
"""Of every copy: more than a processor's cache."""
N_TARGETS = 4

Work = Callable[[], None]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CopyCase:
    """One kind of copy: its name, the bytes of a run, and the ways to make it."""

    name: str
    run_bytes: int
    ways: Callable[[], dict[str, Work]]


def cases() -> list[CopyCase]:
    """Everything that is measured."""
    runs = (64, 512, 1024, 8192, 8208)
    return [
        *(CopyCase("rows dealt out to 4", n, partial(rows, n, True)) for n in runs),
        *(CopyCase("rows put together from 4", n, partial(rows, n, False)) for n in runs),
        *(CopyCase("elements turned", n, partial(turned, n)) for n in (1, 2, 4, 8, 16)),
    ]


def rows(run_bytes: int, deals: bool) -> dict[str, Work]:
    """Runs of a row go to one target each, or come from one source each."""
    n_rows = N_BYTES // (N_TARGETS * run_bytes)
    whole = _filled(n_rows * N_TARGETS * run_bytes)
    parts = [_filled(n_rows * run_bytes) for _ in range(N_TARGETS)]
    out = Strided(run_bytes, ((n_rows, run_bytes, N_TARGETS * run_bytes),))
    moves = [
        BufferCopy(k, 0, N_TARGETS, k * run_bytes, out)
        if deals
        else BufferCopy(N_TARGETS, k * run_bytes, k, 0, out.swapped())
        for k in range(N_TARGETS)
    ]
    table = whole.reshape(n_rows, N_TARGETS, run_bytes)

    def by_numpy() -> None:
        for k, part in enumerate(parts):
            ends = part.reshape(n_rows, run_bytes), table[:, k]
            np.copyto(*(ends if deals else reversed(ends)))

    return _ways(moves, [*parts, whole], by_numpy)


def turned(itemsize: int) -> dict[str, Work]:
    """A square matrix becomes its transpose."""
    side = int((N_BYTES // itemsize) ** 0.5)
    dtype = np.dtype({1: "u1", 2: "u2", 4: "f4", 8: "f8", 16: "c16"}[itemsize])
    source, target = (np.ones((side, side), dtype) for _ in range(2))
    form = canonical(source.shape, itemsize, target.T.strides, source.strides)

    def by_numpy() -> None:
        np.copyto(target, source.T)

    ways = _ways([BufferCopy(0, 0, 1, 0, form)], [target, source], by_numpy)
    by_blas = _omatcopy(source, target)
    return ways if by_blas is None else {**ways, "OpenBLAS": by_blas}


def _filled(n_bytes: int) -> Bytes:
    return np.ones(n_bytes, np.uint8)


def _ways(
    moves: list[BufferCopy], arrays: Sequence[NDArray[Any]], by_numpy: Work
) -> dict[str, Work]:
    """The floor in three ways, the kernel, and NumPy."""
    n_bytes = sum(move.form.n_bytes for move in moves)
    table, own = addresses(arrays), CopyList.of(moves, streams=True)
    source, target = _filled(n_bytes), _filled(n_bytes)
    ends = addresses([target, source])
    whole = [BufferCopy(0, 0, 1, 0, Strided(n_bytes, ()))]
    through, past = (CopyList.of(whole, streams) for streams in (False, True))
    return {
        "floor, memcpy": lambda: np.copyto(target, source),
        "floor, kernel": lambda: through.run(ends),
        "floor, past the cache": lambda: past.run(ends),
        "kernel": lambda: own.run(table),
        "NumPy": by_numpy,
    }


def _omatcopy(source: NDArray[Any], target: NDArray[Any]) -> Work | None:
    """The transpose of the OpenBLAS that NumPy brings along, where there is one for the dtype."""
    letter = {"f4": "s", "f8": "d"}.get(source.dtype.str[1:])
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    for path in folder.glob("*openblas*") if letter else ():
        function = getattr(ctypes.CDLL(str(path)), f"scipy_cblas_{letter}omatcopy64_", None)
        if function is None:
            continue
        number = ctypes.c_double if letter == "d" else ctypes.c_float
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        function.argtypes = [ctypes.c_int] * 2 + [size, size, number, pointer, size, pointer, size]
        n = len(source)
        by_rows, turned_over = 101, 112
        ends = source.ctypes.data, target.ctypes.data
        return lambda: function(by_rows, turned_over, n, n, 1.0, ends[0], n, ends[1], n)
    return None


def run() -> Tables:
    """Measure every case."""
    n_cores, every = len(os.sched_getaffinity(0)), cases()
    rows: list[Row] = []
    for number, case in enumerate(track(every, len(every), "copies")):
        ms = {way: seconds * 1e3 for way, seconds in measure(number, n_cores).items()}
        floor = min(value for way, value in ms.items() if way.startswith("floor"))
        rows.append(
            {
                "what": case.name, "bytes of a run": case.run_bytes, "floor ms": floor,
                "kernel ms": ms["kernel"], "of floor": ms["kernel"] / floor, "NumPy ms": ms["NumPy"],
                "OpenBLAS ms": ms.get("OpenBLAS"),
            }
        )  # fmt: skip
    title = f"Copies of {format_bytes(N_BYTES)} by each of {n_cores} processes, one a core"
    note = f"medians of {REPEATS}, all ways in turn; floor: the fastest contiguous copy"
    return (Table.of("kernels", title, rows, note, keys=2),)


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

    def seconds_of(work: Work) -> float:
        barrier.wait(60)
        return timed(work)[0]

    found = in_turn(cases()[number].ways(), REPEATS + 1, seconds_of)
    queue.put({way: seconds[1:] for way, seconds in found.items()})
