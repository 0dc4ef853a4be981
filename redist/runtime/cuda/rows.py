"""Rows of what element-wise steps make, summed up or searched for extremes on a GPU, without writing them.

A block of threads works on a row at a time: each thread takes every so many words of it, then pairs of
threads put together what they have, half as many in each round. The order is the same in every run::

    thread 0   x0 + x4 + ..       \\
    thread 1   x1 + x5 + ..        \\  0 + 2   \\
    thread 2   x2 + x6 + ..        /   1 + 3    > the row
    thread 3   x3 + x7 + ..       /            /
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.elements import (
    MOST_STRIDED,
    WORD_BYTES,
    ElementStep,
    element_of,
    lying,
    offsets,
    pointers,
    reading,
    width_of,
)
from redist.runtime.cuda.loops import n_processors, run_loop
from redist.runtime.cuda.strides import joined_dims, steps_in

TOGETHER = {"sum": "{0} + {1}", "max": "largest({0}, {1})", "min": "least({0}, {1})"}
"""How two values of a row become one."""
FIRST = {"sum": "0", "max": "-1.0f / 0.0f", "min": "1.0f / 0.0f"}
N_THREADS = 256
BLOCKS_EACH = 8
"""A processor works on no more rows at a time."""
LEAST_ROW = 64
"""Shorter rows would leave most threads idle."""


def run_rows(leaves: Sequence[Any], steps: Sequence[ElementStep], op: str, keepdims: bool) -> Any:
    """**Local.** What rows of the last step, of f32, come to; None if they cannot be had in this way.

    Leaves are arrays of a GPU, and real numbers, as in :func:`~redist.runtime.cuda.elements.run_steps`.
    """
    arrays = [one for one in leaves if is_device(one)]
    numbers = [one for one in leaves if not is_device(one)]
    if not arrays or any(isinstance(one, complex) or np.ndim(one) for one in numbers):
        return None
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    if not shape or shape[-1] < LEAST_ROW or 0 in shape or steps[-1].dtype != "float32":
        return None
    import cupy

    kinds = tuple(one.dtype.name if is_device(one) else None for one in leaves)
    if "float64" in kinds:
        return None
    places = [steps_in(one, shape) for one in arrays]
    sizes, strides = joined_dims(shape[:-1], [one[:-1] for one in places])
    inner = tuple(one[-1] for one in places)
    if len(sizes) > MOST_STRIDED:
        return None
    width = width_of(list(filter(None, kinds)))
    in_words = shape[-1] % width == 0 and all(
        one.data.ptr % WORD_BYTES == 0
        and along in (0, 1)
        and all(step % width == 0 for step in lines)
        for one, along, lines in zip(arrays, inner, strides, strict=True)
        if along
    )
    width = width if in_words else 1
    out = cupy.empty((*shape[:-1], *([1] if keepdims else [])), np.float32)
    given = [
        np.uintp(one.data.ptr) if kind else float(one)
        for one, kind in zip(leaves, kinds, strict=True)
    ]
    source = rows_source_of(kinds, tuple(steps), op, width, len(sizes), inner)
    n_rows = int(out.size)
    blocks = min(n_rows, BLOCKS_EACH * n_processors())
    words = shape[-1] // width
    more = (*sizes, *(step for lines in strides for step in lines), *inner)
    run_loop(source, "rows", blocks, N_THREADS, n_rows, words, *given, out, *more)
    return out


@lru_cache(maxsize=1024)
def rows_source_of(
    leaves: tuple[str | None, ...],
    steps: tuple[ElementStep, ...],
    op: str,
    width: int,
    n_dims: int,
    inner: tuple[int, ...],
) -> str:
    """The text of a kernel: ``n_dims`` before the rows; elements of arrays are ``inner`` apart in a row."""
    arrays = [k for k, one in enumerate(leaves) if one]
    along = dict(zip(arrays, inner, strict=True))
    params = [
        *pointers(leaves),
        "float *out",
        *lying(arrays, n_dims),
        *(f"i64 t{k}" for k in arrays),
    ]
    lines = [f"i64 {', '.join(f'o{k} = 0' for k in arrays)}, left = row;"]
    lines += offsets(arrays, n_dims, "i64")
    reads, given = reading(
        leaves, along, width, lambda k, n: f"o{k} + w * {n}" if n > 1 else f"o{k} + w * t{k}"
    )
    inside = "\n                ".join(reads)
    return f"""{element_of(leaves, steps)}
extern "C" __global__ void rows(i64 n, i64 words, {", ".join(params)})
{{
    __shared__ float part[{N_THREADS}];
    for (i64 row = blockIdx.x; row < n; row += gridDim.x) {{
        EACH_THREAD
        {{
            {(chr(10) + " " * 12).join(lines)}
            float value = {FIRST[op]};
            for (i64 w = tid; w < words; w += N_THREADS) {{
                {inside}
#pragma unroll
                for (int k = 0; k < {width}; k++) {{
                    const float one = element({", ".join(given)});
                    value = {TOGETHER[op].format("value", "one")};
                }}
            }}
            part[tid] = value;
        }}
        __syncthreads();
        for (int half = N_THREADS / 2; half; half /= 2) {{
            EACH_THREAD
            {{
                if (tid < half)
                    part[tid] = {TOGETHER[op].format("part[tid]", "part[tid + half]")};
            }}
            __syncthreads();
        }}
        EACH_THREAD
        {{
            if (!tid)
                out[row] = part[0];
        }}
        __syncthreads();
    }}
}}
"""
