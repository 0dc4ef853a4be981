"""Arrays on a GPU: made, copied, compared, and taken in from other libraries without a copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.gpu_arrays import is_cupy_array, is_device

MOST_DIMS = 20
"""Of arrays that move between GPUs."""
TO_DEVICE, TO_HOST = 1, 2
"""Kinds of copies, as CUDA numbers them."""


def as_device(array: Any) -> Any:
    """The same memory as an array of CuPy."""
    import cupy

    if isinstance(array, cupy.ndarray):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        return cupy.asarray(array)
    return cupy.from_dlpack(array)


def shared(array: Any) -> Any:
    """The same memory as an array of CuPy, by DLPack where another library made it: it names all dtypes."""
    if is_cupy_array(array) or not hasattr(array, "__dlpack__"):
        return as_device(array)
    import cupy

    return cupy.from_dlpack(array)


def is_read_only(array: Any) -> bool:
    """Whether an array of a GPU, as it was given, says that it must not be written."""
    if is_cupy_array(array):
        return False
    interface = getattr(array, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])


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


@contextlib.contextmanager
def on_stream(device: int, stream: int) -> Iterator[None]:
    """**Local.** Let CuPy work on another library's stream, by its address; without CuPy nothing changes."""
    try:
        import cupy
    except ImportError:
        yield
        return
    with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
        yield


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays, wherever they lie, may share memory."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if is_device(a) != is_device(b):
        return False
    if a.flags.c_contiguous and b.flags.c_contiguous:  # CuPy finds the bounds of others, slowly
        begin, there = device_address(a), device_address(b)
        return begin < there + b.nbytes and there < begin + a.nbytes
    import cupy

    return bool(cupy.may_share_memory(a, b))


def to_host(array: Any) -> Any:
    """**Local.** The values as a NumPy array: itself, or a copy in memory once the stream is there."""
    if not is_device(array):
        return np.asarray(array)
    import cupy

    return cupy.asnumpy(as_device(array))


def to_device(array: Any) -> Any:
    """**Local.** The values on the current GPU: itself where it is there already, else a copy."""
    import cupy

    if is_device(array):
        return as_device(array)
    values = np.asarray(array)
    if values.ndim == 0:  # CuPy would make 0.0 of -0.0
        return cupy.asarray(values.reshape(1)).reshape(())
    return cupy.asarray(values)


def filled_on_device(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Any:
    """**Local.** A new array of one value on the current GPU."""
    out = empty_on_device(shape, dtype)
    fill_with(out, value)
    return out


def indices_beside(array: Any, start: int, stop: int) -> Any:
    """**Local.** Whole numbers in a row, as a new array where another lies.

    >>> indices_beside(np.zeros(1), 2, 5)
    array([2, 3, 4])
    """
    if not is_device(array):
        return np.arange(start, stop)
    import cupy

    return cupy.arange(start, stop)


def fill_with(array: Any, value: Any) -> None:
    """**Local.** Write one value everywhere, to the bit: CuPy alone makes 0.0 of -0.0."""
    one = np.asarray(value, array.dtype)
    if is_device(array) and one == 0 and any(one.tobytes()):
        array[...] = to_device(one)
    else:
        array.fill(one[()])


def current_gpu() -> int:
    """**Local.** The number of the GPU that this rank uses."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def wait_for_gpu() -> None:
    """**Local.** Wait until the GPU has done all that this process gave it, on any stream."""
    import cupy

    cupy.cuda.runtime.deviceSynchronize()


def gpu_count() -> int:
    """**Local.** How many GPUs this rank sees."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def gpu_of(array: Any) -> int:
    """**Local.** The number of the GPU that holds an array."""
    return int(array.device.id)


def view_as(array: Any, shape: tuple[int, ...]) -> Any:
    """**Local.** The same memory in another shape; None where that takes a copy."""
    if not array.size or array.flags.c_contiguous:
        return array.reshape(shape)
    found = array.reshape(shape)
    return found if device_address(found) == device_address(array) else None


def memory_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """The memory of a GPU at an address as an array. Whoever calls keeps the memory alive."""
    import cupy

    n_bytes = sum((n - 1) * abs(step) for n, step in zip(shape, strides, strict=True))
    memory = cupy.cuda.UnownedMemory(address, n_bytes + dtype.itemsize, None, current_gpu())
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


def pinned_bytes(n_bytes: int) -> NDArray[np.uint8]:
    """**Local.** Memory of the host that a GPU copies to at full speed, from CuPy's pool."""
    import cupy

    return np.frombuffer(cupy.cuda.alloc_pinned_memory(n_bytes), np.uint8, n_bytes)
