"""Give the memory of a donated array back to the system."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from numpy.typing import NDArray

from redist.runtime.copies.addresses import address_of
from redist.runtime.shm.segments import find
from redist.text.units import ceil_div


def release_pages(array: NDArray[Any]) -> None:
    """Drop the pages that lie wholly inside a contiguous array; its contents are undefined after.

    The array stays valid: touched again, its pages come back as zeros.
    """
    if not array.flags.contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    page = mmap.PAGESIZE
    start = ceil_div(address_of(array), page) * page
    end = (address_of(array) + array.nbytes) // page * page
    if end <= start:
        return
    advice = mmap.MADV_DONTNEED
    if find(array) is not None:
        advice = mmap.MADV_REMOVE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(advice))
