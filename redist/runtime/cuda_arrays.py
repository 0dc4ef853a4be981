"""Arrays on a GPU: recognised, taken in without a copy, and never asked for before one appears."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_DIMS = 20
"""Of arrays that move between GPUs."""
_CUDA = 2
"""DLPack's number of the memory of a GPU."""


def is_device(array: Any) -> bool:
    """Whether an array lies in the memory of a GPU.

    >>> is_device(np.zeros(3)), is_device(None)
    (False, False)
    """
    if array is None or isinstance(array, (np.ndarray, np.generic)):
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and int(where()[0]) == _CUDA


def as_device(array: Any) -> Any:
    """The same memory as an array of CuPy."""
    import cupy

    if isinstance(array, cupy.ndarray):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        return cupy.asarray(array)
    return cupy.from_dlpack(array)


def empty_on_device(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """**Local.** A new array on the current GPU, from CuPy's pool."""
    import cupy

    return cupy.empty(shape, dtype)


def device_address(array: Any) -> int:
    """Address of the first element."""
    return int(array.data.ptr)


def current_stream() -> Any:
    """The caller's stream."""
    import cupy

    return cupy.cuda.get_current_stream()


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays, wherever they lie, may share memory."""
    if is_device(a) != is_device(b):
        return False
    if not is_device(a):
        return bool(np.may_share_memory(a, b))
    import cupy

    return bool(cupy.may_share_memory(a, b))
