"""Where memory of a GPU lies, as other processes of the node are told to open it by CUDA IPC. No MPI."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.runtime.cuda.arrays import device_address
from redist.runtime.cuda.kernels.launch import driver, raise_if_refused
from redist.text.latest import Latest

MOST_OPENED = 1024
_BUFFER_ID = 7
"""CU_POINTER_ATTRIBUTE_BUFFER_ID of the driver."""
LAZY_PEER_ACCESS = 1
"""cudaIpcMemLazyEnablePeerAccess of the runtime."""


@dataclass(frozen=True, slots=True)
class OpenedMemory:
    """Where device memory lies: in which allocation, and how far from its start.

    ``number`` is the driver's own of the allocation: addresses come back, numbers do not.
    """

    handle: bytes
    number: int
    offset: int

    @property
    def words(self) -> list[int]:
        """As integers, for the control page."""
        return [self.number, self.offset, *np.frombuffer(self.handle, np.int64).tolist()]

    @staticmethod
    def read(words: NDArray[np.int64]) -> OpenedMemory:
        """From the control page."""
        return OpenedMemory(words[2:10].tobytes(), int(words[0]), int(words[1]))


WORDS = 10
"""Integers of a place."""


def place_of(address: int) -> OpenedMemory:
    """The place of an address; an error if its memory cannot be shared."""
    number = ctypes.c_uint64()
    status = driver().cuPointerGetAttribute(
        ctypes.byref(number), _BUFFER_ID, ctypes.c_uint64(address)
    )
    raise_if_refused(status, "number an allocation")
    key = number.value, address
    if key not in _PLACES:
        handle, base = _allocation(address)
        _PLACES[key] = OpenedMemory(handle, number.value, address - base)
    return _PLACES[key]


_PLACES: Latest[tuple[int, int], OpenedMemory] = Latest(MOST_OPENED)
"""Places of this process, by the driver's numbers of their allocations and their addresses."""


def _allocation(address: int) -> tuple[bytes, int]:
    from cupy.cuda import runtime

    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver().cuMemGetAddressRange_v2(
        ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)
    )
    raise_if_refused(status, "find an allocation")
    return bytes(runtime.ipcGetMemHandle(base.value)), base.value


def check_shareable(array: Any, what: str) -> OpenedMemory:
    """The place of an array's memory; if ranks cannot share it, an error that says what to do."""
    try:
        return place_of(device_address(array))
    except Exception as error:
        raise RequestError(
            f"cannot share the {what} with other ranks: its memory cannot be opened by CUDA IPC "
            f"({error}); copy it into an array of CuPy's pool"
        ) from None
