"""A store that is a file without a name: it is gone with the process, however that ends.

Bytes pass the page cache by where the system allows it. With direct I/O addresses, lengths and offsets are
whole blocks: the part of an array that is goes straight to and from its memory, the rest through a buffer
of :data:`BUFFER_BYTES`.
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
from typing import Any, NamedTuple

import numpy as np

from redist.errors import SpillError
from redist.runtime.lanes.stores import Bytes
from redist.runtime.shm.first_fit import FirstFit
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


@contextlib.contextmanager
def lent(buffers: list[Bytes]) -> Iterator[Bytes]:
    """**Local.** A buffer for direct I/O while inside, for one thread alone; it is kept for the next."""
    try:
        buffer = buffers.pop()
    except IndexError:
        buffer = empty_aligned((BUFFER_BYTES,), np.dtype(np.uint8))
    try:
        yield buffer
    finally:
        buffers.append(buffer)


def write_all(file: int, data: Bytes, offset: int, buffers: list[Bytes] | None) -> None:
    """**Local.** Write all bytes, however many the system takes at a time.

    With ``buffers``, free ones, the file is direct and written in whole blocks: what lies behind the data in
    its last block changes, too.
    """
    if buffers is None:
        _repeat(os.pwritev, file, data, offset, 1)
        return
    whole = _straight_bytes(data)
    _repeat(os.pwritev, file, data[:whole], offset, BLOCK_BYTES)
    if whole == data.nbytes:
        return
    with lent(buffers) as buffer:
        for at in range(whole, data.nbytes, BUFFER_BYTES):
            part = data[at : at + BUFFER_BYTES]
            np.copyto(buffer[: part.nbytes], part)
            size = -(-part.nbytes // BLOCK_BYTES) * BLOCK_BYTES
            _repeat(os.pwritev, file, buffer[:size], offset + at, BLOCK_BYTES)


def read_all(file: int, out: Bytes, offset: int, buffers: list[Bytes] | None) -> None:
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
    with lent(buffers) as buffer:
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


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileSpace(NamedTuple):
    """A range of a file."""

    start: int
    n_bytes: int

    def from_byte(self, at: int) -> FileSpace:
        """The same range without its first bytes."""
        return FileSpace(self.start + at, self.n_bytes - at)


class SpillFile:
    """Tiles in a file of a folder, past the page cache where the system allows it.

    ``is_direct`` says whether it does; if not, pages are written out and dropped after every copy, so that a
    disk is as slow as it is, and memory is left to tiles. With ``cached`` the system keeps what it likes.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SpillFile(folder)
    ...     space = store.take(5)
    ...     store.write(space, np.arange(5, dtype=np.uint8))
    ...     out = np.zeros(5, np.uint8)
    ...     store.read(space, out)
    ...     out, os.listdir(folder)
    (array([0, 1, 2, 3, 4], dtype=uint8), [])
    >>> store.close()
    """

    starts = False

    def __init__(self, folder: str | Path, *, cached: bool = False) -> None:
        self.folder = Path(folder)
        self._cached = cached
        self._file, self.is_direct = open_nameless(self.folder, direct=not cached)
        self._buffers: list[Bytes] | None = [] if self.is_direct else None
        self._ranges = FirstFit(BLOCK_BYTES)
        self._reserved = self._length = 0

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Make sure of room for this many bytes beside what is stored, or raise.

        Blocks of the file system are taken at once where it can; where it cannot, others may take them.
        """
        wanted = self._ranges.end_bytes + self._ranges.rounded(n_bytes)
        if not n_bytes or wanted <= self._reserved:
            return
        state = os.statvfs(self._file)
        available = state.f_bavail * state.f_frsize
        taken = os.fstat(self._file).st_blocks * 512
        if wanted - taken > available:
            raise self._no_room(wanted - taken, available)
        try:
            os.posix_fallocate(self._file, 0, wanted)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise self._failed("reserve", wanted, error) from error
            if error.errno in NO_ROOM:
                raise self._no_room(wanted - taken, available) from error
            return  # it cannot be reserved here: what was found above must do
        self._reserved = wanted
        self._length = max(self._length, wanted)

    def _no_room(self, needed: int, available: int) -> SpillError:
        return SpillError(
            f"cannot spill to {self.folder}: needs {format_bytes(needed)} ({needed} bytes), "
            f"{format_bytes(available)} ({available} bytes) are available; make room, give another "
            "folder, or raise the memory limit"
        )

    def take(self, n_bytes: int) -> FileSpace:
        """**Local.** A range of the file."""
        start = self._ranges.take(n_bytes)
        assert start is not None, "a file has no end"
        if self._ranges.end_bytes > self._length:  # so that what was never written can be read
            try:
                os.ftruncate(self._file, self._ranges.end_bytes)
            except OSError as error:
                self._ranges.give(start, n_bytes)
                raise self._failed("make room for", n_bytes, error) from error
            self._length = self._ranges.end_bytes
        return FileSpace(start, n_bytes)

    def give(self, space: FileSpace) -> None:
        """**Local.** End a copy; its range is taken again."""
        self._ranges.give(space.start, space.n_bytes)

    def write(self, space: FileSpace, data: Bytes) -> None:
        """**Local.** Write bytes to a range."""
        assert data.nbytes <= space.n_bytes
        try:
            write_all(self._file, data, space.start, self._buffers)
            if not self.is_direct and not self._cached:
                os.fdatasync(self._file)
                os.posix_fadvise(self._file, space.start, space.n_bytes, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failed("write", data.nbytes, error) from error

    def read(self, space: FileSpace, out: Bytes) -> None:
        """**Local.** Read the first bytes of a range."""
        assert out.nbytes <= space.n_bytes
        try:
            read_all(self._file, out, space.start, self._buffers)
            if not self.is_direct and not self._cached:
                os.posix_fadvise(self._file, space.start, space.n_bytes, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failed("read", out.nbytes, error) from error

    def _failed(self, verb: str, n_bytes: int, error: OSError) -> SpillError:
        text = f"cannot {verb} {format_bytes(n_bytes)} of a spill file in {self.folder}: {error.strerror}"
        if error.errno == errno.EFBIG:
            text += (
                " (EFBIG); raise the largest size of files that is allowed (ulimit -f), give another "
                "folder, or raise the memory limit"
            )
        elif error.errno in NO_ROOM:
            text += "; make room, give another folder, or raise the memory limit"
        return SpillError(text)

    def memory_of(self, space: FileSpace) -> None:
        """**Local.** None: a file is not memory."""

    def close(self) -> None:
        """**Local.** Close the file, which ends it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
