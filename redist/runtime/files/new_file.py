"""A file, or a folder of files, that all ranks write together: it gets its name whole, or not at all.

The bytes go to a temporary place beside it, and the name is given at the end::

    1  rank 0   makes the temporary file and takes the room on the disk: a full disk is known here
    2  all      write their parts; sync                            one rank fails: all raise the same error,
    3  all      agree                                              and what had the name before is as it was
    4  rank 0   writes what must come last, as a header; syncs
    5  rank 0   renames, syncs the folder; all are told

A folder takes the place of another by one exchange of names. A job that is killed leaves at most the
temporary place. Where it is *kept*, it has one name, ``.NAME.part``: the next write of the same file goes on
there and writes only what is different, whatever an earlier job left in it. A lock keeps two jobs apart.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RedistError, WriteError
from redist.runtime.files.disk import disk, lock, remove_tree, take_name
from redist.runtime.files.kernels import UPDATE, WRITE, Checked
from redist.runtime.lanes.spill_file import NO_ROOM
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, World, world_of
from redist.text.units import format_bytes, ranks_in_words

File = str | os.PathLike[str]


class NewFile:
    """The temporary files as one rank sees them. What fails here is kept until all ranks :meth:`agree`."""

    def __init__(self, world: World, path: str, paths: Sequence[Path], kept: bool = False) -> None:
        self.path, self.paths = path, paths
        self._world, self._kind = world, UPDATE if kept else WRITE
        self._problem: str | None = None
        self._files: dict[int, int] = {}
        self._unsynced: set[int] = set()
        with self.own_part():  # a rank that does not see the folder says so at once
            self.file()

    @property
    def temporary(self) -> Path:
        """The only temporary file, for those who write it themselves."""
        return self.paths[0]

    @contextlib.contextmanager
    def own_part(self) -> Iterator[None]:
        """**Local.** Keep what goes wrong in a block that no other rank waits for."""
        try:
            yield
        except Exception as problem:
            self._problem = self._problem or said(self.path, problem)

    @property
    def failed(self) -> bool:
        """Whether something went wrong on this rank."""
        return self._problem is not None

    @property
    def problem(self) -> str | None:
        """What went wrong on this rank, if anything."""
        return self._problem

    def file(self, which: int = 0) -> int:
        """**Local.** A descriptor of one of the files; from now on :meth:`sync` syncs it."""
        found = self._files.get(which)
        if found is None:
            flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            found = self._files[which] = os.open(self.paths[which], flags)
        self._unsynced.add(which)
        return found

    def write(self, data: Any, offset: int, which: int = 0) -> None:
        """**Local.** Write the bytes of an array without gaps, or of ``bytes``, at an offset."""
        flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        flat = flat.reshape(-1).view(np.uint8)
        self.carry(flat, offset, (1,), which)

    def carry(
        self, array: NDArray[Any], offset: int, steps: Sequence[int], which: int = 0,
        checked: Checked | None = None,
    ) -> None:  # fmt: skip
        """**Local.** Write an array whose elements are to lie ``steps`` bytes apart."""
        if self._problem is None:
            with self.own_part():
                disk().carry(self._kind, self.file(which), array, offset, steps, checked)

    def agree(self) -> None:
        """**Collective.** Raise on all ranks if something went wrong on one."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks; or an error on all if something went wrong on one."""
        with self._world.operation(TIMEOUT_S):
            told = self._world.gather((self._problem, value))
        raise_if_any([problem for problem, _ in told])
        return [value for _, value in told]

    def sync(self) -> None:
        """**Local.** Bring what this rank wrote to the disk."""
        for which in sorted(self._unsynced):
            if self._problem is None:
                with self.own_part():
                    disk().sync(self._files[which])
        self._unsynced.clear()

    def close(self) -> None:
        """**Local.** Close all; more than once if need be."""
        files, self._files = self._files, {}
        for file in files.values():
            os.close(file)


def raise_if_any(problems: Sequence[str | None]) -> None:
    """**Local.** Raise the first problem that a rank has, and say which ranks have it."""
    who = [rank for rank, problem in enumerate(problems) if problem is not None]
    if who:
        text = problems[who[0]]
        same = [rank for rank in who if problems[rank] == text]
        where = "" if len(same) == len(problems) else f" ({ranks_in_words(same, len(problems))})"
        raise WriteError(f"{text}{where}; {_UNTOUCHED}")


_UNTOUCHED = "nothing has changed under that name"


@contextlib.contextmanager
def new_file(comm: Comm, path: File, n_bytes: int | None = None) -> Iterator[NewFile]:
    """**Collective** at both ends. A file to be written by all ranks, which has its name at the end.

    ``n_bytes``, where it is known, is reserved at once: a disk that is full is found before data move.
    """
    with new_files(comm, path, {"": n_bytes}, kept=False) as out:
        yield out


@contextlib.contextmanager
def new_files(
    comm: Comm, path: File, sizes: Mapping[str, int | None], kept: bool = True, sync: bool = True,
    replaces: Sequence[str] = (),
) -> Iterator[NewFile]:  # fmt: skip
    """**Collective** at both ends. A file, or a folder of files with names and sizes, as :func:`new_file`.

    The name of the only file is empty if ``path`` is that file. ``kept`` places can be resumed. A folder
    takes the place of one whose files all match the patterns in ``replaces``.
    """
    name = os.fspath(path)
    world = world_of(comm)
    place: Place | None = None
    file: NewFile | None = None
    try:
        if comm.rank == 0:
            place = Place(name, sizes, kept, replaces)
        paths, again = from_first(comm, lambda: _made(place), TIMEOUT_S)
        file = NewFile(world, name, paths, again)
        file.agree()
        yield file
        if sync:
            file.sync()
        file.agree()
        file.close()
        from_first(comm, lambda: _named(place, sync), TIMEOUT_S)
    except BaseException as problem:
        if not isinstance(
            problem, RedistError
        ):  # as Ctrl-C: the others must not wait for this rank
            world.abort_once(problem)
        raise
    finally:
        if file is not None:
            file.close()
        if place is not None:
            place.close()


def _made(place: Place | None) -> tuple[list[Path], bool]:
    assert place is not None
    return place.make()


def _named(place: Place | None, sync: bool) -> bool:
    assert place is not None
    return place.give_name(sync)


class Place:
    """**Local.** The temporary place of a file or folder, on the rank that makes it and gives it its name."""

    def __init__(
        self, name: str, sizes: Mapping[str, int | None], kept: bool, replaces: Sequence[str] = ()
    ) -> None:
        self.name, self.sizes, self.kept, self.replaces = name, sizes, kept, replaces
        self.final = Path(os.path.realpath(name))
        self.is_folder = "" not in sizes
        end = ".part" if kept else f".{secrets.token_hex(6)}.tmp"
        self.temporary = self.final.with_name(f".{self.final.name[:200]}{end}")
        self._lock = -1
        self._complete = self._reserved = False

    def make(self) -> tuple[list[Path], bool]:
        """Make the temporary files, with room for all bytes; their paths, and whether they were there."""
        try:
            mode = self._check_final()
            again = self._begin()
            paths = [self.temporary / one if one else self.temporary for one in self.sizes]
            for one, n_bytes in zip(paths, self.sizes.values(), strict=True):
                again = self._create(one, mode, n_bytes) or again
            self._reserved = True
        except OSError as problem:
            if isinstance(problem, WriteError):
                raise
            raise WriteError(said(self.name, problem)) from problem
        return paths, again and self.kept

    def _check_final(self) -> int:
        """Whether something can have the name: the mode of the file that has it now, or 0."""
        if not self.final.parent.is_dir():
            raise WriteError(
                f"cannot write {self.name!r}: there is no folder {str(self.final.parent)!r}; make it first"
            )
        if not self.final.exists():
            return 0
        before = self.final.stat()
        if self.is_folder:
            self._check_folder(before.st_mode)
            return 0
        if not stat.S_ISREG(before.st_mode):
            what = "a folder" if stat.S_ISDIR(before.st_mode) else "no file"
            raise WriteError(f"cannot write {self.name!r}: it is {what}")
        if not os.access(self.final, os.W_OK):
            raise WriteError(f"cannot write {self.name!r}: the file there may not be written")
        return stat.S_IMODE(before.st_mode)

    def _check_folder(self, mode: int) -> None:
        """A folder may take the place of one that has only files such as these."""
        if not stat.S_ISDIR(mode):
            raise WriteError(f"cannot write {self.name!r}: it is a file, and this makes a folder")
        other = sorted(
            one.name
            for one in self.final.iterdir()
            if one.is_dir() or not any(fnmatchcase(one.name, own) for own in self.replaces)
        )
        if other:
            raise WriteError(
                f"cannot write {self.name!r}: the folder there has other files, as {other[0]!r}, which would "
                "be lost; give a new folder"
            )
        self._try_exchange()

    def _try_exchange(self) -> None:
        """Two folders must be able to have each other's names, so that one can take the other's place."""
        probes = [self.final.with_name(f".{secrets.token_hex(6)}.tmp") for _ in range(2)]
        try:
            for probe in probes:
                probe.mkdir()
            disk().exchange(*probes)
        except OSError as problem:
            raise WriteError(
                f"cannot write {self.name!r}: a folder is there, and this file system cannot exchange two "
                f"folders ({problem.strerror}); give a new folder"
            ) from problem
        finally:
            for probe in probes:
                with contextlib.suppress(OSError):
                    probe.rmdir()

    def _begin(self) -> bool:
        """Lock the place if it is kept; whether it was there."""
        was_there = self.temporary.exists()
        if self.is_folder:
            if was_there and not self.temporary.is_dir():
                disk().remove(self.temporary)
            if not self.temporary.exists():
                disk().make_folder(self.temporary)
            for one in self.temporary.iterdir():
                if one.name not in self.sizes:
                    disk().remove(one)
        elif was_there and self.temporary.is_dir():
            remove_tree(self.temporary)
            was_there = False
        if self.kept:
            flags = os.O_RDONLY if self.is_folder else os.O_RDWR | os.O_CREAT
            self._lock = os.open(self.temporary, flags, 0o666)
            if not lock(self._lock):
                os.close(self._lock)
                self._lock = -1
                raise WriteError(
                    f"cannot write {self.name!r}: another job is writing it; wait, or give another name"
                )
        return was_there

    def _create(self, path: Path, mode: int, n_bytes: int | None) -> bool:
        """Make a file with room for all its bytes; whether it was there."""
        was_there = path.exists() and path.stat().st_size > 0
        file = disk().create(path, mode, again=self.kept)
        try:
            if n_bytes is not None:
                self._reserve(file, n_bytes)
        finally:
            os.close(file)
        return was_there

    def _reserve(self, file: int, n_bytes: int) -> None:
        """Take room on the disk, as far as the file system can."""
        state, held = os.statvfs(file), os.fstat(file).st_blocks * 512
        available = state.f_bavail * state.f_frsize + held
        lacks = WriteError(
            f"cannot write {self.name!r}: it needs {format_bytes(n_bytes)}, and the disk has "
            f"{format_bytes(available)} left; make room, or give another folder"
        )
        if n_bytes > available:
            raise lacks
        try:
            disk().allocate(file, n_bytes)
        except OSError as problem:
            if problem.errno in NO_ROOM:
                raise lacks from problem
            if self.kept:
                os.ftruncate(file, n_bytes)

    def give_name(self, sync: bool) -> bool:
        """Give the place its name, and bring that to the disk; what had it goes."""
        try:
            if self.is_folder and sync:
                disk().sync_folder(self.temporary)
            replaces = take_name(self.temporary, self.final, sync)
            self._complete = True
        except OSError as problem:
            raise WriteError(said(self.name, problem)) from problem
        if replaces:
            with contextlib.suppress(OSError):
                remove_tree(self.temporary)
        return True

    def close(self) -> None:
        """Unlock it; remove it unless it has its name, or is kept with its room."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if not self._complete and not (self.kept and self._reserved):
            with contextlib.suppress(OSError):
                remove_tree(self.temporary)


def said(name: str, problem: Exception) -> str:
    """A problem of a file in words."""
    if isinstance(problem, RedistError):
        return str(problem)
    why = problem.strerror if isinstance(problem, OSError) else None
    return f"cannot write {name!r}: {why or f'{type(problem).__name__}: {problem}'}"
