"""Memory that a datatype is about: bytes of the host or of a GPU, behind whatever was given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, current_gpu, device_address, gpu_of, is_read_only

_HOST_KIND = 1
"""cudaMemoryTypeHost: memory of the host that is pinned."""


class Memory(NamedTuple):
    """Contiguous bytes: where they begin, how many, on a GPU or not, and what keeps them alive."""

    address: int
    n_bytes: int
    on_device: bool
    can_write: bool
    owner: Any

    @staticmethod
    def of(thing: Any, what: str) -> Memory:
        """**Local.** The bytes of an array or buffer; an error if there are gaps between them.

        >>> Memory.of(bytearray(5), "buffer").n_bytes, Memory.of(b"abc", "buffer").can_write
        (5, False)
        """
        if is_device(thing):
            return _on_device(thing, what)
        array = thing if isinstance(thing, np.ndarray) else _buffer(thing, what)
        if array.dtype.hasobject:
            raise ArgumentTypeError(
                f"cannot use the {what}: its elements are objects of Python, not bytes"
            )
        flags = array.flags
        _check_contiguous(array, what, flags)
        return Memory(address_of(array), array.nbytes, False, flags.writeable, array)

    @property
    def is_pinned(self) -> bool:
        """Whether a GPU reaches memory of the host in place."""
        import cupy

        if self.on_device or not self.n_bytes:
            return False
        found = cupy.cuda.runtime.pointerGetAttributes(self.address)
        return bool(found.type == _HOST_KIND)

    def meets(self, other: Memory) -> bool:
        """Whether two share bytes."""
        if self.on_device != other.on_device or not self.n_bytes or not other.n_bytes:
            return False
        return (
            self.address < other.address + other.n_bytes
            and other.address < self.address + self.n_bytes
        )


def _buffer(thing: Any, what: str) -> Any:
    try:
        view = memoryview(thing)
        return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentTypeError(
            f"cannot use {type(thing).__name__} as the {what}: {error}; give an array of NumPy or CuPy, or "
            "contiguous bytes"
        ) from None


def _on_device(thing: Any, what: str) -> Memory:
    try:
        array = as_device(thing)
    except Exception as error:  # CuPy says why
        raise ArgumentTypeError(f"cannot use the {what} on the GPU: {error}") from None
    _check_contiguous(array, what, array.flags)
    if array.size and gpu_of(array) != current_gpu():
        raise ArgumentError(
            f"cannot use the {what}: it is on GPU {gpu_of(array)}, and GPU {current_gpu()} is current; "
            "choose that one with cupy.cuda.Device(...)"
        )
    return Memory(
        device_address(array), array.nbytes, True, not is_read_only(thing), (thing, array)
    )


def _check_contiguous(array: Any, what: str, flags: Any) -> None:
    if not (flags.c_contiguous or flags.f_contiguous):
        raise RequestError(
            f"cannot use the {what}: shape {array.shape} with strides {array.strides} has gaps; give the "
            "whole memory, and let the datatype say which parts are meant"
        )
