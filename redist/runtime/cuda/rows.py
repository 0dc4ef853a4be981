"""Rows of what element-wise steps make, summed up or searched for extremes on a GPU, without writing them.

A block of threads works on a row at a time: each thread takes every so many words of it, then pairs of
threads put together what they have, half as many in each round. The order is the same in every run::

    thread 0   x0 + x4 + ..       \\
    thread 1   x1 + x5 + ..        \\  0 + 2   \\
    thread 2   x2 + x6 + ..        /   1 + 3    > the row
    thread 3   x3 + x7 + ..       /            /
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.cuda.elements import (
    MOST_STRIDED,
    N_THREADS,
    ElementStep,
    Launch,
    element_of,
    lying,
    offsets,
    pointers,
    reading,
    width_of,
    words_of,
)
from redist.runtime.cuda.loops import n_processors
from redist.runtime.cuda.strides import Lies, joined_dims, lies_of, stretched

TOGETHER = {"sum": "{0} + {1}", "max": "largest({0}, {1})", "min": "least({0}, {1})"}
"""How two values of a row become one."""
FIRST = {"sum": "0", "max": "-1.0f / 0.0f", "min": "1.0f / 0.0f"}
BLOCKS_EACH = 8
"""A processor works on no more rows at a time."""
LEAST_ROW = 64
"""Shorter rows would leave most threads idle."""


def run_rows(leaves: Sequence[Any], steps: Sequence[ElementStep], op: str, keepdims: bool) -> Any:
    """**Local.** What rows of the last step, of f32, come to; None if they cannot be had in this way.

    Leaves are arrays of a GPU, and real numbers, as in :func:`~redist.runtime.cuda.elements.run_steps`.
    """
    lies = lies_of(leaves)
    launch = None if lies is None else _launch(lies, tuple(steps), op, keepdims, n_processors())
    return None if lies is None or launch is None else launch.run(leaves, lies)


@lru_cache(maxsize=1024)
def _launch(
    lies: Lies, steps: tuple[ElementStep, ...], op: str, keepdims: bool, processors: int
) -> Launch | None:
    """The kernel of some rows; None where there is none."""
    shape = stretched(lies)
    if not shape or shape[-1] < LEAST_ROW or 0 in shape or steps[-1].dtype != "float32":
        return None
    arrays = [one for one in lies if one is not None]
    kinds = tuple(None if one is None else one.dtype.name for one in lies)
    if "float64" in kinds:
        return None
    places = [one.steps_in(shape) for one in arrays]
    sizes, strides = joined_dims(shape[:-1], [one[:-1] for one in places])
    inner = tuple(one[-1] for one in places)
    if len(sizes) > MOST_STRIDED:
        return None
    width = width_of(list(filter(None, kinds)))
    whole = shape[-1] % width == 0 and all(
        one.in_words and along in (0, 1) and all(step % width == 0 for step in lines)
        for one, along, lines in zip(arrays, inner, strides, strict=True)
        if along
    )
    width = width if whole else 1
    source = rows_source_of(kinds, steps, op, width, len(sizes), inner)
    n_rows = math.prod(shape[:-1])
    head = words_of(n_rows, shape[-1] // width)
    tail = words_of(*sizes, *(step for lines in strides for step in lines), *inner)
    made = (*shape[:-1], *([1] if keepdims else []))
    n_blocks = min(n_rows, BLOCKS_EACH * processors)
    return Launch(made, np.dtype(np.float32), source, "rows", n_blocks, head, tail)


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
