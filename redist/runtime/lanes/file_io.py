"""Bytes to and from a file without a name, past the page cache where the system allows it.

With direct I/O addresses, lengths and offsets are whole blocks: the part of an array that is goes straight
to and from its memory, the rest through a buffer of :data:`BUFFER_BYTES`.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import SpillError
from redist.runtime.lanes.stores import Bytes
from redist.text.units import format_bytes

BLOCK_BYTES = 4096
BUFFER_BYTES = 2**22
HUGE_FROM = 2**22
"""Arrays from here on ask for huge pages."""


def open_nameless(folder: Path, direct: bool) -> tuple[int, bool]:
    """A new file in a folder that nobody can open by name, and whether it passes the page cache by."""
    for extra in (getattr(os, "O_DIRECT", 0) if direct else 0, 0):
        try:
            file = _open(folder, extra)
        except OSError as error:
            if extra and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                continue
            raise SpillError(
                f"cannot spill to {folder}: no file can be made there ({error.strerror}); give another folder"
            ) from error
        if extra and not _is_direct(file):
            os.close(file)
            continue
        return file, bool(extra)
    raise AssertionError("the last try raises")


def _open(folder: Path, extra: int) -> int:
    flags = os.O_RDWR | extra | getattr(os, "O_CLOEXEC", 0)
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(folder, flags | os.O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT) or not (
                folder.is_dir()
            ):
                raise
    handle, name = tempfile.mkstemp(prefix="redist-spill-", dir=folder)
    try:
        return os.open(name, flags)
    finally:
        Path(name).unlink()
        os.close(handle)


def _is_direct(file: int) -> bool:
    """Whether direct I/O of a block works: some file systems only say so."""
    block = empty_aligned((BLOCK_BYTES,), np.dtype(np.uint8))
    block[:] = 0
    try:
        return os.pwritev(file, [block], 0) == BLOCK_BYTES == os.preadv(file, [block], 0)
    except OSError:
        return False


def empty_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """**Local.** A new array that begins with a page of memory, so that direct I/O needs no buffer.

    >>> empty_aligned((3, 5), np.dtype("f4")).ctypes.data % BLOCK_BYTES
    0
    """
    n_elems = math.prod(shape)
    return np.frombuffer(aligned_memory(n_elems * dtype.itemsize), dtype, n_elems).reshape(shape)


def aligned_memory(n_bytes: int) -> mmap.mmap:
    """**Local.** New memory in whole pages; huge ones if there is enough of it."""
    memory = mmap.mmap(-1, max(1, n_bytes))
    if n_bytes >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class BlockBuffers:
    """Buffers for direct I/O: each is lent to one thread at a time, and kept for the next."""

    def __init__(self) -> None:
        self._free: list[Bytes] = []

    @contextlib.contextmanager
    def lent(self) -> Iterator[Bytes]:
        """A buffer, while inside."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = empty_aligned((BUFFER_BYTES,), np.dtype(np.uint8))
        try:
            yield buffer
        finally:
            self._free.append(buffer)


def write_all(file: int, data: Bytes, offset: int, buffers: BlockBuffers | None) -> None:
    """**Local.** Write all bytes, however many the system takes at a time.

    With ``buffers`` the file is direct and written in whole blocks: what lies behind the data in its last
    block changes, too.
    """
    if buffers is None:
        _repeat(os.pwritev, file, data, offset, 1)
        return
    whole = _straight_bytes(data)
    _repeat(os.pwritev, file, data[:whole], offset, BLOCK_BYTES)
    if whole == data.nbytes:
        return
    with buffers.lent() as buffer:
        for at in range(whole, data.nbytes, BUFFER_BYTES):
            part = data[at : at + BUFFER_BYTES]
            np.copyto(buffer[: part.nbytes], part)
            size = -(-part.nbytes // BLOCK_BYTES) * BLOCK_BYTES
            _repeat(os.pwritev, file, buffer[:size], offset + at, BLOCK_BYTES)


def read_all(file: int, out: Bytes, offset: int, buffers: BlockBuffers | None) -> None:
    """**Local.** Read as many bytes as there is room for; raise if the file ends before."""
    if buffers is None:
        _repeat(os.preadv, file, out, offset, 1)
        return
    before = offset % BLOCK_BYTES
    whole = 0 if before else _straight_bytes(out)
    _repeat(os.preadv, file, out[:whole], offset, BLOCK_BYTES)
    if whole == out.nbytes:
        return
    step = BUFFER_BYTES - (BLOCK_BYTES if before else 0)
    with buffers.lent() as buffer:
        for at in range(whole, out.nbytes, step):
            part = out[at : at + step]
            size = -(-(before + part.nbytes) // BLOCK_BYTES) * BLOCK_BYTES
            _repeat(os.preadv, file, buffer[:size], offset - before + at, BLOCK_BYTES)
            np.copyto(part, buffer[before : before + part.nbytes])


def _straight_bytes(data: Bytes) -> int:
    """How much needs no buffer: whole blocks, if the first is where a block of memory is."""
    if data.nbytes < BLOCK_BYTES or data.__array_interface__["data"][0] % BLOCK_BYTES:
        return 0
    return data.nbytes // BLOCK_BYTES * BLOCK_BYTES


def _repeat(call: Any, file: int, data: Bytes, offset: int, block: int) -> None:
    """Call until all is done; after a part that is not a whole block, from that block again."""
    done = 0
    while done < data.nbytes:
        n_bytes = call(file, [data[done:]], offset + done)
        if done + n_bytes < data.nbytes:
            n_bytes -= n_bytes % block
        if not n_bytes:
            verb, end = ("read", "ends") if call is os.preadv else ("write", "takes no more")
            raise SpillError(
                f"cannot {verb} {format_bytes(data.nbytes)} of a spill file: it {end} after "
                f"{format_bytes(done)}"
            )
        done += n_bytes
