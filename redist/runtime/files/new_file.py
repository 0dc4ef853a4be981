"""What all ranks write together, a file, a folder or a tree of files: it gets its name whole, or not.

The bytes go to a temporary place beside it (:mod:`redist.runtime.files.place`), and the name is given at the
end::

    1  rank 0   makes the temporary place and takes the room on the disk: a full disk is known here
    2  all      write their parts; sync                            one rank fails: all raise the same error,
    3  all      agree                                              and what had the name before is as it was
    4  rank 0   writes what must come last, as a header; syncs
    5  rank 0   renames, syncs the folder; all are told

A folder takes the place of another by one exchange of names. A job that is killed leaves at most the
temporary place. Where it is *kept*, the next write under the same name goes on there: files and flat folders
are compared with what shall be in them, whatever an earlier job left; in a tree, whoever writes it notes what
is whole, and a record says which work that was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import ReadError, RedistError, WriteError
from redist.runtime.files.disk import disk
from redist.runtime.files.kernels import UPDATE, WRITE, Checked
from redist.runtime.files.place import GrowingFolder, Place, boot_id, said
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, World, world_of
from redist.text.units import ranks_in_words

File = str | os.PathLike[str]
_UNTOUCHED = "nothing has changed under that name"
_KEPT = "what is written is kept: the same call goes on from there"
_STOPPED = "another rank failed"


class Together:
    """What one rank does of something that all do. What fails here is kept until all ranks :meth:`agree`."""

    timeout_s: float | None = TIMEOUT_S
    after = _UNTOUCHED

    def __init__(self, world: World, path: str) -> None:
        self.path = path
        self._world = world
        self._problem: str | None = None
        self._error: type[RedistError] = WriteError

    @contextlib.contextmanager
    def own_part(self) -> Iterator[None]:
        """**Local.** Keep what goes wrong in a block that no other rank waits for."""
        try:
            yield
        except Exception as problem:
            if self._problem is None:
                self._problem = said(self.path, problem)
                self._error = ReadError if isinstance(problem, ReadError) else WriteError

    @contextlib.contextmanager
    def part_of_all(self) -> Iterator[None]:
        """**Collective** at the end. :meth:`own_part`, after which all :meth:`agree`."""
        with self.own_part():
            yield
        self.agree()

    @property
    def failed(self) -> bool:
        """Whether something went wrong on this rank."""
        return self._problem is not None

    @property
    def problem(self) -> str | None:
        """What went wrong on this rank, if anything."""
        return self._problem

    def agree(self) -> None:
        """**Collective.** Raise on all ranks if something went wrong on one."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks; or an error on all if something went wrong on one."""
        with self._world.operation(self.timeout_s):
            told = self._world.gather((self._problem, self._error, value))
        first = next((kind for text, kind, _ in told if text not in (None, _STOPPED)), WriteError)
        raise_if_any([problem for problem, _, _ in told], first, self.after)
        return [value for _, _, value in told]


class NewFile(Together):
    """The temporary files as one rank sees them."""

    def __init__(self, world: World, path: str, paths: Sequence[Path], kept: bool = False) -> None:
        super().__init__(world, path)
        self.paths, self._kind = paths, UPDATE if kept else WRITE
        self._files: dict[int, int] = {}
        self._unsynced: set[int] = set()
        with self.own_part():  # a rank that does not see the folder says so at once
            self.file()

    @property
    def temporary(self) -> Path:
        """The only temporary file, for those who write it themselves."""
        return self.paths[0]

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


class NewTree(Together):
    """A folder in which a tree of files grows, as one rank sees it. ``data`` gets the name at the end.

    ``resumed`` says that an earlier job began the same work there.
    """

    timeout_s = None  # ranks may be hours apart

    def __init__(self, world: World, path: str, data: Path, resumed: bool, kept: bool) -> None:
        super().__init__(world, path)
        self.data, self.folder, self.resumed = data, data.parent, resumed
        self.after = _KEPT if kept else _UNTOUCHED
        self.is_sound = True
        with self.own_part():  # a rank that does not see the folder says so at once
            self.new.stat()

    @property
    def new(self) -> Path:
        """A folder for files that are not whole yet: they get their names by a rename."""
        return self.folder / "new"

    @contextlib.contextmanager
    def own_part(self) -> Iterator[None]:
        """**Local.** Keep what goes wrong in a block; the others learn of it by :meth:`stop_if_failed`."""
        with super().own_part():
            try:
                yield
            except _Stopped:
                self._problem = self._problem or _STOPPED
            except Exception:
                with contextlib.suppress(OSError):
                    os.close(disk().create(self.folder / "failed", 0, again=True))
                raise

    def stop_if_failed(self) -> None:
        """**Local.** End a block of :meth:`own_part` if a rank has failed: there is no use in going on."""
        if (self.folder / "failed").exists():
            raise _Stopped

    def sync(self) -> None:
        """**Local.** Bring what this machine wrote to the disk."""
        if self._problem is None:
            with self.own_part():
                disk().sync_all(self.folder)

    def discard(self, why: str) -> WriteError:
        """**Local.** The error of work that is wrong: nothing of it is kept."""
        self.is_sound = False
        return WriteError(f"cannot write {self.path!r}: {why}")

    def close(self) -> None:
        """**Local.** Nothing is open."""


class _Stopped(Exception):
    """Another rank failed."""


def raise_if_any(
    problems: Sequence[str | None], error: type[RedistError] = WriteError, after: str = _UNTOUCHED
) -> None:
    """**Local.** Raise the first problem that a rank has, and say which ranks have it.

    Of ranks that ended because another had failed, the other one says why.
    """
    who = [rank for rank, problem in enumerate(problems) if problem is not None]
    who = [rank for rank in who if problems[rank] != _STOPPED] or who
    if who:
        text = problems[who[0]]
        same = [rank for rank in who if problems[rank] == text]
        where = "" if len(same) == len(problems) else f" ({ranks_in_words(same, len(problems))})"
        raise error(f"{text}{where}; {after}")


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
    name, world = os.fspath(path), world_of(comm)
    with _committed(
        comm, lambda: Place(name, sizes, kept, replaces),
        lambda paths, again: NewFile(world, name, paths, again), sync, TIMEOUT_S,
    ) as out:  # fmt: skip
        yield out


@contextlib.contextmanager
def new_tree(
    comm: Comm, path: File, in_the_way: Callable[[Path], str | None], n_bytes: Callable[[], int],
    work: Callable[[], str] | None = None, discards: bool = False,
) -> Iterator[NewTree]:  # fmt: skip
    """**Collective** at both ends. A tree of files whose names are not known before, or a file.

    ``work`` says what is written, from what: it is kept, and gone on with by a call with the same work.
    Without, nothing is kept. The rest is as in :class:`~redist.runtime.files.place.GrowingFolder`, and asked
    on rank 0.
    """
    name, world = os.fspath(path), world_of(comm)
    boots = gather(comm, boot_id(), TIMEOUT_S)
    with _committed(
        comm, lambda: GrowingFolder(name, work, in_the_way, n_bytes, boots, discards),
        lambda paths, again: NewTree(world, name, paths[0], again, work is not None), True, None,
    ) as out:  # fmt: skip
        yield out


Out = TypeVar("Out", NewFile, NewTree)


@contextlib.contextmanager
def _committed(
    comm: Comm, begin: Callable[[], Place], see: Callable[[list[Path], bool], Out], sync: bool,
    timeout_s: float | None,
) -> Iterator[Out]:  # fmt: skip
    """**Collective** at both ends. What all ranks write in a temporary place: it has its name at the end."""
    place: Place | None = None
    out: Out | None = None
    try:
        if comm.rank == 0:
            place = begin()
        paths, again = from_first(comm, lambda: _made(place), timeout_s)
        out = see(paths, again)
        out.agree()
        yield out
        if sync:
            out.sync()
        out.agree()
        out.close()
        from_first(comm, lambda: _named(place, sync), timeout_s)
    except BaseException as problem:
        if not isinstance(
            problem, RedistError
        ):  # as Ctrl-C: the others must not wait for this rank
            world_of(comm).abort_once(problem)
        raise
    finally:
        if out is not None:
            out.close()
        if isinstance(place, GrowingFolder) and isinstance(out, NewTree) and not out.is_sound:
            place.discard()
        if place is not None:
            place.close()


def _made(place: Place | None) -> tuple[list[Path], bool]:
    assert place is not None
    return place.make()


def _named(place: Place | None, sync: bool) -> bool:
    assert place is not None
    return place.give_name(sync)
