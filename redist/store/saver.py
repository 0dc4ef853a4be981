"""Checkpoints in the background: the program continues while a copy of its arrays is written.

::

    program   ... step 99 | copy | step 100 ... step 101 ... step 102 ...
    threads                      | write, sync | mark |            one on each rank; none calls MPI
    rank 0's                                          | header, sync, rename, remove old ones

When a rank's part is on the disk, the rank writes a small file beside the checkpoint, its *mark*, which has
its part of the checksums. The thread of rank 0 waits for the marks of all ranks and then gives the checkpoint
its name. So the checkpoint is completed, and :attr:`Saver.latest` finds it, without any further call.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, RedistError, WriteError
from redist.names.part import Part
from redist.pgas.global_array import Array
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.strided import canonical
from redist.runtime.cuda.arrays import to_host
from redist.runtime.files.disk import disk, remove_tree
from redist.runtime.files.new_file import NewFile, raise_if_any
from redist.runtime.files.place import Place, said
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world, world_of
from redist.store.carry import write_part
from redist.store.given import Given, given_arrays
from redist.store.load import load
from redist.store.pieces import Spans
from redist.store.save import Draft, RulesLike, agreed, drafted, new_sums, rows_of, write_heads
from redist.store.stored import OUR_FILES, File

NAME = "step-{:010d}"
FOUND = re.compile(r"step-(\d{10,})(\.safetensors)?")
POLL_S = 0.02


class Saver:
    """**Collective.** Checkpoints of a run in a folder, one per step, written while the program continues.

    In a training loop, on any number of ranks::

        saver = redist.Saver("run", keep=3)
        step, arrays = saver.resume(types) or (0, make_arrays())
        for step in range(step, 1000):
            arrays = train(arrays)
            if step % 100 == 99:
                saver.save(arrays, step=step + 1)    # copies the arrays, and returns
        saver.wait()

    ``keep`` is the number of complete checkpoints to keep; None keeps all. Every checkpoint is one file,
    ``step-0000000100.safetensors``, or a folder if ``shard_bytes`` is given. ``dtype``, ``names`` and
    ``sync`` are those of :func:`redist.save`. Each rank holds a copy of what it writes until it is written:
    its share of the arrays, and only a part of each replicated array.
    """

    def __init__(
        self, folder: File, *, keep: int | None = 3, dtype: Any = None, names: RulesLike = None,
        shard_bytes: int | str | None = None, sync: bool = True, comm: Comm | None = None,
        timeout_s: float = 600.0,
    ) -> None:  # fmt: skip
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise ArgumentError(
                f"cannot keep {keep!r} checkpoints: need 1 or more, or None for all"
            )
        self.folder, self.keep = Path(folder), keep
        self._options = (dtype, names, shard_bytes)
        self._sync, self._comm, self._timeout_s = sync, comm_or_world(comm), timeout_s
        self._buffers: dict[tuple[int, ...], NDArray[np.uint8]] = {}
        self._under_way: _Writing | None = None
        from_first(self._comm, self._make_folder, TIMEOUT_S)

    def _make_folder(self) -> bool:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WriteError(said(str(self.folder), problem)) from problem
        return True

    def save(
        self, arrays: Mapping[str, Any], *, step: int, meta: Mapping[str, Any] | None = None
    ) -> None:
        """**Collective.** Wait for the previous checkpoint, copy the arrays, and start to write them.

        If the previous checkpoint failed, its error is raised here, on all ranks. ``step`` is added to
        ``meta``.
        """
        self.wait()
        path = self.path(step)
        draft: Draft | None = None
        error: Exception | None = None
        try:
            given, _ = given_arrays(str(path), arrays, self._comm)
            dtype, names, shard = self._options
            draft = drafted(path, given, {**(meta or {}), "step": step}, dtype, names, shard)
        except RedistError as problem:
            error = problem
        draft = agreed(self._comm, "save", path, draft, error)
        copies = [*self._copies(draft)]
        place = Place(str(path), draft.sizes, True, OUR_FILES) if self._comm.rank == 0 else None
        try:
            paths, again, token = from_first(self._comm, lambda: _prepared(place), TIMEOUT_S)
        except BaseException:
            if place is not None:
                place.close()
            raise
        file = NewFile(world_of(self._comm), str(path), paths, again)
        self._under_way = _Writing(self, draft, file, place, copies, token)

    def _copies(self, draft: Draft) -> Iterator[tuple[Given, Sequence[Part], Spans, Any]]:
        """**Collective** if a reduction is pending. What this rank writes, in memory of its own."""
        for number, one in enumerate(draft.given):
            parts = draft.parts[one.name]
            if parts:
                for turn, (spans, tile) in enumerate(one.settled().own_parts()):
                    moved, copy = copied(
                        spans, tile, lambda n, key=(number, turn): self._buffer(key, n)
                    )
                    yield one, parts, moved, copy

    def _buffer(self, key: tuple[int, ...], n_bytes: int) -> NDArray[np.uint8]:
        """**Local.** Memory that the last checkpoint had for the same, or new memory."""
        found = self._buffers.get(key)
        if found is None or found.nbytes != n_bytes:
            found = self._buffers[key] = np.empty(n_bytes, np.uint8)
        return found

    def path(self, step: int) -> Path:
        """The path of the checkpoint of a step, whether it exists yet or not."""
        if not isinstance(step, (int, np.integer)) or step < 0:
            raise ArgumentError(f"cannot save step {step!r}: need a number, 0 or more")
        end = "" if self._options[2] is not None else ".safetensors"
        return self.folder / (NAME.format(int(step)) + end)

    @property
    def steps(self) -> list[int]:
        """**Local.** The steps that have a complete checkpoint, in order."""
        return sorted(int(found[1]) for found in map(FOUND.fullmatch, self._names()) if found)

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError):
            return [path.name for path in self.folder.iterdir()]
        return []

    @property
    def latest(self) -> Path | None:
        """**Local.** The path of the last complete checkpoint; None if there is none."""
        steps = self.steps
        if not steps:
            return None
        name = NAME.format(steps[-1])
        file = self.folder / f"{name}.safetensors"
        return file if file.exists() else self.folder / name

    def resume(self, types: Any = None, **options: Any) -> tuple[int, dict[str, Array]] | None:
        """**Collective.** Load the last complete checkpoint: its step and arrays; None if there is none.

        ``types`` and ``options`` are those of :func:`redist.load`.
        """
        self.wait()
        (path,) = from_first(self._comm, lambda: (self.latest,), TIMEOUT_S)
        if path is None:
            return None
        found = FOUND.fullmatch(path.name)
        assert found is not None
        return int(found[1]), load(path, types, comm=self._comm, **options)

    @property
    def is_saving(self) -> bool:
        """**Local.** Whether this rank is still writing; on rank 0, until the checkpoint has its name."""
        return self._under_way is not None and self._under_way.thread.is_alive()

    def wait(self) -> None:
        """**Collective.** Wait until the checkpoint is complete; raise on all ranks if it failed."""
        writing, self._under_way = self._under_way, None
        if writing is None:
            return
        writing.thread.join()
        outcome = from_first(self._comm, lambda: (writing.problems, writing.error), TIMEOUT_S)
        raise_if_any(outcome[0])
        if outcome[1] is not None:
            raise WriteError(outcome[1])

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.wait()

    def _prune(self) -> None:
        """**Local.** Remove the oldest of more checkpoints than are kept."""
        for step in self.steps[: -self.keep] if self.keep is not None else ():
            for name in (f"{NAME.format(step)}.safetensors", NAME.format(step)):
                with contextlib.suppress(OSError):
                    if (self.folder / name).exists():
                        remove_tree(self.folder / name)


def _prepared(place: Place | None) -> tuple[list[Path], bool, str]:
    assert place is not None
    paths, again = place.make()
    return paths, again, secrets.token_hex(8)


def copied(spans: Spans, tile: Any, room: Any) -> tuple[Spans, NDArray[Any]]:
    """**Local.** Copy ranges of a tile into memory from ``room``; return their places in it, and the copy."""
    shape = tuple(sum(n for _, n, _ in dim) for dim in spans)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * tile.dtype.itemsize
    copy = room(n_bytes).view(tile.dtype).reshape(shape)
    moved: list[list[tuple[int, int, int]]] = []
    for dim in spans:
        at, rows = 0, []
        for start, n, _ in dim:
            rows.append((start, n, at))
            at += n
        moved.append(rows)
    for index in np.ndindex(*(len(dim) for dim in spans)):
        here = [spans[d][i] for d, i in enumerate(index)]
        there = [moved[d][i] for d, i in enumerate(index)]
        _copy(
            copy[(*(slice(at, at + n) for _, n, at in there), ...)],
            tile[(*(slice(at, at + n) for _, n, at in here), ...)],
        )
    return tuple(tuple(rows) for rows in moved), copy


def _copy(out: NDArray[Any], values: Any) -> None:
    """**Local.** Copy values from memory past the cache, or from a GPU."""
    if not isinstance(values, np.ndarray):
        np.copyto(out, to_host(values))
        return
    form = canonical(out.shape, out.dtype.itemsize, out.strides, values.strides)
    CopyList.of([BufferCopy(0, 0, 1, 0, form)], streams=True).run(addresses([out, values]))


class _Writing:
    """One checkpoint that is being written by a thread of each rank."""

    def __init__(
        self, saver: Saver, draft: Draft, file: NewFile, place: Place | None,
        copies: Sequence[tuple[Given, Sequence[Part], Spans, Any]], token: str,
    ) -> None:  # fmt: skip
        self._draft, self._file, self._place, self._copies = draft, file, place, copies
        self._rank, self._size = saver._comm.rank, saver._comm.size
        self._sync, self._timeout_s = saver._sync, saver._timeout_s
        self._prune = saver._prune
        temporary = file.paths[0] if draft.files == ("",) else file.paths[0].parent
        self._mark = str(temporary) + f".{token}."
        self.problems: list[str | None] = [None] * self._size
        self.error: str | None = None
        self.thread = threading.Thread(target=self._run, name="redist-saver", daemon=True)
        weakref.finalize(self, _finish, self.thread)
        self.thread.start()

    def _run(self) -> None:
        try:
            sums = self._write()
            if self._place is not None:
                self._complete(sums)
        except Exception as problem:
            self.error = said(self._draft.path, problem)
        finally:
            self._file.close()
            if self._place is not None:
                self._place.close()

    def _write(self) -> list[NDArray[np.uint32]]:
        """Write this rank's part, and leave its mark."""
        file, draft = self._file, self._draft
        sums = new_sums(draft.headers)
        rows = rows_of(draft, sums)
        for one, parts, spans, copy in self._copies:
            for part in parts:
                write_part(
                    file, part, draft.entries[part.name], one.dtype, spans, copy, rows[part.name]
                )
        if self._sync:
            file.sync()
        if self._rank:
            problem = (file.problem or "").encode()
            _leave(
                Path(f"{self._mark}{self._rank}"),
                len(problem).to_bytes(8, "little") + problem,
                sums,
            )
        return sums

    def _complete(self, sums: list[NDArray[np.uint32]]) -> None:
        """On rank 0: wait for all marks, then give the checkpoint its name."""
        self.problems[0] = self._file.problem
        try:
            for rank in range(1, self._size):
                self.problems[rank] = self._await(Path(f"{self._mark}{rank}"), sums, rank)
        finally:
            for rank in range(1, self._size):
                with contextlib.suppress(OSError):
                    Path(f"{self._mark}{rank}").unlink(missing_ok=True)
        if any(self.problems):
            return
        write_heads(self._file, self._draft, sums)
        if self._sync:
            self._file.sync()
        self.problems[0] = self._file.problem
        if self.problems[0] is None:
            assert self._place is not None
            self._place.give_name(self._sync)
            self._prune()

    def _await(self, mark: Path, sums: Sequence[NDArray[np.uint32]], rank: int) -> str | None:
        """Wait for the mark of a rank, and add its checksums; what went wrong there, if anything."""
        end = time.monotonic() + self._timeout_s
        while not mark.exists():
            if time.monotonic() > end:
                raise WriteError(
                    f"cannot write {self._draft.path!r}: rank {rank} was not done after "
                    f"{self._timeout_s:g} s; it may have ended"
                )
            time.sleep(POLL_S)
        data = mark.read_bytes()
        n = int.from_bytes(data[:8], "little")
        at = 8 + n
        for row in sums:
            row ^= np.frombuffer(data, np.uint32, len(row), at)
            at += row.nbytes
        return data[8 : 8 + n].decode() or None


def _leave(mark: Path, head: bytes, sums: Sequence[NDArray[np.uint32]]) -> None:
    """**Local.** Make a mark, whole or not at all."""
    draft = mark.with_name(f"{mark.name}.new")
    draft.write_bytes(head + b"".join(row.tobytes() for row in sums))
    disk().rename(draft, mark)


def _finish(thread: threading.Thread) -> None:
    """At the end of a program: what was begun is completed."""
    if thread is not threading.current_thread():
        thread.join()
