"""Packs and unpacks on one GPU against the contiguous copy, CuPy's own copies, JAX and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bench.gpu import nccl as gpu_nccl
from bench.gpu.cases import PACKED, WHOLE, CopyCase, FaceCase, copy_cases
from bench.gpu.generic import GenericMoves
from bench.gpu.peers import CANNOT, PEERS, missing
from bench.gpu.timing import copy_rate, times_of
from redist.runtime.cuda.kernels.copies import CudaCopyList

OURS, CUPY = "redist", "CuPy"
POISON = 0x77


DTYPES = {1: "int8", 2: "int16", 4: "float32"}
"""Elements by their bytes: such as all contenders have."""


def measure(
    n_bytes: int,
    repeats: int,
    say: Callable[[str], None],
    cases: Sequence[CopyCase | FaceCase] = (),
) -> dict[str, Any]:
    """**Local.** Every case by every contender; rates count bytes read and written."""
    notes = {name: missing(name) for name in PEERS}
    before = copy_rate(n_bytes)
    rows = []
    for case in cases or copy_cases(n_bytes):
        rows.append(_row(case, [name for name, note in notes.items() if not note], repeats))
        say(f"{case.label}: " + ", ".join(_said(rows[-1], name, before) for name in rows[-1]))
    return {
        "array_bytes": n_bytes,
        "repeats": repeats,
        "copy_bytes_per_s": before,
        "copy_bytes_per_s_after": copy_rate(n_bytes),
        "cases": rows,
        "nccl": gpu_nccl.measure(n_bytes, repeats),
        "absent": {name: note for name, note in notes.items() if note},
        "cannot": CANNOT,
    }


def _row(case: CopyCase | FaceCase, peers: list[str], repeats: int) -> dict[str, Any]:
    """One case: results checked, then times."""
    import cupy

    sizes = [case.whole_bytes, case.n_bytes]
    source_bytes, target_bytes = reversed(sizes) if case.unpacks else sizes
    source = _numbered(source_bytes).view(DTYPES[case.item_bytes])
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
    row: dict[str, Any] = {"case": case.label, "shape": case.shape}
    for name, (work, ready) in works.items():
        target.view("u1").fill(POISON)
        wait()
        got = work()
        ready()
        found = cupy.from_dlpack(got) if name in PEERS else target
        right = bool((found.reshape(-1).view(want.dtype) == want).all())
        del got, found
        times = times_of(work, ready, repeats) if right else None
        rate = 2 * case.n_bytes / times.median_s if times else None
        row[name] = {"right": right, "bytes_per_s": rate, **(asdict(times) if times else {})}
    return row


def _numbered(n_bytes: int) -> Any:
    """Bytes that look random, the same in every run: no two words of 4 are alike."""
    import cupy

    words = cupy.arange((n_bytes + 3) // 4, dtype=cupy.uint32)
    return (words * cupy.uint32(2654435761)).view(cupy.uint8)[:n_bytes]


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


def _said(row: dict[str, Any], name: str, top: float) -> str:
    entry = row[name]
    if not isinstance(entry, dict):
        return f"{name} {entry}"
    return f"{name} {100 * entry['bytes_per_s'] / top:.0f} %" if entry["right"] else f"{name} WRONG"
