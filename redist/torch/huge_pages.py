"""New tiles in memory, asked for in large pages: the system hands these out many times faster."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

HUGE_BYTES = 2**21
"""The size of a large page; smaller tiles are left alone."""


def new_tile(shape: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """**Local.** A tile whose contents are undefined, on any device."""
    tile = torch.empty(tuple(shape), dtype=dtype, device=device)
    if tile.device.type == "cpu" and tile.nbytes >= 2 * HUGE_BYTES:
        advise(tile.data_ptr(), tile.nbytes)
    return tile


def advise(address: int, n_bytes: int) -> None:
    """**Local.** Ask the system for large pages where they lie wholly inside a range of bytes.

    The memory stays what it is; a system without large pages ignores it.
    """
    start = -(-address // HUGE_BYTES) * HUGE_BYTES
    end = (address + n_bytes) // HUGE_BYTES * HUGE_BYTES
    if end > start and hasattr(mmap, "MADV_HUGEPAGE"):
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_HUGEPAGE)


@lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
