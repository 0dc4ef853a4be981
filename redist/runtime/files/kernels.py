"""Runs of bytes between memory and a file, and CRC-32 as zlib has it, in C where that is built.

Both go on without the library: by system calls and zlib from Python, run by run.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.kernels import load_library, warn_of_numpy

ABI = 1
MAX_DIMS = 12
CHECK, READ, WRITE, UPDATE = range(4)
"""What is done with runs, as in files.h; UPDATE writes only what the file does not have yet."""
MOST_BYTES = 2**30
LIBRARY = Path(__file__).with_name("_kernels.so")
Sums = NDArray[np.uint32]


class _Runs(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_int64),
        ("run", ctypes.c_int64),
        ("n_dims", ctypes.c_int64),
        ("most", ctypes.c_int64),
        ("count", ctypes.c_int64 * MAX_DIMS),
        ("memory_step", ctypes.c_int64 * MAX_DIMS),
        ("file_step", ctypes.c_int64 * MAX_DIMS),
        ("sums", ctypes.c_void_p),
        ("base", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("block", ctypes.c_int64),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """**Local.** The library, or None where it is missing or ``REDIST_PURE=1`` asks for Python."""
    found = load_library(LIBRARY, "redist_files_abi", ABI)
    if isinstance(found, str):
        warn_of_numpy(found)
        return None
    found.redist_crc.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64]
    found.redist_crc.restype = ctypes.c_uint32
    found.redist_crc_shift.argtypes = [ctypes.c_uint32, ctypes.c_int64]
    found.redist_crc_shift.restype = ctypes.c_uint32
    found.redist_file_runs.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Runs),
    ]  # fmt: skip
    found.redist_file_runs.restype = ctypes.c_int64
    return found


class Checked:
    """The checksums of one array in a file, as far as this rank's bytes go: a sum for each block.

    The array begins at ``base`` and has ``size`` bytes. CRCs are linear: the sums of all ranks, combined by
    xor, are those of the whole, whoever had which bytes.
    """

    __slots__ = ("base", "block", "size", "sums")

    def __init__(self, sums: Sums, base: int, size: int, block: int) -> None:
        self.sums, self.base, self.size, self.block = sums, base, size, block

    def add(self, data: Any, offset: int) -> None:
        """**Local.** Add contiguous bytes at an offset of the file, in Python."""
        at, view = offset - self.base, memoryview(data).cast("B")
        while len(view):
            block = at // self.block
            end = min(self.size, (block + 1) * self.block)
            part = min(len(view), end - at)
            self.sums[block] ^= np.uint32(shift(plain_crc(view[:part]), end - at - part))
            view, at = view[part:], at + part


def plain_crc(data: Any) -> int:
    """**Local.** The CRC of a message without start value, not inverted: the one that is linear.

    >>> plain_crc(b"ab") == shift(plain_crc(b"a"), 1) ^ plain_crc(b"b")
    True
    """
    return zlib.crc32(data, 0xFFFFFFFF) ^ 0xFFFFFFFF


def zlib_crc(plain: int, n_bytes: int) -> int:
    """**Local.** The CRC that zlib has for a message of which the plain one is known.

    >>> zlib_crc(plain_crc(b"redist"), 6) == zlib.crc32(b"redist")
    True
    """
    return plain ^ shift(0xFFFFFFFF, n_bytes) ^ 0xFFFFFFFF


POLYNOMIAL = 0xEDB88320


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials mod that of CRC-32; bit 31 is the coefficient of 1."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=65536)
def _power(n: int) -> int:
    """x to the power 8 n."""
    if n == 0:
        return 1 << 31
    if n == 1:
        return 1 << 23
    half = _power(n // 2)
    square = _multiply(half, half)
    return _multiply(square, 1 << 23) if n % 2 else square


def shift(plain: int, n_bytes: int) -> int:
    """**Local.** The plain CRC with this many bytes of zero behind the message.

    >>> shift(plain_crc(b"a"), 3) == plain_crc(b"a" + bytes(3))
    True
    """
    found = library()
    if found is not None:
        return int(found.redist_crc_shift(plain, n_bytes))
    return _multiply(plain, _power(n_bytes))


def carry_runs(
    kind: int,
    file: int,
    array: NDArray[Any],
    offset: int,
    steps: Sequence[int],
    checked: Checked | None = None,
    most: int = MOST_BYTES,
) -> None:
    """**Local.** Read, write, update or check an array whose elements lie in a file ``steps`` bytes apart.

    ``offset`` is where the first lies; the array may have any strides. Raise OSError if the system does,
    with ENODATA where the file ends too early.
    """
    if not array.size:
        return
    counts, memory_steps, file_steps, run = runs_of(array, steps)
    found = library()
    if found is None or len(counts) > MAX_DIMS:
        _carry_in_python(kind, file, array, offset, counts, memory_steps, file_steps, run, checked)
        return
    runs = _Runs(offset, run, len(counts), most)
    for i, row in enumerate(zip(counts, memory_steps, file_steps, strict=True)):
        runs.count[i], runs.memory_step[i], runs.file_step[i] = row
    if checked is not None:
        runs.sums = checked.sums.ctypes.data
        runs.base, runs.size, runs.block = checked.base, checked.size, checked.block
    failed = int(found.redist_file_runs(kind, file, array.ctypes.data, ctypes.byref(runs)))
    if failed:
        raise OSError(-failed, os.strerror(-failed))


def runs_of(
    array: NDArray[Any], steps: Sequence[int]
) -> tuple[list[int], list[int], list[int], int]:
    """Counts and steps in memory and file of the longest runs that are one piece on both sides; its bytes.

    >>> runs_of(np.zeros((4, 3, 2), "f4"), (240, 8, 4))
    ([4], [24], [240], 24)
    """
    run = array.dtype.itemsize
    counts: list[int] = []
    memory: list[int] = []
    file: list[int] = []
    for n, here, there in zip(
        reversed(array.shape), reversed(array.strides), reversed(steps), strict=True
    ):
        if n == 1:
            continue
        if not counts and here == there == run:
            run *= n
        elif counts and here == counts[0] * memory[0] and there == counts[0] * file[0]:
            counts[0] *= n
        else:
            counts.insert(0, n)
            memory.insert(0, here)
            file.insert(0, there)
    return counts, memory, file, run


def _carry_in_python(
    kind: int, file: int, array: NDArray[Any], offset: int, counts: Sequence[int],
    memory_steps: Sequence[int], file_steps: Sequence[int], run: int, checked: Checked | None,
) -> None:  # fmt: skip
    """**Local.** The same run by run, by system calls from Python."""
    for index in itertools.product(*map(range, counts)):
        here = sum(i * step for i, step in zip(index, memory_steps, strict=True))
        there = offset + sum(i * step for i, step in zip(index, file_steps, strict=True))
        data = memoryview((ctypes.c_char * run).from_address(array.ctypes.data + here)).cast("B")
        if kind == READ:
            _repeat(os.preadv, file, data, there)
        if checked is not None:
            checked.add(data, there)
        if kind == WRITE or (kind == UPDATE and os.pread(file, run, there) != bytes(data)):
            _repeat(os.pwritev, file, data, there)


def _repeat(call: Any, file: int, data: memoryview, offset: int) -> None:
    """**Local.** Call the system until it has read or written everything."""
    while len(data):
        n = call(file, [data[:MOST_BYTES]], offset)
        if n <= 0:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        data, offset = data[n:], offset + n
