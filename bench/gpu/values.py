"""What the ranks of a GPU benchmark hold: whole numbers of the global index, made on the GPU."""

from __future__ import annotations

from typing import Any

from redist.layout.array_type import ArrayType
from redist.measure.values import ValueBox, boxes, parts

MODULUS = 4093
"""Values stay below this, so that f32 adds up a few thousand of them exactly."""
_FACTORS = (1009, 2003, 3001, 331)


def values(box: ValueBox) -> Any:
    """**Local.** A box of the array, without partial values: f32 on the current GPU."""
    import cupy

    total: Any = cupy.zeros((1,) * len(box.lo), cupy.int32)
    for dim, (lo, hi) in enumerate(zip(box.lo, box.hi, strict=True)):
        line = cupy.arange(lo, hi, dtype=cupy.int64) * _FACTORS[dim] % MODULUS
        shape = [1] * len(box.lo)
        shape[dim] = hi - lo
        total = total + line.astype(cupy.int32).reshape(shape)
    out = cupy.remainder(total, cupy.int32(MODULUS))
    return out.astype(cupy.float32)


def fill(tile: Any, t: ArrayType, rank: int) -> None:
    """**Local.** Write what a rank holds of the source; partial values differ by one."""
    box = boxes(t).get(rank)
    if box is not None:
        tile[...] = values(box)
        tile += parts(t).get(rank, 0)


def is_right(tile: Any, source: ArrayType, target: ArrayType, rank: int) -> bool:
    """**Local.** Whether a rank's tile of the target is what it must be, bit for bit."""
    box = boxes(target).get(rank)
    if box is None:
        return True
    want = values(box)
    if source.pending_op is not None:
        n = max(parts(source).values()) + 1
        want *= n
        want += n * (n - 1) // 2
    return bool((tile == want).all())
