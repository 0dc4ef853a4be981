"""``redist.rechunk``: change the chunks of the arrays in a store, on all ranks, within a memory limit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redist.errors import ArgumentError, RedistError, WriteError
from redist.pgas.files.chunked import open_reader, store_head
from redist.pgas.files.heads import ZARR_FILES, ArrayHead, StoreHead, kind_in_the_way, zarr_store
from redist.pgas.files.shares import look, readable, teller
from redist.pgas.files.workers import Workers, default_threads
from redist.runtime.files.disk import bytes_below, disk, remove_tree
from redist.runtime.files.new_file import NewTree, new_tree
from redist.runtime.files.place import make_file
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.store.chunks.checksum import own_sum
from redist.store.chunks.plan import RechunkPlan
from redist.store.chunks.request import Sizes, codecs_from, plan_store
from redist.store.chunks.run import ArrayRun, Flags
from redist.store.chunks.targets import create, open_target
from redist.text.units import format_bytes, format_seconds, room_from

File = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Rechunked:
    """What a rechunk did: its plan, the stored bytes that all ranks read and wrote, and the time it took."""

    plan: RechunkPlan
    read_bytes: int
    written_bytes: int
    seconds: float
    resumed: bool = False
    verified: bool = False

    def __str__(self) -> str:
        read, written = format_bytes(self.read_bytes), format_bytes(self.written_bytes)
        verified = ", checksums are equal" if self.verified else ""
        resumed = ", the rest of an interrupted run" if self.resumed else ""
        took = format_seconds(round(self.seconds, 2))
        return f"{self.plan.target}: {read} read, {written} written, {took}{resumed}{verified}"


def plan_rechunk(
    source: File, target: File, chunks: Sizes = None, shards: Sizes = None,
    limit_bytes: int | str = "2GiB", comm: Comm | None = None, *, codec: str | None = None,
    threads: int | None = None, leave_out: Sequence[str] = (), ranks: int | None = None,
) -> RechunkPlan:  # fmt: skip
    """**Collective over `comm`.** Plan a :func:`rechunk` without moving any data; ``print(plan)`` shows it.

    ``ranks`` is the number of ranks to plan for, by default those of ``comm``.
    """
    comm = comm_or_world(comm)
    return _planned(
        _Call(source, target, chunks, shards, limit_bytes, codec, threads, leave_out), comm, ranks
    )[0]


def rechunk(
    source: File, target: File, chunks: Sizes = None, shards: Sizes = None,
    limit_bytes: int | str = "2GiB", comm: Comm | None = None, *, codec: str | None = None,
    threads: int | None = None, leave_out: Sequence[str] = (), overwrite: bool = False,
    verify: bool = False, progress: bool | None = None,
) -> Rechunked:  # fmt: skip
    """**Collective over `comm`.** Rewrite the arrays of a store in chunks of another shape.

    For example, ``redist.rechunk("in.zarr", "out.zarr", chunks={"time": 8760, "lat": 72, "lon": 144})``, in a
    single process or on all ranks of an MPI job. The source is a Zarr store (version 2 or 3, with or without
    shards), an HDF5 file or a NumPy file; the target is a Zarr 3 store or a NumPy file (``.npy``). Needs zarr
    and h5py (the extra ``store``).

    ``chunks`` and ``shards`` give sizes by the names of dims, or one size for every dim in order; ``"all"``
    means the whole dim. In a group, arrays with at least one of the named dims get these chunks; the others
    are copied. Without ``shards``, the target has chunks but no shards. Attributes, names of dims and fill
    values are kept, in the form that xarray expects.

    ``limit_bytes`` is the memory that a rank may use in addition to Python itself; the plan is chosen to fit
    (:func:`plan_rechunk`). ``codec`` is ``"zstd:3"``, ``"gzip"``, ``"blosc"`` or ``"none"``; by default,
    the codec of the source.

    Each chunk or shard is written once, as a whole, by one rank. The target gets its name only when all of it
    has been written. An interrupted run is resumed by calling it again with the same source, chunks and
    codec; the number of ranks and the limit may differ. ``verify=True`` reads both stores once more and
    compares checksums of their elements. If anything fails, all ranks raise the same error.
    """
    comm = comm_or_world(comm)
    call = _Call(source, target, chunks, shards, limit_bytes, codec, threads, leave_out)
    began = time.monotonic()
    plan, head = _planned(call, comm, None)
    codecs = codecs_from(codec)
    total = sum(one.plan.request.array_bytes for one in plan.arrays) // comm.size
    tell = teller(comm, "rechunk", plan.target, progress, total)
    with contextlib.ExitStack() as stack:
        if head.kind == "zarr" or not plan.to_npy:
            stack.enter_context(zarr_store().one_at_a_time())
        out = stack.enter_context(
            new_tree(
                comm, plan.target, lambda final: _in_the_way(final, overwrite),
                lambda: _room(plan, head, codecs), lambda: _digest(plan, head, codec), overwrite,
            )
        )  # fmt: skip
        with out.part_of_all():
            if comm.rank == 0 and not out.data.exists():
                create(plan, head, codecs, out, out.new / "store")
                disk().rename(out.new / "store", out.data)
        counted = [_run_array(comm, plan, n, head, out, tell) for n in range(len(plan.arrays))]
        if verify:
            _compare_sums(comm, plan, head, out)
        every = out.gather(counted)
        resumed = out.resumed
    read, written = (sum(one[i] for own in every for one in own) for i in (0, 1))
    return Rechunked(plan, read, written, time.monotonic() - began, resumed, verify)


def _run_array(
    comm: Comm, plan: RechunkPlan, number: int, head: StoreHead, out: NewTree,
    tell: Callable[[int], None],
) -> tuple[int, int]:  # fmt: skip
    """**Collective.** Write one array of a plan; the bytes that this rank read and wrote."""
    own, source = plan.arrays[number].plan, _head_of(head, plan.arrays[number].name)
    with contextlib.ExitStack() as stack:
        with out.part_of_all():
            workers = stack.enter_context(Workers(own.way.threads))
            done = stack.enter_context(
                contextlib.closing(Flags(out.folder / f"done-{number}", own.units.n_boxes))
            )
            target = stack.enter_context(contextlib.closing(open_target(plan, number, source, out)))
            with readable(source.path):
                reader = stack.enter_context(contextlib.closing(open_reader(source)))
        run = ArrayRun(own, source, comm.rank, reader, target, done, workers, out, tell)
        n_done = out.gather(done.n_done)
        if min(n_done) < own.units.n_boxes:
            if own.way.kind == "scratch":
                _through_scratch(comm, run, number, out)
            else:
                with out.part_of_all():
                    run.direct()
        return run.read_bytes, run.written_bytes


def _through_scratch(comm: Comm, run: ArrayRun, number: int, out: NewTree) -> None:
    """**Collective.** Fill a scratch file in the order of units, then write the units from it."""
    path = out.folder / f"scratch-{number}-{run.plan.digest[:12]}"  # another way has another one
    with out.part_of_all():
        if comm.rank == 0 and not path.exists():
            for old in (*out.folder.glob("scratch-*"), *out.folder.glob("done-scratch-*")):
                remove_tree(old)
            making = out.new / "scratch"
            make_file(out.path, making, run.plan.request.array_bytes, 0, again=True)
            disk().rename(making, path)
    with out.part_of_all():
        filled = Flags(out.folder / f"done-{path.name}", run.plan.blocks.n_boxes)
        with contextlib.closing(filled):
            run.fill_scratch(path, filled)
    with out.part_of_all():
        run.write_units(path)
    with out.part_of_all():
        if comm.rank == 0:
            remove_tree(path)


def _compare_sums(comm: Comm, plan: RechunkPlan, head: StoreHead, out: NewTree) -> None:
    """**Collective.** Read both stores again; raise if the elements of an array differ."""
    for one in plan.arrays:
        source, sums = _head_of(head, one.name), (0, 0)
        with out.own_part():
            with readable(source.path):
                before = own_sum(source, comm.rank, comm.size, one.plan.way.threads)
            written = _head_of(store_head(out.data), "" if plan.to_npy else one.name)
            sums = before, own_sum(written, comm.rank, comm.size, one.plan.way.threads)
        every = out.gather(sums)
        was, now = (sum(pair[i] for pair in every) % 2**64 for i in (0, 1))
        if was != now:
            raise out.discard(
                f"{one.name or 'the array'} has checksum {was:016x} in the source and {now:016x} as written; "
                "nothing is kept: check memory and disk, try again"
            )


def _head_of(head: StoreHead, name: str) -> ArrayHead:
    return next(one for one in head.arrays if one.name == name)


def _in_the_way(final: Path, overwrite: bool) -> str | None:
    """**Local.** What speaks against a target of this name."""
    if not final.exists():
        return None
    if not overwrite:
        return "it exists; give another name, or overwrite=True (--overwrite)"
    return kind_in_the_way(final) if final.is_dir() else None


@dataclass(frozen=True, slots=True)
class _Call:
    """What a user asks for."""

    source: File
    target: File
    chunks: Sizes
    shards: Sizes
    limit_bytes: int | str
    codec: str | None
    threads: int | None
    leave_out: Sequence[str]

    def check(self) -> int:
        """**Local.** The limit, or an error."""
        limit = room_from(self.limit_bytes)
        if limit is None:
            raise ArgumentError("cannot rechunk without a limit: give limit_bytes, such as '2GiB'")
        if isinstance(self.leave_out, str):
            raise ArgumentError(f"cannot leave out {self.leave_out!r}: need a list of names")
        if self.threads is not None and not (isinstance(self.threads, int) and self.threads > 0):
            raise ArgumentError(f"cannot use threads={self.threads!r}: need a number of at least 1")
        codecs_from(self.codec)
        source, target = (os.path.realpath(one) for one in (self.source, self.target))
        if os.path.commonpath([source, target]) in (source, target):
            raise ArgumentError(
                f"cannot rechunk {os.fspath(self.source)!r} to {os.fspath(self.target)!r}: one lies in the "
                "other; give a target elsewhere"
            )
        return limit


def _planned(call: _Call, comm: Comm, ranks: int | None) -> tuple[RechunkPlan, StoreHead]:
    """**Collective.** The plan, the same on every rank, and what the source says of itself."""
    error: Exception | None = None
    limit = 0
    try:
        limit = call.check()
    except (RedistError, TypeError) as problem:
        error = problem
    all_agree(comm, "cannot rechunk", repr(call), error, TIMEOUT_S)
    size = comm.size if ranks is None else ranks

    def facts() -> tuple[StoreHead, int]:
        if not os.fspath(call.target).endswith(".npy"):
            zarr_store("write", WriteError)
        return store_head(call.source), call.threads or default_threads(size)

    head, threads = look(comm, call.source, facts)
    target = os.fspath(call.target)
    return plan_store(
        head, target, call.chunks, call.shards, limit, size, threads, call.codec, call.leave_out
    ), head


def _digest(plan: RechunkPlan, head: StoreHead, codec: str | None) -> str:
    """What is written, from what: a run with the same digest goes on with the work of an earlier one."""
    path = Path(head.path)
    meta = [path, *(path / name for name in (*ZARR_FILES, ".zmetadata"))]
    stamps = [one.stat().st_mtime_ns for one in meta if one.is_file()]
    arrays = [
        (one.name, one.new_chunks, one.new_shards, one.plan.request.units) for one in plan.arrays
    ]
    facts = (str(path.resolve()), stamps, [repr(one) for one in head.arrays], arrays, codec)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _room(plan: RechunkPlan, head: StoreHead, codecs: list[dict[str, Any]] | None) -> int:
    """Bytes on the disk that the run needs: scratch, and a target that is compressed as the source is."""
    heads = {one.name: one for one in head.arrays}
    own = [heads[one.name].codecs if codecs is None else codecs for one in plan.arrays]
    target = sum(one.plan.request.array_bytes for one in plan.arrays)
    is_plain = plan.to_npy or any(one == [] for one in own)
    return plan.scratch_bytes + (target if is_plain else min(target, bytes_below(Path(head.path))))
