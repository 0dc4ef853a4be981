"""A store that is a file without a name: it is gone with the process, however that ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

from redist.errors import SpillError
from redist.runtime.lanes.file_io import (
    BLOCK_BYTES,
    BlockBuffers,
    open_nameless,
    read_all,
    write_all,
)
from redist.runtime.lanes.stores import Bytes
from redist.runtime.shm.first_fit import FirstFit
from redist.text.units import format_bytes

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
        self._buffers = BlockBuffers() if self.is_direct else None
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
