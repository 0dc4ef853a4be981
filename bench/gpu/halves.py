"""``python -m bench halves gpu``: global arrays of 16-bit floats on one GPU, beside PyTorch and CuPy.

The work is written as users write it: ``a @ b`` of global arrays on one rank, and a chain of element-wise
functions in a program. Results are compared with f32 ones by CuPy before they are timed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.copies import copy_rate, gpu_machine, need_gpu, times_of
from bench.report.figures import in_turn, met
from bench.report.job import say
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.layout.dtype import DType
from redist.pgas.kinds import dtype_asked

OURS, TORCH, CUPY = "redist", "PyTorch", "CuPy"
SHARE_AIM = 0.95
"""Of PyTorch's rate, in products."""
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 5e-6}
"""How far each rounding may move a result from that in f32, as a share of the largest."""
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Work on arrays of one dtype: by a program or a call of ours, by PyTorch, and by CuPy in f32."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Function
    torchs: Function
    cupys: Function
    amount: float
    """Operations of a product; bytes read and written else."""
    is_product: bool = False
    n_roundings: int = 2
    """At most so many functions round, by any of the ways."""


def cases(side: int, n: int) -> list[Case]:
    """Products of matrices and of stacks of them, and passes over long arrays."""
    square, stack = (side, side), (side // 64, side // 8, side // 8)
    out = []
    for dtype in ("bf16", "f16"):
        for name, shape, work in (
            ("of matrices", square, operator.matmul),
            ("of stacks", stack, operator.matmul),
            ("with a transpose", square, _turned),
        ):
            flops = 2.0 * np.prod(shape) * shape[-1]
            out.append(
                Case(f"product {name}", dtype, (shape, shape), work, work, work, flops, True)
            )
    gated = pgas.program(_gated), _torch_gated, _cupy_gated
    for dtype, size in (("bf16", 2), ("f16", 2), ("f32", 4)):
        pair, three = ((n,), (n,)), 3.0 * size * n
        rows = ((n // 4096, 4096),)
        out += [
            Case("x + y", dtype, pair, operator.add, operator.add, operator.add, three),
            Case("x / (1 + exp(-x)) * y", dtype, pair, *gated, three, n_roundings=4),
            Case("sums of rows", dtype, rows, _ours_rows, _torch_rows, _cupy_rows, three / 3),
        ]
    return out


def _turned(x: Any, y: Any) -> Any:
    return x @ y.T


def _gated(x: Any, y: Any) -> Any:
    return x / (1 + pgas.exp(-x)) * y


def _torch_gated(x: Any, y: Any) -> Any:
    import torch

    return torch.nn.functional.silu(x) * y


def _cupy_gated(x: Any, y: Any) -> Any:
    import cupy

    return x / (1 + cupy.exp(-x)) * y


def _ours_rows(x: Any) -> Any:
    return pgas.sum(x, axis=1)


def _torch_rows(x: Any) -> Any:
    return x.sum(dim=1)


def _cupy_rows(x: Any) -> Any:
    return x.sum(axis=1)


def run(side: int = 8192, length: int = 2**27, repeat: int = 11) -> Tables:
    """Every case by both; medians.

    side: of the matrices; length: of the arrays that are passed over, in elements.
    """
    need_gpu()
    import cupy

    top = copy_rate(2**30)
    rows, wrong = list[Row](), False
    for case in cases(side, length):
        times, is_wrong = measure(case, repeat)
        cupy.get_default_memory_pool().free_all_blocks()
        wrong |= is_wrong
        rates = {name: case.amount / s / 1e12 for name, s in times.items()}
        share = rates[OURS] / rates[TORCH] if TORCH in rates else None
        rows.append({
            "work": case.name, "dtype": case.dtype, "unit": "TFLOP/s" if case.is_product else "TB/s",
            OURS: rates[OURS], TORCH: rates.get(TORCH), "share of PyTorch's rate": share,
            "ms": 1e3 * times[OURS],
        })  # fmt: skip
        say(f"{case.name}, {case.dtype}: " + ", ".join(f"{k} {v:.3g}" for k, v in rates.items()))
    shares = [row["share of PyTorch's rate"] for row in rows if row["unit"] == "TFLOP/s"]
    least = min((one for one in shares if isinstance(one, float)), default=None)
    notes = [f"a contiguous copy reads and writes {top / 1e12:.2f} TB/s"]
    if least is not None:
        notes.append(
            f"products reach at least {100 * least:.0f} % of PyTorch's rate (aim {100 * SHARE_AIM:.0f} %: "
            f"{met(least >= SHARE_AIM)})"
        )
    about = {"machine": gpu_machine(), "side": side, "length": length, "repeats": repeat}
    title = "Global arrays of 16-bit floats on one GPU, medians"
    return (Table.of("gpu", title, rows, *notes, keys=3, is_wrong=wrong, about=about),)


def measure(case: Case, repeats: int) -> tuple[dict[str, float], bool]:
    """**Local.** Seconds by way, in turns of ten calls, and whether a result is wrong."""
    import cupy

    wait = cupy.cuda.get_current_stream().synchronize
    kind = dtype_asked(DType.parse(case.dtype))
    drawn = cupy.random.default_rng(1)
    wide = [drawn.random(shape, cupy.float32) - 0.5 for shape in case.shapes]
    given = [one.astype(kind) for one in wide]
    want = case.cupys(*(one.astype(cupy.float32) for one in given))
    del wide
    ways: dict[str, tuple[Function, Sequence[Any]]] = {
        OURS: (case.ours, [_global(one, case.dtype) for one in given])
    }
    theirs = _as_torch(given, case.dtype)
    if theirs is not None:
        ways[TORCH] = case.torchs, theirs
    wrong, works = 0, dict[str, Callable[[], Any]]()
    for name, (work, args) in ways.items():
        got = work(*args)
        tile = got.local if name == OURS else cupy.from_dlpack(got.float())
        far = abs(tile.astype(cupy.float32).reshape(want.shape) - want).max()
        error, most = float(far / abs(want).max()), case.n_roundings * ROUNDING[case.dtype]
        if not error <= most:
            say(f"{case.name}, {case.dtype}, {name}: WRONG by {error:.2e}, {most:.2e} allowed")
            wrong += 1
        works[name] = partial(work, *args)
    del got, tile, want
    found = in_turn(works, repeats, lambda work: times_of(work, wait, 1).median_s)
    return {name: float(np.median(one)) for name, one in found.items()}, wrong > 0


def _global(tile: Any, dtype: str) -> pgas.Array:
    """The global array of one rank with this tile."""
    dims = ", ".join(f"{n}" for n in tile.shape)
    return pgas.from_local(tile, f"{dtype}[{dims}]")


def _as_torch(given: Sequence[Any], dtype: str) -> list[Any] | None:
    """The same memory as tensors of PyTorch; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[dtype]
    return [
        torch.as_tensor(one.view("i2" if one.itemsize == 2 else "i4"), device="cuda").view(kind)
        for one in given
    ]
