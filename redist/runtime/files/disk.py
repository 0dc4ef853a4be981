"""What is asked of the file system to make a file that appears whole or not at all.

Every operation that changes something goes through one object, so that tests can let each of them fail, kill
the process there, or keep a record of what a loss of power could undo.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.files.kernels import WRITE, Checked, carry_runs

_EXCHANGE, _HERE = 2, -100
"""As in Linux's fs.h and fcntl.h."""


class Disk:
    """The file system as it is."""

    def make_folder(self, path: Path) -> None:
        """**Local.** Make a folder."""
        path.mkdir()

    def create(self, path: Path, mode: int, again: bool) -> int:
        """**Local.** Make a file, or take it as it is if ``again``; open it."""
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | (0 if again else os.O_EXCL)
        file = os.open(path, flags, 0o666)
        if mode:
            os.fchmod(file, mode)
        return file

    def allocate(self, file: int, n_bytes: int) -> None:
        """**Local.** Give a file this size, and take the room for it."""
        if os.fstat(file).st_size != n_bytes:
            os.ftruncate(file, n_bytes)
        if n_bytes:
            os.posix_fallocate(file, 0, n_bytes)

    def carry(
        self, kind: int, file: int, array: NDArray[Any], offset: int, steps: Sequence[int],
        checked: Checked | None,
    ) -> None:  # fmt: skip
        """**Local.** Write runs of an array, as :func:`carry_runs`."""
        carry_runs(kind, file, array, offset, steps, checked)

    def sync(self, file: int) -> None:
        """**Local.** Bring what was written to the disk."""
        os.fsync(file)

    def rename(self, path: Path, final: Path) -> None:
        """**Local.** Give a file or a folder its name, in place of what had it."""
        path.replace(final)

    def exchange(self, path: Path, final: Path) -> None:
        """**Local.** Let two folders have each other's names, in one step; OSError where that cannot be."""
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            call = libc.renameat2
        except AttributeError:
            raise OSError(38, "the system cannot exchange two names") from None
        if call(_HERE, os.fsencode(path), _HERE, os.fsencode(final), _EXCHANGE):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def remove(self, path: Path) -> None:
        """**Local.** Remove a file."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """**Local.** Remove an empty folder."""
        path.rmdir()

    def sync_all(self, path: Path) -> None:
        """**Local.** Bring everything on the file system of a folder to the disk, names as well."""
        try:
            call = ctypes.CDLL(None, use_errno=True).syncfs
        except AttributeError:
            os.sync()
            return
        folder = os.open(path, os.O_RDONLY)
        try:
            if call(folder):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(folder)

    def sync_folder(self, path: Path) -> None:
        """**Local.** Bring the names in a folder to the disk, where the file system can."""
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        except OSError as problem:
            if problem.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            os.close(folder)


_REAL = Disk()
_DISK: ContextVar[Disk | None] = ContextVar("disk", default=None)


def disk() -> Disk:
    """The disk that new files are made on."""
    return _DISK.get() or _REAL


@contextlib.contextmanager
def use_disk(other: Disk) -> Iterator[None]:
    """Make new files on another disk, while inside."""
    token = _DISK.set(other)
    try:
        yield
    finally:
        _DISK.reset(token)


def write_bytes(file: int, data: Any, offset: int) -> None:
    """**Local.** Write bytes, or the bytes of an array without gaps, at an offset."""
    flat = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else data
    flat = np.frombuffer(flat, np.uint8)
    disk().carry(WRITE, file, flat, offset, (1,), None)


def lock(file: int) -> bool:
    """**Local.** Lock a file or folder until it is closed; False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if isinstance(problem, BlockingIOError):
            return False
    return True


def take_name(path: Path, final: Path, sync: bool) -> bool:
    """**Local.** Give a file or folder its name in one step; whether ``path`` is now what had the name.

    A file takes the place of a file. Where one of the two is a folder they exchange their names: at no
    moment does nobody have it.
    """
    swaps = final.exists() and (path.is_dir() or final.is_dir())
    (disk().exchange if swaps else disk().rename)(path, final)
    if sync:
        disk().sync_folder(final.parent)
    return swaps


def make_folders(path: Path) -> None:
    """**Local.** Make a folder and those that it lies in, where they are not there; others may do so too."""
    if not path.is_dir():
        make_folders(path.parent)
        with contextlib.suppress(FileExistsError):
            disk().make_folder(path)


def remove_tree(path: Path) -> None:
    """**Local.** Remove a file, or a folder and all that is in it."""
    if path.is_dir() and not path.is_symlink():
        for one in path.iterdir():
            remove_tree(one)
        disk().remove_folder(path)
    else:
        disk().remove(path)


def is_at(file: int, path: Path) -> bool:
    """**Local.** Whether a path still leads to an open file or folder."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def bytes_below(path: Path) -> int:
    """**Local.** The bytes of all files at a path.

    >>> bytes_below(Path("no such file"))
    0
    """
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total
