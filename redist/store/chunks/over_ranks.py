"""One array on all ranks: the phases of its plan, one error on all of them, checksums before and after."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redist.errors import ReadError, RedistError, WriteError
from redist.pgas.files.chunked import open_reader, store_head
from redist.pgas.files.heads import ArrayHead, StoreHead, zarr_store
from redist.pgas.files.workers import Workers
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.store.chunks.grids import Grid
from redist.store.chunks.plan import RechunkPlan
from redist.store.chunks.run import ArrayRun, Stopped, sum_of
from redist.store.chunks.targets import open_target
from redist.store.chunks.unfinished import Unfinished
from redist.store.chunks.ways import slab
from redist.text.units import ranks_in_words


@contextmanager
def one_at_a_time(plan: RechunkPlan, head: StoreHead) -> Iterator[None]:
    """**Local.** Keep zarr-python to one chunk in each thread, where it is used."""
    if plan.to_npy and head.kind != "zarr":
        yield
        return
    with zarr_store().one_at_a_time():
        yield


@contextmanager
def all_or_none(comm: Comm, folder: Unfinished) -> Iterator[None]:
    """**Collective** at the end. Raise on all ranks if a block failed on one; the others stop early."""
    error: Exception | None = None
    try:
        yield
    except Exception as problem:
        error = problem
        if not isinstance(problem, Stopped):
            folder.failed.touch()
    said = gather(comm, None if error is None else (type(error), _words(folder, error)), None)
    who = [rank for rank, one in enumerate(said) if one is not None and one[0] is not Stopped]
    if who:
        kind, text = said[who[0]]
        same = [rank for rank in who if said[rank][1] == text]
        where = "" if len(same) == comm.size else f" ({ranks_in_words(same, comm.size)})"
        made = ReadError if kind is ReadError else WriteError
        raise made(
            f"{text}{where}; what is written is kept: the same call goes on from there"
        ) from error


def _words(folder: Unfinished, error: Exception) -> str:
    if isinstance(error, RedistError):
        return str(error)
    if isinstance(error, OSError):
        return str(folder.error(error))
    return f"cannot rechunk to {str(folder.target)!r}: {type(error).__name__}: {error}"


def run_array(
    comm: Comm, plan: RechunkPlan, number: int, head: StoreHead, folder: Unfinished,
    tell: Callable[[int], None],
) -> tuple[int, int]:  # fmt: skip
    """**Collective.** Write one array of a plan; the bytes that this rank read and wrote."""
    own = plan.arrays[number].plan
    source = _head_of(head, plan.arrays[number].name)
    with Workers(own.way.threads) as workers:
        opened: list[ArrayRun] = []
        try:
            with all_or_none(comm, folder):
                done = folder.flags(f"{number}", own.units.n_boxes)
                target = open_target(plan, number, source, folder.data, folder.new)
                reader = open_reader(source)
                opened.append(
                    ArrayRun(
                        own, source, comm.rank, reader, target, done, workers, folder.failed, tell
                    )
                )
            (run,) = opened
            if run.units_done.n_done < own.units.n_boxes:
                if own.way.kind == "scratch":
                    _through_scratch(comm, run, number, folder)
                else:
                    with all_or_none(comm, folder):
                        run.direct()
            return run.read_bytes, run.written_bytes
        finally:
            for run in opened:
                run.close()


def _through_scratch(comm: Comm, run: ArrayRun, number: int, folder: Unfinished) -> None:
    """**Collective.** Fill a scratch file in the order of units, then write the units from it."""
    digest, n_bytes = run.plan.digest, run.plan.request.array_bytes
    path = folder.scratch(number, digest)
    from_first(comm, lambda: _make_scratch(folder, path, n_bytes), TIMEOUT_S)
    with all_or_none(comm, folder):
        filled = folder.flags(path.name, run.plan.blocks.n_boxes)
        try:
            run.fill_scratch(path, filled)
        finally:
            filled.close()
    with all_or_none(comm, folder):
        run.write_units(path)
    if comm.rank == 0:
        path.unlink()


def _make_scratch(folder: Unfinished, path: Path, n_bytes: int) -> bool:
    """**Local**, on rank 0. Take the room of a scratch file, unless an earlier run has made it."""
    if path.exists():
        return True
    for old in [*folder.folder.glob("scratch-*"), *folder.folder.glob("done-scratch-*")]:
        old.unlink()
    making = folder.folder / "scratch.new"
    try:
        with making.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        making.replace(path)
    except OSError as problem:
        making.unlink(missing_ok=True)
        raise folder.error(problem) from problem
    return True


def compare_sums(comm: Comm, plan: RechunkPlan, head: StoreHead, folder: Unfinished) -> None:
    """**Collective.** Read both stores again; raise if the elements of an array differ."""
    for one in plan.arrays:
        source = _head_of(head, one.name)
        sums: list[tuple[int, int]] = []
        with all_or_none(comm, folder):
            written = _head_of(store_head(folder.data), one.name if not plan.to_npy else "")
            sums.append(
                (
                    _sum(comm, source, one.plan.way.threads),
                    _sum(comm, written, one.plan.way.threads),
                )
            )
        every = gather(comm, sums[0], None)
        before, after = (sum(pair[i] for pair in every) % 2**64 for i in (0, 1))
        if before != after:
            if comm.rank == 0:
                folder.discard()
            raise WriteError(
                f"cannot rechunk to {plan.target!r}: {one.name or 'the array'} has checksum {before:016x} in "
                f"the source and {after:016x} as written; nothing is kept: check memory and disk, try again"
            )


def _sum(comm: Comm, head: ArrayHead, threads: int) -> int:
    """**Local.** This rank's share in the checksum of an array."""
    part = head.parts or slab(head.shape, head.dtype.itemsize, head.by_columns)
    reader = open_reader(head)
    try:
        with Workers(threads) as workers:
            return sum_of(reader, head, Grid(head.shape, part), comm.rank, comm.size, workers)
    finally:
        reader.close()


def _head_of(head: StoreHead, name: str) -> ArrayHead:
    return next(one for one in head.arrays if one.name == name)
