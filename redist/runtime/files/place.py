"""The temporary place of what is being written, on the rank that makes it and gives it its name.

A file or a flat folder is its own place. A tree of many files, as a store of chunks, grows inside one::

    .w.safetensors.part      a file        -> w.safetensors
    .w.part/                 a folder      -> w
    .out.zarr.part/          a folder that is gone at the end
        data                     what gets the name: a folder of folders, or a file  -> out.zarr
        new/                     files that are not whole yet
        lock, record.json, ...   what the job knows of its work, so that another goes on with it

A place that is *kept* has one name, which ends in ``.part``, and a lock keeps two jobs apart; others have a
random one, and go if the job fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from redist.errors import RedistError, WriteError
from redist.runtime.files.disk import (
    bytes_below,
    disk,
    is_at,
    lock,
    remove_tree,
    take_name,
    write_bytes,
)
from redist.runtime.lanes.spill_file import NO_ROOM
from redist.text.units import format_bytes

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        self._locks: list[int] = []
        self._is_own = self._complete = self._reserved = False

    @property
    def grown(self) -> Path:
        """What gets the name."""
        return self.temporary

    def make(self) -> tuple[list[Path], bool]:
        """Make the temporary files, with room for all bytes; their paths, and whether they were there."""
        with self.words():
            mode = self._check_final()
            again = self._take()
            paths = self._fill(mode)
            self._reserved = True
        return paths, again and self.kept

    @contextlib.contextmanager
    def words(self) -> Iterator[None]:
        """What the system says as an error of ours."""
        try:
            yield
        except OSError as problem:
            if isinstance(problem, RedistError):
                raise
            raise WriteError(said(self.name, problem)) from problem

    def _fill(self, mode: int) -> list[Path]:
        """Make the files in the place, and remove others from it."""
        if self.is_folder:
            for one in self.temporary.iterdir():
                if one.name not in self.sizes:
                    remove_tree(one)
        paths = [self.temporary / one if one else self.temporary for one in self.sizes]
        for one, n_bytes in zip(paths, self.sizes.values(), strict=True):
            make_file(self.name, one, n_bytes, mode, self.kept)
        return paths

    def _check_final(self) -> int:
        """Whether something can have the name: the mode of the file that has it now, or 0."""
        check_parent(self.name, self.final)
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

    def _take(self) -> bool:
        """Lock the place if it is kept, and make it; whether it was there.

        What is there is touched only under the lock: it may be another job's. That may give it its name
        before the lock is taken here: then what was locked is no longer at the path.
        """
        while True:
            was_there = self.temporary.exists()
            if not was_there and self.is_folder:
                with contextlib.suppress(FileExistsError):
                    disk().make_folder(self.temporary)
            if self.kept:
                self._lock(self.temporary, os.O_RDONLY if self.temporary.is_dir() else os.O_RDWR)
                if not is_at(self._locks[-1], self.temporary):
                    self._unlock()
                    continue
            self._is_own = True
            if self.temporary.is_dir() == self.is_folder:
                return was_there and (self.is_folder or self.temporary.stat().st_size > 0)
            self._unlock()
            remove_tree(self.temporary)

    def _lock(self, path: Path, flags: int) -> None:
        flags |= 0 if path.is_dir() else os.O_CREAT
        self._locks.append(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666))
        if not lock(self._locks[-1]):
            raise WriteError(
                f"cannot write {self.name!r}: another job is writing it; wait, or give another name"
            )

    def _unlock(self) -> None:
        locks, self._locks = self._locks, []
        for one in locks:
            os.close(one)

    def give_name(self, sync: bool) -> bool:
        """Give the place its name, and bring that to the disk; what had it goes."""
        with self.words():
            if self.grown.is_dir() and sync:
                disk().sync_folder(self.grown)
            replaces = take_name(self.grown, self.final, sync)
            self._complete = True
        if replaces or self.grown != self.temporary:
            with contextlib.suppress(OSError):
                remove_tree(self.temporary)
        return True

    def close(self) -> None:
        """Unlock it; remove it unless it has its name, is another job's, or is kept with its room."""
        if self._is_own and not self._complete and not (self.kept and self._reserved):
            with contextlib.suppress(OSError):
                remove_tree(self.temporary)
        self._unlock()


class GrowingFolder(Place):
    """**Local.** A place for what has files of many names: what is in ``data`` gets the name.

    ``work`` says what is written, from what: a later job with the same work goes on with what is there, as
    long as the machines that wrote it, known by their ``boots``, have not started anew and lost some of it.
    Other work is an error unless it ``discards`` that. ``in_the_way`` says what speaks against taking the
    place of what has the name, ``n_bytes`` how much room the work needs.
    """

    def __init__(
        self, name: str, work: Callable[[], str] | None, in_the_way: Callable[[Path], str | None],
        n_bytes: Callable[[], int], boots: Sequence[str] = (), discards: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, {}, work is not None)
        self._says, self._in_the_way, self._n_bytes = work, in_the_way, n_bytes
        self._work = ""
        self._boots, self._discards = {*boots}, discards
        self._record = self.temporary / "record.json"
        self._goes_on = False

    @property
    def grown(self) -> Path:
        """What gets the name."""
        return self.temporary / "data"

    def make(self) -> tuple[list[Path], bool]:
        """Make the folder, or find one with the same work: the path of what grows, and whether it goes on."""
        paths, _ = super().make()
        return paths, self._goes_on

    def _check_final(self) -> int:
        check_parent(self.name, self.final)
        problem = self._in_the_way(self.final)
        if problem is not None:
            raise WriteError(f"cannot write {self.name!r}: {problem}")
        if self.final.is_dir():
            self._try_exchange()
        return 0

    def _fill(self, mode: int) -> list[Path]:
        if self.kept:
            self._lock(self.temporary / "lock", os.O_RDWR)  # some systems do not lock folders
        self._work = "" if self._says is None else self._says()
        known = self._known()
        if known is not None and known["work"] != self._work and not self._discards:
            self._reserved = True  # it is kept for whoever began it
            raise WriteError(
                f"cannot write {self.name!r}: {str(self.temporary)!r} has unfinished work of another source, "
                "other chunks or codecs; finish that, remove the folder, or give overwrite=True (--overwrite)"
            )
        if known is not None and known["work"] == self._work and {*known["boots"]} <= self._boots:
            self._goes_on = self._reserved = True
            for name in ("new", "failed"):
                remove_tree(self.temporary / name)
        else:
            self._remove_all()
        disk().make_folder(self.temporary / "new")
        check_room(self.name, self.temporary, self._n_bytes(), bytes_below(self.temporary))
        if self.kept:
            self._write_record()
        return [self.grown]

    def _known(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._record.read_text())
            return {"work": found["work"], "boots": [*found["boots"]]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _write_record(self) -> None:
        new = self.temporary / "new" / "record.json"
        make_file(self.name, new, None, 0, True)
        data = json.dumps({"work": self._work, "boots": sorted(self._boots)}).encode()
        file = os.open(new, os.O_RDWR)
        try:
            write_bytes(file, data, 0)
        finally:
            os.close(file)
        disk().rename(new, self._record)

    def _remove_all(self) -> None:
        """Remove all but the lock; the record first, so that nobody goes on with a half of it."""
        disk().remove(self._record)
        for one in self.temporary.iterdir():
            if one.name != "lock":
                remove_tree(one)

    def give_name(self, sync: bool) -> bool:
        """Give what has grown its name, unless something else has it by now.

        The two may exchange their names: before that nobody may go on with what the folder has any more.
        """
        with self.words():
            self._check_final()
            grown = self.grown.stat()
            disk().remove(self._record)
            if sync:
                disk().sync_folder(self.temporary)
        try:
            return super().give_name(sync)
        except OSError:
            with contextlib.suppress(OSError):
                if self.kept and os.path.samestat(grown, self.grown.stat()):
                    self._write_record()
            raise

    def discard(self) -> None:
        """Keep nothing of what was written."""
        self._reserved = False


def make_file(name: str, path: Path, n_bytes: int | None, mode: int, again: bool) -> None:
    """**Local.** Make a file, with room for all its bytes where the system can; errors say ``name``."""
    file = disk().create(path, mode, again)
    try:
        if n_bytes is None:
            return
        check_room(name, path, n_bytes, os.fstat(file).st_blocks * 512)
        try:
            disk().allocate(file, n_bytes)
        except OSError as problem:
            if problem.errno in NO_ROOM:
                raise no_room(name, n_bytes, free_bytes(path)) from problem
            if again:
                os.ftruncate(file, n_bytes)
    finally:
        os.close(file)


def check_room(name: str, path: Path, n_bytes: int, held_bytes: int) -> None:
    """**Local.** Raise unless the disk has room for so many bytes, beside those that are held already."""
    available = free_bytes(path) + held_bytes
    if n_bytes > available:
        raise no_room(name, n_bytes, available)


def free_bytes(path: Path) -> int:
    """**Local.** What is free on the disk that a path is on."""
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def no_room(name: str, n_bytes: int, available: int) -> WriteError:
    """The error where a disk is full."""
    return WriteError(
        f"cannot write {name!r}: it needs {format_bytes(n_bytes)}, and the disk has "
        f"{format_bytes(available)} left; make room, or give another folder"
    )


def check_parent(name: str, final: Path) -> None:
    """**Local.** Raise unless there is a folder for it."""
    if not final.parent.is_dir():
        raise WriteError(
            f"cannot write {name!r}: there is no folder {str(final.parent)!r}; make it first"
        )


def boot_id() -> str:
    """**Local.** A text that changes when this machine starts anew, and what was not synced may be lost."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return "unknown"


def said(name: str, problem: Exception) -> str:
    """A problem of a file in words."""
    if isinstance(problem, RedistError):
        return str(problem)
    why = problem.strerror if isinstance(problem, OSError) else None
    return f"cannot write {name!r}: {why or f'{type(problem).__name__}: {problem}'}"
