"""A file that all ranks write together: it appears under its name whole, or not at all.

The bytes go to a temporary file beside it. Once every rank has written and synced its part, rank 0 gives it
the name; if a rank fails before that, all ranks raise the same error, the temporary file goes, and what had
the name before is as it was. A job that is killed leaves at most the temporary file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import RedistError, WriteError
from redist.pgas.files.shares import File
from redist.runtime.lanes.spill_file import NO_ROOM, write_all
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, World, world_of
from redist.text.units import format_bytes, ranks_in_words


class NewFile:
    """The temporary file as one rank sees it. What fails here is kept until all ranks :meth:`agree`."""

    def __init__(self, world: World, path: str, temporary: Path) -> None:
        self.path, self.temporary = path, temporary
        self._world = world
        self._problem: str | None = None
        self._file = -1
        with self.own_part():
            self._file = os.open(temporary, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))

    @contextlib.contextmanager
    def own_part(self) -> Iterator[None]:
        """**Local.** Keep what goes wrong in a block that no other rank waits for."""
        try:
            yield
        except Exception as problem:
            self._problem = self._problem or _said(self.path, problem)

    @property
    def failed(self) -> bool:
        """Whether something went wrong on this rank."""
        return self._problem is not None

    def write(self, data: Any, offset: int) -> None:
        """**Local.** Write the bytes of an array without gaps, or of ``bytes``, at an offset."""
        if self._problem is None:
            with self.own_part():
                flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
                write_all(self._file, flat.reshape(-1).view(np.uint8), offset, None)

    def agree(self) -> None:
        """**Collective.** Raise on all ranks if something went wrong on one."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks; or an error on all if something went wrong on one."""
        with self._world.operation(TIMEOUT_S):
            said = self._world.gather((self._problem, value))
        who = [rank for rank, (problem, _) in enumerate(said) if problem is not None]
        if who:
            text = said[who[0]][0]
            same = [rank for rank in who if said[rank][0] == text]
            where = "" if len(same) == len(said) else f" ({ranks_in_words(same, len(said))})"
            raise WriteError(f"{text}{where}; {_UNTOUCHED}")
        return [value for _, value in said]

    def sync(self) -> None:
        """**Local.** Bring what this rank wrote to the disk."""
        if self._problem is None:
            with self.own_part():
                os.fsync(self._file)

    def close(self) -> None:
        """**Local.** Close it; more than once if need be."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


_UNTOUCHED = "nothing has changed under that name"


@contextlib.contextmanager
def new_file(comm: Comm, path: File, n_bytes: int | None = None) -> Iterator[NewFile]:
    """**Collective** at both ends. A file to be written by all ranks, which has its name at the end.

    ``n_bytes``, where it is known, is reserved at once: a disk that is full is found before data move.
    """
    name = os.fspath(path)
    world = world_of(comm)
    temporary: Path | None = None
    file: NewFile | None = None
    try:
        if comm.rank == 0:
            temporary = _beside(name)
        final, temporary = from_first(comm, lambda: _create(name, temporary, n_bytes), TIMEOUT_S)
        file = NewFile(world, name, temporary)
        file.agree()
        yield file
        file.sync()
        file.agree()
        file.close()
        from_first(comm, lambda: _rename(name, temporary, final), TIMEOUT_S)
    except BaseException as problem:
        if not isinstance(
            problem, RedistError
        ):  # as Ctrl-C: the others must not wait for this rank
            world.abort_once(problem)
        raise
    finally:
        if file is not None:
            file.close()
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _beside(name: str) -> Path:
    """**Local.** A name for the temporary file, in the folder of the file that a link points to."""
    final = Path(os.path.realpath(name))
    return final.with_name(f".{final.name[:200]}.{secrets.token_hex(6)}.tmp")


def _create(name: str, temporary: Path | None, n_bytes: int | None) -> tuple[Path, Path]:
    """**Local.** Make the temporary file, with room for all bytes; where the file shall be, and it."""
    assert temporary is not None
    final = Path(os.path.realpath(name))
    try:
        if not final.parent.is_dir():
            raise WriteError(
                f"cannot write {name!r}: there is no folder {str(final.parent)!r}; make it first"
            )
        before = final.stat() if final.exists() else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            is_folder = stat.S_ISDIR(before.st_mode)
            raise WriteError(
                f"cannot write {name!r}: it is {'a folder' if is_folder else 'no file'}"
            )
        if before is not None and not os.access(final, os.W_OK):
            raise WriteError(f"cannot write {name!r}: the file there may not be written")
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(temporary, flags, 0o666)
        try:
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            if n_bytes:
                _reserve(name, descriptor, n_bytes)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise _error(name, problem) from problem
    return final, temporary


def _reserve(name: str, file: int, n_bytes: int) -> None:
    """**Local.** Take room on the disk, as far as the file system can."""
    state = os.statvfs(file)
    available = state.f_bavail * state.f_frsize
    lacks = WriteError(
        f"cannot write {name!r}: it needs {format_bytes(n_bytes)}, and {format_bytes(available)} are "
        "available on the disk; make room, or give another folder"
    )
    if n_bytes > available:
        raise lacks
    try:
        os.posix_fallocate(file, 0, n_bytes)
    except OSError as problem:
        if problem.errno in NO_ROOM:
            raise lacks from problem


def _rename(name: str, temporary: Path | None, final: Path) -> bool:
    """**Local.** Give the file its name, and bring that to the disk."""
    assert temporary is not None
    try:
        temporary.replace(final)
    except OSError as problem:
        raise _error(name, problem) from problem
    with contextlib.suppress(OSError):  # not every file system syncs folders
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return True


def _error(name: str, problem: OSError) -> WriteError:
    if isinstance(problem, WriteError):
        return problem
    return WriteError(_said(name, problem))


def _said(name: str, problem: Exception) -> str:
    if isinstance(problem, RedistError):
        return str(problem)
    why = problem.strerror if isinstance(problem, OSError) else None
    return f"cannot write {name!r}: {why or f'{type(problem).__name__}: {problem}'}"
