"""Measure what computing costs: classes of operations by dtype, on the processor and on the rank's GPU.

All ranks compute at once, because that is how programs run; the slowest one counts. Products are large
enough for a library to be at its best, and elementwise operations small enough for a cache: the time that
memory takes is measured separately, and the model uses the larger of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.measure.timing import Stopwatch, all_agree
from redist.plan.rates import DeviceCosts, OperationCost

DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i32": "int32",
    "i64": "int64",
}  # fmt: skip
REPEATS = 5
MEMORY_BYTES = 2**25
FS = 10**15


@dataclass(frozen=True, slots=True)
class ComputingSizes:
    """How large operations are: sides of products with and without a library, elements of the others."""

    fast: tuple[str, ...]
    """Dtypes whose products a library is quick at."""
    fast_side: int
    slow_side: int
    elems: int


Place = tuple[ComputingSizes, Callable[[Any], Any], Callable[[], Any]]
"""Sizes, how arrays are brought there, how to wait for what is computed there."""
ON_HOST = ComputingSizes(("f32", "f64"), 256, 48, 2**16)
ON_GPU = ComputingSizes(("f32", "f64", "f16", "bf16"), 4096, 512, 2**24)


@dataclass(frozen=True, slots=True, eq=False)
class ComputingTrial:
    """One operation to be timed: ``n`` multiply-adds, elements or bytes."""

    kind: str
    dtype: str
    n: int
    work: Callable[[int], None]


def measure_computing(
    comm: MPI.Intracomm | None = None, watcher: Callable[[int, int], None] = lambda *_: None
) -> dict[str, DeviceCosts]:
    """**Collective over** ``comm``. Measure what computing costs on ``cpu``, and ``gpu`` if all have one.

    ``comm`` is MPI's world by default; ``watcher`` is told how many operations have been timed, and how many
    there are.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    watch = Stopwatch.on(comm)
    places: dict[str, Place] = {"cpu": (ON_HOST, np.asarray, lambda: None)}
    if all_agree(comm, _has_gpu()):
        from redist.runtime.cuda.arrays import current_stream, to_device

        places["gpu"] = (ON_GPU, to_device, lambda: current_stream().synchronize())
    every = [
        (device, trial)
        for device, (sizes, bring, finish) in places.items()
        for trial in list_trials(sizes, bring, finish, lambda good: all_agree(comm, good))
    ]
    found: dict[str, list[OperationCost]] = {device: [] for device in places}
    for number, (device, trial) in enumerate(every):
        watcher(number, len(every))
        (times,) = watch.in_turn([trial.work], REPEATS, warm_ups=1)
        fs = max(1, round(times.least_s * FS / trial.n))  # what disturbs only adds
        found[device].append(OperationCost(trial.kind, trial.dtype, fs))
    watcher(len(every), len(every))
    return {device: costs_of(operations) for device, operations in found.items()}


def costs_of(found: Sequence[OperationCost]) -> DeviceCosts:
    """The measurements as costs of a device; an operation that is not known costs as much as the dearest map.

    >>> costs_of([OperationCost("memory", "", 100), OperationCost("map", "f32", 250)])
    DeviceCosts(elem_fs=250, byte_fs=100, operations=(OperationCost(kind='map', dtype='f32', elem_fs=250),))
    """
    (memory,) = (one.elem_fs for one in found if one.kind == "memory")
    dearest = max(one.elem_fs for one in found if one.kind == "map")
    return DeviceCosts(dearest, memory, tuple(one for one in found if one.kind != "memory"))


def list_trials(
    sizes: ComputingSizes,
    bring: Callable[[Any], Any],
    finish: Callable[[], Any],
    agree: Callable[[bool], bool] = bool,
) -> Iterator[ComputingTrial]:
    """The operations that work here, on arrays that ``bring`` puts where they are computed with.

    ``finish`` waits until they are done. Each is tried once; ``agree`` says whether it went well everywhere.
    """
    for name, long in DTYPES.items():
        try:
            dtype = np.dtype(long)
        except TypeError:
            continue
        side = sizes.fast_side if name in sizes.fast else sizes.slow_side
        for kind, n, once in _operations(dtype, side, sizes.elems, bring):
            trial = ComputingTrial(kind, name, n, _repeated(once, finish))
            if agree(_goes_well(trial)):
                yield trial
    large, other = (bring(np.ones(MEMORY_BYTES // 8)) for _ in range(2))

    def copy() -> None:
        other[...] = large

    yield ComputingTrial("memory", "", 2 * MEMORY_BYTES, _repeated(copy, finish))


def _operations(
    dtype: np.dtype[Any], side: int, elems: int, bring: Callable[[Any], Any]
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    a = bring(np.ones((side, side), dtype))
    yield "product", side**3, lambda: a @ a
    width = round(elems**0.5)
    b, out = bring(np.ones((width, width), dtype)), bring(np.ones((width, width), dtype))
    yield "map", width * width, lambda: np.multiply(b, b, out=out)
    yield "reduce", width * width, lambda: b.sum(axis=0)

    def transpose() -> None:
        out[...] = b.T

    yield "copy", width * width, transpose


def _repeated(once: Callable[[], Any], finish: Callable[[], Any]) -> Callable[[int], None]:
    def work(times: int) -> None:
        for _ in range(times):
            once()
        finish()

    return work


def _goes_well(trial: ComputingTrial) -> bool:
    try:
        trial.work(1)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _has_gpu() -> bool:
    """**Local.** Whether CuPy is there, and a GPU that it can use."""
    try:
        from redist.runtime.cuda.arrays import gpu_count

        return gpu_count() > 0
    except Exception:  # no CuPy, no driver, or one that does not fit
        return False
