"""Recognise arrays of a GPU without loading anything that works with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_CUDA = 2
"""DLPack's number of the memory of a GPU."""


def is_device(array: Any) -> bool:
    """Whether an array lies in the memory of a GPU.

    >>> is_device(np.zeros(3)), is_device(None)
    (False, False)
    """
    if array is None or isinstance(array, (np.ndarray, np.generic)):
        return False
    if is_cupy_array(array):
        return True
    try:
        if hasattr(array, "__cuda_array_interface__"):
            return True
        where = getattr(array, "__dlpack_device__", None)
        return where is not None and int(where()[0]) == _CUDA
    except Exception:  # it says why when it is taken in
        return True


def is_cupy_array(array: Any) -> bool:
    """Whether it is an array of CuPy; quicker than to ask for the interface."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def on_this_gpu(work: Callable[[], T]) -> Callable[[], T]:
    """**Local.** Work that another thread does on the GPU and the stream that are current here.

    The same work if there is no GPU, or if CuPy was not imported.
    """
    if "cupy" not in sys.modules:
        return work
    import cupy

    try:
        device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()
    except Exception:  # CuPy without a GPU
        return work

    def there() -> T:
        with device, stream:
            return work()

    return there


def strided_view(array: Any, counts: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Elements of an array, of NumPy's or CuPy's, that begins with the first of them."""
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, counts, strides)
    import cupy

    return cupy.lib.stride_tricks.as_strided(array, counts, strides)


def indices_for(array: Any, indices: Any) -> Any:
    """Indices of the host as an array of NumPy's or CuPy's takes them: on its GPU, if it has one."""
    if isinstance(array, np.ndarray):
        return indices
    import cupy

    return cupy.asarray(indices)
