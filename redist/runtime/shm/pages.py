"""Give the memory of a donated array back to the system."""

from __future__ import annotations

import mmap
from typing import Any

from numpy.typing import NDArray

from redist.runtime.copies.addresses import address_of
from redist.runtime.shm.mappings import advise
from redist.runtime.shm.segments import find
from redist.text.units import ceil_div


def release_pages(array: NDArray[Any]) -> None:
    """Drop the pages that lie wholly inside an array without gaps; its contents are undefined after.

    Its dims may lie in any order. The array stays valid: touched again, its pages come back as zeros.
    """
    if not _has_no_gaps(array) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    page = mmap.PAGESIZE
    start = ceil_div(address_of(array), page) * page
    end = (address_of(array) + array.nbytes) // page * page
    if end > start:
        is_shared = find(array) is not None
        advise(start, end - start, mmap.MADV_REMOVE if is_shared else mmap.MADV_DONTNEED)


def _has_no_gaps(array: NDArray[Any]) -> bool:
    inner_first = sorted(range(array.ndim), key=array.strides.__getitem__)
    return array.transpose(inner_first).flags.f_contiguous
