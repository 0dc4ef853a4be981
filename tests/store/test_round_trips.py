"""Checkpoints and rechunkings of ranks that are only played, one after another in this process.

Types, sizes and ranks are Hypothesis's to shrink. What a rank writes and reads is what it does under MPI
(``tests.programs.store.round_trips`` runs that); a file is compared with NumPy's bytes, and every byte of it
must be written once.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redist import ArrayType, Mesh
from redist.layout.dtype import DType
from redist.pgas.files.heads import ArrayHead
from redist.pgas.files.workers import Workers
from redist.runtime.files.disk import Disk, disk, use_disk
from redist.runtime.files.kernels import WRITE
from redist.store.carry import read_part
from redist.store.chunks.run import ArrayRun, Flags
from redist.store.chunks.ways import ArrayPlan, ArrayRequest, every_way
from redist.store.given import Given
from redist.store.load import load_plan
from redist.store.pieces import shares_of
from redist.store.save import drafted, finished, new_sums, rows_of, write_array
from redist.store.stored import stored
from redist.store.verify import wrong_blocks
from tests.problems.segments import KINDS, MESHES, random_layout
from tests.tiers import sample

DTYPES = ("bool", "i16", "f32", "f64", "c128", "bf16", "f8e4m3fn", "S5")


class CountingDisk(Disk):
    """Counts how often each byte of a file is written."""

    def __init__(self, n_bytes: int) -> None:
        self.times = np.zeros(n_bytes, np.uint8)

    def carry(
        self, kind: int, file: int, array: Any, offset: int, steps: Any, checked: Any
    ) -> None:
        super().carry(kind, file, array, offset, steps, checked)
        for index in np.ndindex(array.shape):
            at = offset + sum(i * step for i, step in zip(index, steps, strict=True))
            self.times[at : at + array.dtype.itemsize] += 1


class OneFile:
    """A new file as one rank has it."""

    def __init__(self, file: int) -> None:
        self._file = file

    def carry(
        self, array: Any, offset: int, steps: Sequence[int], which: int, checked: Any
    ) -> None:
        disk().carry(WRITE, self._file, array, offset, steps, checked)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield file
    finally:
        os.close(file)


@st.composite
def types_of(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> ArrayType:
    """A type on one to four ranks, plain or with a kind of segments."""
    n = draw(st.sampled_from([m for m in sorted(MESHES) if m <= 4]))
    axes = draw(st.sampled_from(MESHES[n]))
    mesh = Mesh(axes, ranks=draw(st.permutations(range(4)))[:n])
    if not shape:
        return ArrayType(mesh, DType.parse(dtype), (), ())
    kind = draw(st.sampled_from(["plain", *(() if 0 in shape else KINDS)]))
    rng = random.Random(draw(st.integers(0, 2**20)))
    return ArrayType.parse(random_layout(rng, shape, axes, kind, pending=False).text(dtype), mesh)


@st.composite
def saved(draw: st.DrawFn) -> tuple[tuple[int, ...], ArrayType, ArrayType]:
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 12]), max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    return shape, draw(types_of(shape, dtype)), draw(types_of(shape, dtype))


def tile(values: Any, t: ArrayType, rank: int) -> Any:
    from redist import spans_of

    spans = spans_of(t, rank)
    assert spans is not None
    index = [np.concatenate([np.arange(*s) for s in (*dim, (0, 0))]) for dim in spans]
    return np.ascontiguousarray(values[np.ix_(*index)]) if index else values.copy()


@settings(max_examples=sample(60, of=2000), deadline=None, derandomize=True)
@given(saved())
def test_what_ranks_save_is_the_array_and_what_they_load(case: Any) -> None:
    shape, source, target = case
    kind = source.dtype.to_numpy()
    n_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    most = 2 if kind.kind == "b" else 256
    bits = np.random.default_rng(n_bytes).integers(0, most, n_bytes, np.uint8)
    values = bits.view(kind).reshape(shape)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "w.safetensors"
        draft = drafted(path, [Given("w", source, ())], {"n": 1}, None, None, None)
        (header,), (entry,) = draft.headers, draft.entries.values()
        sums, counting = new_sums(draft.headers), CountingDisk(header.n_bytes)
        with opened(path) as file, use_disk(counting):
            os.ftruncate(file, header.n_bytes)
            out: Any = OneFile(file)
            for rank in source.mesh.ranks:
                own = Given("w", source, ((rank, tile(values, source, rank)),))
                write_array(out, own, draft.parts["w"], draft.entries, rows_of(draft, sums), 2**26)
            os.pwrite(file, header.bytes(finished(header.entries, sums[0])), 0)
        data = path.read_bytes()
        assert data[entry.begin :] == values.tobytes()
        assert (counting.times[entry.begin :] == 1).all()
        assert [*wrong_blocks(stored(path))] == []
        (wanted,) = load_plan(stored(path), {"w": target}, target.mesh).wanted
        with opened(path) as file:
            for rank in target.mesh.ranks:
                want = tile(values, target, rank)
                got = np.full_like(want, 1)
                for share in shares_of(target, rank):
                    for part in wanted.parts:
                        read_part(file, part, entry, target.dtype, share.spans, got, None)
                assert got.tobytes() == want.tobytes()


class InMemory:
    """An array that is read from, or written unit by unit, each once."""

    def __init__(self, values: Any) -> None:
        self.values, self.times = values, np.zeros(values.shape, int)
        self.read_bytes = self.written_bytes = 0

    def read(self, box: Any, out: Any) -> None:
        np.copyto(out, self.values[tuple(slice(*one) for one in box)])

    def write(self, box: Any, values: Any) -> None:
        where = tuple(slice(*one) for one in box)
        self.values[where] = values
        self.times[where] += 1

    def close(self) -> None:
        pass


class Never:
    """A tree in which no rank fails."""

    def stop_if_failed(self) -> None:
        pass


@st.composite
def rechunked(draw: st.DrawFn) -> tuple[ArrayRequest, str]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    parts, units = (tuple(draw(st.integers(1, n)) for n in shape) for _ in range(2))
    raw, ranks = draw(st.booleans()), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from(["f4", "u1", "c16"]))
    size = np.dtype(dtype).itemsize
    return ArrayRequest(shape, size, None if raw else parts, units, 2**26, ranks), dtype


@settings(max_examples=sample(25, of=1000), deadline=None, derandomize=True)
@given(rechunked(), st.integers(0, 5))
def test_every_way_to_rechunk_writes_every_unit_once(case: Any, which: int) -> None:
    request, dtype = case
    ways = [*every_way(request)]
    plan = ArrayPlan(request, ways[which % len(ways)], ())
    values = np.arange(np.prod(request.shape)).reshape(request.shape).astype(dtype)
    head = ArrayHead("a", "", "npy", request.shape, values.dtype, request.parts)
    source, target = InMemory(values), InMemory(np.zeros_like(values))
    never: Any = Never()
    with tempfile.TemporaryDirectory() as name, Workers(1) as workers:
        scratch, runs = Path(name) / "scratch", []
        scratch.write_bytes(bytes(values.nbytes))
        for rank in range(request.ranks):
            done = Flags(Path(name) / "done", plan.units.n_boxes)
            runs.append(
                ArrayRun(plan, head, rank, source, target, done, workers, never, lambda n: None)
            )
        if plan.way.kind != "scratch":
            for run in runs:
                run.direct()
        else:
            filled = Flags(Path(name) / "filled", plan.blocks.n_boxes)
            for run in runs:
                run.fill_scratch(scratch, filled)
            for run in runs:
                run.write_units(scratch)
            filled.close()
        for run in runs:
            run.units_done.close()
    assert np.array_equal(target.values, values)
    assert (target.times == 1).all()
