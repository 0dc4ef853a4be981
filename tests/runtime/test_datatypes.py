"""Datatypes of MPI: packed and unpacked as MPI does it, on the host and on a pretended GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import redist
from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.runtime.copies.strided import Strided
from redist.runtime.datatypes.across import PACKS, Load, choose_way, time_fs
from redist.runtime.datatypes.strided_type import StridedType
from redist.runtime.datatypes.type_copies import copies_of
from tests.fakes import pretended_cupy as pretend
from tests.problems.datatypes import Drawn, ways_agree
from tests.tiers import sample


def test_random_datatypes_are_packed_as_mpi_does() -> None:
    for seed in range(sample(150, of=1000)):
        drawn = Drawn(seed)
        assert all(drawn.agree(np.array, np.asarray)), seed
        drawn.free()


@pytest.fixture
def gpu() -> Iterator[Any]:
    """A pretended GPU, whose streams put work off."""
    with pretend.gone_afterwards():
        pretend.install("gpu")
        import cupy

        yield cupy


def test_random_datatypes_on_a_gpu(gpu: Any) -> None:
    for seed in range(sample(40, of=1000)):
        drawn = Drawn(seed)
        assert all(drawn.agree(gpu.asarray, gpu.asnumpy)), seed
        drawn.free()


def pinned(gpu: Any, n_bytes: int) -> Any:
    """An array in pinned memory, which stays."""
    memory = gpu.cuda.PinnedMemory(n_bytes)
    pretend.KEPT.append(memory)
    return memory.bytes[:n_bytes]


def test_every_way_between_gpu_and_host(gpu: Any) -> None:
    for seed in range(sample(15, of=200)):
        drawn = Drawn(seed)
        for empty in (partial(np.empty, dtype=np.uint8), partial(pinned, gpu)):
            assert all(ways_agree(drawn, gpu, empty)), seed
        drawn.free()


# How little is kept of a datatype


def made_of(datatype: MPI.Datatype) -> list[Strided]:
    return [block.form for block in StridedType.of(datatype).blocks]


def test_a_vector_of_vectors_is_one_block() -> None:
    rows = MPI.FLOAT.Create_vector(5, 2, 10).Create_hvector(4, 1, 400).Create_hvector(3, 1, 4000)
    assert made_of(rows) == [Strided(8, ((3, 160, 4000), (4, 40, 400), (5, 8, 40)))]


def test_a_box_of_an_array_is_one_block_however_it_is_said() -> None:
    box = MPI.DOUBLE.Create_subarray([6, 7, 8], [2, 3, 4], [1, 1, 1])
    rows = [8 * (8 * (7 * i + j) + 1) for i in (1, 2) for j in (1, 2, 3)]
    listed = MPI.DOUBLE.Create_hindexed_block(4, rows)
    want = [Strided(32, ((2, 96, 448), (3, 32, 64)))]
    assert made_of(box) == want == made_of(listed)


def test_what_lies_side_by_side_is_one_run() -> None:
    pair = MPI.Datatype.Create_struct([1, 2], [0, 4], [MPI.INT, MPI.INT])
    assert made_of(pair) == [Strided(12, ())]
    assert made_of(pair.Create_contiguous(5)) == [Strided(60, ())]
    assert made_of(MPI.BYTE.Create_indexed([3, 2, 4], [5, 8, 10])) == [Strided(9, ())]


def test_the_order_of_the_type_map_is_kept() -> None:
    backwards = MPI.INT.Create_indexed([1, 1, 1], [4, 2, 0]).Commit()
    got = redist.pack(np.arange(6, dtype="i4"), backwards).view("i4")
    assert got.tolist() == [4, 2, 0]


# What is kept, and for how long


def test_a_datatype_is_read_once_and_forgotten_when_it_is_freed() -> None:
    first = MPI.INT.Create_vector(2, 1, 3).Commit()
    assert copies_of(first, 2) is copies_of(first, 2)
    other = first.Dup()
    assert copies_of(other, 2) is not copies_of(first, 2)
    other.Free()
    values = np.arange(40, dtype="i4")
    first.Free()
    for step in range(2, 9):  # numbers of freed datatypes come again
        again = MPI.INT.Create_vector(2, 1, step).Commit()
        assert redist.pack(values, again).view("i4").tolist() == [0, step]
        again.Free()


def test_a_datatype_may_be_freed_while_others_are_made_of_it() -> None:
    inner = MPI.INT.Create_vector(2, 1, 3)
    outer = inner.Create_contiguous(2).Commit()
    inner.Free()
    for _ in range(3):  # nothing of MPI's is freed twice
        assert redist.pack(np.arange(8, dtype="i4"), outer).view("i4").tolist() == [0, 3, 4, 7]
    outer.Free()


# What is refused


COLUMN = (3, 1, 4)
"""Of a 3 x 4 matrix of doubles."""


PACK: Any = redist.pack
UNPACK: Any = redist.unpack


def refusals() -> dict[str, tuple[Callable[[Any], object], type[Exception], str]]:
    """Calls with a column of a matrix that are errors."""
    values, out = np.zeros((3, 4)), np.zeros(3)
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    lower = MPI.INT.Create_hindexed([1], [-4]).Commit()
    plain = MPI.DOUBLE.Create_vector(2, 1, 2)
    return {
        "small buffer": (
            lambda t: PACK(values[:2], t),
            RequestError,
            "it reaches byte 72, and the buffer has 64",
        ),
        "more than one": (
            lambda t: PACK(values, t, 2),
            RequestError,
            "2 of a datatype of 24 bytes: it reaches byte 1",
        ),
        "small out": (
            lambda t: PACK(values, t, out=out[:2]),
            RequestError,
            "24 are packed, out has 16",
        ),
        "few packed": (
            lambda t: UNPACK(out[:2], t, values),
            RequestError,
            "24 are packed, packed bytes has 16",
        ),
        "read-only out": (
            lambda t: PACK(values, t, out=fixed),
            RequestError,
            "out is read-only",
        ),
        "read-only bytes": (lambda t: UNPACK(out, t, bytes(96)), RequestError, "out is read-only"),
        "gaps": (
            lambda t: PACK(values[:, ::2], t),
            RequestError,
            "has gaps; give the whole memory",
        ),
        "before the buffer": (
            lambda t: PACK(values, lower),
            RequestError,
            "begins 4 bytes before the buffer; say by offset=",
        ),
        "not committed": (
            lambda t: PACK(values, plain),
            ArgumentError,
            "a datatype of 16 bytes: it is not committed",
        ),
        "no datatype": (lambda t: PACK(values, "f8"), ArgumentTypeError, "by str: need a datatype"),
        "freed": (lambda t: PACK(values, MPI.DATATYPE_NULL), ArgumentError, "DATATYPE_NULL"),
        "overlapping": (
            lambda t: PACK(values, t, out=values[1]),
            ArgumentError,
            "out lies in the buffer",
        ),
        "overlapping back": (
            lambda t: UNPACK(values[1], t, values),
            ArgumentError,
            "the packed bytes lie in out",
        ),
        "no memory": (lambda t: PACK(3.5, t), ArgumentTypeError, "cannot use float as the buffer"),
        "objects": (
            lambda t: PACK(np.zeros(9, object), t),
            ArgumentTypeError,
            "objects of Python, not bytes",
        ),
        "negative count": (
            lambda t: PACK(values, t, -1),
            ArgumentError,
            "count=-1: need an int >= 0",
        ),
        "odd count": (lambda t: PACK(values, t, 1.0), ArgumentTypeError, "count=1.0: need an int"),
        "unknown way": (
            lambda t: PACK(values, t, way="warp"),
            ArgumentError,
            "way='warp': known here are 'device'",
        ),
        "way back": (
            lambda t: UNPACK(out, t, values, way="staged"),
            ArgumentError,
            "'device', 'one-shot', and",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_is_refused(name: str) -> None:
    call, kind, said = refusals()[name]
    column = MPI.DOUBLE.Create_vector(*COLUMN).Commit()
    with pytest.raises(kind) as problem:
        call(column)
    assert said in str(problem.value)
    column.Free()


def test_memory_of_the_host_and_of_a_gpu_that_do_not_go_together(gpu: Any) -> None:
    column = MPI.DOUBLE.Create_vector(*COLUMN).Commit()
    there, here = gpu.asarray(np.zeros((3, 4))), np.zeros((3, 4))
    packed = gpu.asarray(np.zeros(3))
    with pytest.raises(RequestError, match="the buffer is on the host and out on a GPU"):
        redist.pack(here, column, out=packed)
    with pytest.raises(RequestError, match="the packed bytes are on a GPU and out on the host"):
        redist.unpack(packed, column, here)
    with pytest.raises(RequestError, match="it reaches byte 72, and the buffer has 64"):
        redist.pack(gpu.asarray(np.zeros((2, 4))), column)
    assert np.array_equal(redist.pack(there, column, out=np.ones(3)), np.zeros(3))


def test_bytes_that_are_there_already_are_taken() -> None:
    column = MPI.INT.Create_vector(2, 1, 2).Commit()
    packed = bytearray(8)
    assert redist.pack(np.arange(4, dtype="i4"), column, out=packed) is packed
    back = redist.unpack(bytes(packed), column, np.zeros(4, "i4"))
    assert back.tolist() == [0, 0, 2, 0]
    whole = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert redist.pack(whole, MPI.DOUBLE, 6).view("f8").tolist() == [0, 3, 1, 4, 2, 5]
    assert redist.pack(np.zeros(0), MPI.DOUBLE, 0).size == 0


def test_the_model_takes_each_way_where_it_is_quickest() -> None:
    assert choose_way(Load(2**10, 2**12, True), None) == "staged"
    assert choose_way(Load(2**18, 2**22, True), None) == "one-shot"
    assert choose_way(Load(2**28, 2**34, True), None) == "device"
    assert choose_way(Load(2**26, 2**26 + 64, False), None, PACKS) in PACKS
    for load in (
        Load(2**k, 2 ** (k + j), p) for k in (8, 20, 30) for j in (0, 4) for p in (True, False)
    ):
        best = choose_way(load, None)
        assert time_fs(best, load) == min(time_fs(way, load) for way in PACKS)
