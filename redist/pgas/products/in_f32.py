"""Products of tiles of 16-bit floats: f32 products of blocks, in memory that does not grow with the tiles.

::

    out[rows, columns] = f32(x[rows]) @ f32(y[:, columns])          all of the contracted dim

A block of ``y`` is converted once, and rows of ``x`` for each of them: with blocks of 256 columns that is one
conversion for 512 operations. NumPy has no fast products of f16, and those of bf16 give other dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.kinds import F32, is_half
from redist.pgas.tiles.tiled import Tile

ROWS_BYTES = 2**20
"""The f32 values of a block of rows."""
COLUMNS_BYTES = 2**22
"""Those of a block of columns."""
MOST_INNER = 2**14
"""More of the contracted dim passes in parts, which are added in f32."""
MOST_SIDE = 2**9
"""A block has no more rows and columns."""
WORK_BYTES = ROWS_BYTES + COLUMNS_BYTES + 2 * 4 * MOST_SIDE**2
"""What a product takes beside its operands and its result."""


def product_in_f32(x: Tile, y: Tile, out: Tile | None = None) -> Tile:
    """**Local.** Multiply tiles as ``numpy.matmul`` does, added up in f32 and rounded once to ``out``.

    >>> product_in_f32(np.ones((2, 4096), np.float16), np.ones((4096, 1), np.float16)).tolist()
    [[4096.0], [4096.0]]
    """
    a = x if x.ndim > 1 else x[np.newaxis]
    b = y if y.ndim > 1 else y[:, np.newaxis]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    whole = (*stack, a.shape[-2], b.shape[-1])
    ends = [n for n, one in ((a.shape[-2], x), (b.shape[-1], y)) if one.ndim > 1]
    if out is None:
        out = np.empty((*stack, *ends), F32)
    into = out.reshape(whole)
    if a.ndim == 2 and b.ndim == 2:
        _multiply(a, b, into)
        return out
    a = np.broadcast_to(a, (*stack, *a.shape[-2:]))
    b = np.broadcast_to(b, (*stack, *b.shape[-2:]))
    for at in np.ndindex(*stack):
        _multiply(a[at], b[at], into[at])
    return out


def _multiply(a: Tile, b: Tile, out: Tile) -> None:
    (m, k), n = a.shape, b.shape[1]
    inner = min(max(1, k), MOST_INNER)
    columns, rows = (min(MOST_SIDE, most // (4 * inner)) for most in (COLUMNS_BYTES, ROWS_BYTES))
    for left in range(0, n, columns):
        right = slice(left, left + columns)
        wide = _wide(b[:, right]) if k <= inner else None
        for top in range(0, m, rows):
            below = slice(top, top + rows)
            if wide is not None:
                made: Any = np.matmul(_wide(a[below]), wide)
            else:
                made = _in_parts(a[below], b[:, right], inner)
            np.copyto(out[below, right], made, casting="unsafe")


def _in_parts(a: Tile, b: Tile, n: int) -> Any:
    """The f32 product of blocks whose contracted dim is long."""
    made: Any = 0
    for at in range(0, a.shape[1], n):
        made = np.matmul(_wide(a[:, at : at + n]), _wide(b[at : at + n])) + made
    return made


def _wide(part: Tile) -> Tile:
    return part.astype(F32) if is_half(part.dtype) else part


product_in_f32.work_bytes = WORK_BYTES  # type: ignore[attr-defined]
