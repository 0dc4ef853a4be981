"""Every way to hand arrays to a transfer: memory layouts, and what must be left alone."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.dtype import DType
from redist.runtime.shm.segments import shared_bytes

Array = NDArray[Any]

LAYOUTS = ("plain", "fortran", "strided", "negative", "inside", "unaligned", "shared")
FILLER = 0xA5


class Dressed:
    """An array in some layout, inside of memory that nobody may write."""

    def __init__(self, like: Array, layout: str) -> None:
        self.whole, self.array = _room(like.shape, like.dtype, layout)

    def fill(self, values: Array | None) -> None:
        """Give it values, or something that is none."""
        self.array.setflags(write=True)
        if values is None:
            values = np.full(self.array.nbytes, FILLER, np.uint8)
        np.copyto(self.array, values.view(self.array.dtype).reshape(self.array.shape))

    def is_untouched_around(self) -> bool:
        """Whether all bytes that are not in the array are as they were; spoils the array."""
        self.fill(None)
        return bool(np.all(self.whole == FILLER))


def _room(shape: tuple[int, ...], dtype: np.dtype[Any], layout: str) -> tuple[Array, Array]:
    """Bytes, and an array of this shape somewhere in them."""
    wide = list(shape)
    order = range(len(shape))
    cut: list[slice] = [slice(None)] * len(shape)
    match layout:
        case "fortran":
            order = range(len(shape) - 1, -1, -1)
        case "strided" if shape:
            wide[-1] *= 3
            cut[-1] = slice(1, None, 3)
        case "negative":
            cut = [slice(None, None, -1)] * len(shape)
        case "inside":
            wide = [n + 2 for n in shape]
            cut = [slice(1, -1)] * len(shape)
    shift = 1 if layout == "unaligned" else 0
    n_bytes = int(np.prod(wide, dtype=np.int64)) * dtype.itemsize
    n_bytes += shift
    whole = shared_bytes(n_bytes) if layout == "shared" else np.empty(n_bytes, np.uint8)
    whole[...] = FILLER
    stored = whole[shift:].view(dtype).reshape([wide[i] for i in order])
    array = stored.transpose(order) if layout == "fortran" else stored[tuple(cut)]
    if array.ndim == 0:
        array = stored.reshape(())
    assert array.shape == shape, (array.shape, shape, layout)
    return whole, array


def with_arithmetic(array: Array, dtype: DType, rng: Random) -> Array:
    """Half of the time a bf16 or f8 array as ``ml_dtypes`` has them."""
    if dtype.extended_name is None or rng.random() < 0.5:
        return array
    import ml_dtypes

    return array.view(np.dtype(getattr(ml_dtypes, dtype.extended_name)))


def bits(array: Array) -> bytes:
    """The values as bytes, in C order."""
    return np.ascontiguousarray(array).tobytes()
