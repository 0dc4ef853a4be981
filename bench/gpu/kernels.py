"""``python -m bench gpu kernels``: packs and unpacks on one GPU against the contiguous copy and CuPy's own.

JAX and PyTorch beside them. A process of JAX takes a GPU for itself, and NCCL, over which DTensor
redistributes, refuses two ranks on one GPU: only copies are compared with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.cases import PACKED, WHOLE, CopyCase, FaceCase, copy_cases, more_cases
from bench.gpu.copies import (
    PEERS,
    GenericMoves,
    copy_rate,
    gpu_machine,
    missing,
    need_gpu,
    numbered,
    times_of,
)
from bench.report.job import say
from bench.report.report import Row, Table, Tables
from redist.measure.timing import Times
from redist.runtime.cuda.kernels.rounds import CudaCopyList
from redist.text.units import parse_bytes

OURS, CUPY = "redist", "CuPy"
POISON = 0x77
DTYPES = {1: "int8", 2: "int16", 4: "float32"}
"""Elements by their bytes: such as all contenders have."""
FOUND = ("right", "bytes_per_s", "n", "least_s", "low_s", "median_s", "high_s", "most_s")


def run(size: str = "1GiB", repeat: int = 11, name: str = "") -> Tables:
    """Every case by every contender; rates count bytes read and written.

    size: of an array; name: of this run, if it is not to take the place of the first.
    """
    need_gpu()
    n_bytes, tables = parse_bytes(size), []
    for kind, cases in (("kernels", copy_cases(n_bytes)), ("more kernels", more_cases(n_bytes))):
        about, rows = measure(n_bytes, repeat, cases)
        run_name = kind + (f", {name}" if name else "")
        lines: list[Row] = [{"run": run_name, **row} for row in rows]
        wrong = not all(row["right"] for row in lines)
        title = f"Packs and unpacks of {size}, {run_name}"
        tables.append(Table.of("runs", title, lines, keys=3, is_wrong=wrong, about=about))
    return tuple(tables)


def measure(
    n_bytes: int, repeats: int, cases: Sequence[CopyCase | FaceCase]
) -> tuple[dict[str, Any], list[Row]]:
    """**Local.** What the run depends on, and a row for each contender of each case."""
    notes = {name: missing(name) for name in PEERS}
    before, rows = copy_rate(n_bytes), list[Row]()
    for case in cases:
        found = _rows(case, [name for name, note in notes.items() if not note], repeats)
        rows += found
        said = (f"{row['contender']} {_share(row, before)}" for row in found)
        say(f"{case.label}: " + ", ".join(said))
    about = {
        "array_bytes": n_bytes, "repeats": repeats, "copy_bytes_per_s": before,
        "copy_bytes_per_s_after": copy_rate(n_bytes), "nccl": measure_nccl(n_bytes, repeats),
        "absent": {name: note for name, note in notes.items() if note}, "machine": gpu_machine(),
    }  # fmt: skip
    return about, rows


def _share(row: Row, top: float) -> str:
    rate = row["bytes_per_s"]
    return f"{100 * rate / top:.0f} %" if isinstance(rate, float) else "WRONG"


def _rows(case: CopyCase | FaceCase, peers: list[str], repeats: int) -> list[Row]:
    """One case: results checked, then times."""
    import cupy

    sizes = [case.whole_bytes, case.n_bytes]
    source_bytes, target_bytes = reversed(sizes) if case.unpacks else sizes
    source = numbered(source_bytes).view(DTYPES[case.item_bytes])
    target = cupy.empty(target_bytes, cupy.uint8).view(source.dtype)
    wait = cupy.cuda.get_current_stream().synchronize
    bases = np.zeros(2, np.uintp)
    bases[[PACKED, WHOLE] if case.unpacks else [WHOLE, PACKED]] = source.data.ptr, target.data.ptr
    ours, generic = CudaCopyList.of(case.moves()), GenericMoves(case.moves())
    works: dict[str, tuple[Callable[[], Any], Callable[[], object]]] = {
        OURS: (lambda: ours.run(bases, cupy.cuda.get_current_stream().ptr), wait),
        CUPY: (lambda: generic.run(bases), wait),
    }
    for name in peers:
        if isinstance(case, CopyCase):
            works[name] = PEERS[name](case, source, target)
    want = _wanted(case, source.view(f"i{case.item_bytes}"))
    rows: list[Row] = []
    for name, (work, ready) in works.items():
        target.view("u1").fill(POISON)
        wait()
        got = work()
        ready()
        found = cupy.from_dlpack(got) if name in PEERS else target
        right = bool((found.reshape(-1).view(want.dtype) == want).all())
        del got, found
        about: Row = {"case": case.label, "contender": name}
        rows.append(found_row(about, right, case.n_bytes, partial(times_of, work, ready, repeats)))
    return rows


def found_row(about: Row, right: bool, n_bytes: int, measure: Callable[[], Times]) -> Row:
    """What one contender found: if its result was right, its times and its rate, reads and writes."""
    times = asdict(measure()) if right else {}
    rate = 2 * n_bytes / times["median_s"] if times else None
    values = {"right": right, "bytes_per_s": rate, **times}
    return {**about, **{key: values.get(key) for key in FOUND}}


def _wanted(case: CopyCase | FaceCase, source: Any) -> Any:
    """The bits that must be there in the end, by CuPy."""
    import cupy

    if isinstance(case, FaceCase):
        if not case.unpacks:
            box = source.reshape(case.shape)
            parts = [box[_within(*face)].reshape(-1) for face in case.faces()]
            return cupy.concatenate(parts)
        box = cupy.empty(case.whole_bytes, cupy.uint8)
        box.fill(POISON)
        box = box.view(source.dtype).reshape(case.shape)
        at = 0
        for first, shape in case.faces():
            n = math.prod(shape)
            box[_within(first, shape)] = source[at : at + n].reshape(shape)
            at += n
        return box.reshape(-1)
    shape, order = case.shape, case.order
    if case.unpacks:
        shape, order = case.packed_shape, case.back
    return source.reshape(shape).transpose(order).copy(order="C").reshape(-1)


def _within(first: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(lo, lo + n) for lo, n in zip(first, shape, strict=True))


def measure_nccl(n_bytes: int, repeats: int) -> dict[str, Any]:
    """**Local.** A grouped send and receive of one rank to itself; the rate counts bytes read and written."""
    import cupy

    try:
        from cupy.cuda import nccl

        joined = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    except Exception as error:
        return {"note": f"not measured: {type(error).__name__}: {error}"}
    a = cupy.arange(n_bytes // 4, dtype=cupy.int32)
    b = cupy.zeros_like(a)
    stream = cupy.cuda.get_current_stream()

    def work() -> None:
        nccl.groupStart()
        joined.send(a.data.ptr, n_bytes, nccl.NCCL_UINT8, 0, stream.ptr)
        joined.recv(b.data.ptr, n_bytes, nccl.NCCL_UINT8, 0, stream.ptr)
        nccl.groupEnd()

    work()
    stream.synchronize()
    if not bool((a == b).all()):
        return {"note": "wrong result"}
    times = times_of(work, stream.synchronize, repeats)
    return {
        "note": "",
        "version": nccl.get_version(),
        "median_s": times.median_s,
        "bytes_per_s": 2 * n_bytes / times.median_s,
    }
