"""Strided copies, compiled and by NumPy, against assignments between views."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of, addresses, array_at
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.kernels import MAX_DIMS, kernels
from redist.runtime.copies.strided import canonical
from tests.fakes.views import random_shape, random_view
from tests.problems.strategies import seeded
from tests.tiers import sample

COMPILED = kernels() is not None


def prepared(rng: Random, most_dims: int, streams: bool) -> tuple[CopyList, list[Any], list[Any]]:
    """A few moves between arrays of their own, the arrays, and what must be in their memory."""
    moves: list[BufferCopy] = []
    arrays: list[Any] = []
    memories: list[Any] = []
    for k in range(rng.randint(1, 4)):
        shape, itemsize = random_shape(rng, most_dims), rng.randint(1, 33)
        memory, to = random_view(rng, shape, itemsize)
        _, of = random_view(rng, shape, itemsize, repeats=True)
        form = canonical(shape, itemsize, to.strides, of.strides)
        moves.append(BufferCopy(2 * k, 0, 2 * k + 1, 0, form))
        arrays += [to, of]
        memories.append((memory, to, of))
    return CopyList.of(moves, streams), arrays, memories


def after_assignment(memories: list[Any]) -> list[bytes]:
    """The memory of every destination as NumPy's assignment leaves it; it is put back as it was."""
    out = []
    for memory, to, of in memories:
        before = memory.copy()
        to[...] = of
        out.append(memory.tobytes())
        memory[...] = before
    return out


@pytest.mark.skipif(not COMPILED, reason="needs a C compiler")
@given(seeded(lambda rng: rng), st.booleans())
@settings(max_examples=sample(38, of=300), deadline=None)
def test_compiled_copies(rng: Random, streams: bool) -> None:
    moves, arrays, memories = prepared(rng, 5, streams)
    want = after_assignment(memories)
    moves.run(addresses(arrays))
    assert [memory.tobytes() for memory, _, _ in memories] == want


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(38, of=300), deadline=None)
def test_copies_by_numpy(rng: Random) -> None:
    moves, arrays, memories = prepared(rng, 5, False)
    want = after_assignment(memories)
    moves._run_with_numpy(addresses(arrays))
    assert [memory.tobytes() for memory, _, _ in memories] == want


@pytest.mark.skipif(not COMPILED, reason="needs a C compiler")
@given(seeded(lambda rng: rng))
@settings(max_examples=sample(13, of=100), deadline=None)
def test_reading_a_process_is_copying(rng: Random) -> None:
    moves, arrays, memories = prepared(rng, 4, False)
    want = after_assignment(memories)
    try:
        moves.read(os.getpid(), addresses(arrays))
    except TransferError:
        pytest.skip("the kernel does not let processes read each other")
    assert [memory.tobytes() for memory, _, _ in memories] == want


@pytest.mark.parametrize("n_dims", [MAX_DIMS, MAX_DIMS + 1, MAX_DIMS + 3])
def test_more_dims_than_the_kernel_knows(n_dims: int) -> None:
    wide = np.zeros((4,) * n_dims, "u1")[(slice(None, None, 3),) * n_dims]
    values = np.arange(2**n_dims, dtype="u2").astype("u1").reshape((2,) * n_dims)
    form = canonical(wide.shape, 1, wide.strides, values.strides)
    moves = CopyList.of([BufferCopy(0, 0, 1, 0, form)])
    assert len(moves) == 2 ** max(0, len(form.dims) - MAX_DIMS)
    assert sum(move.form.n_bytes for move in moves.moves()) == values.nbytes
    for run in (moves.run, moves._run_with_numpy):
        wide[...] = 0
        run(addresses([wide, values]))
        assert (wide == values).all()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 127, 128, 129, 1000, 100_003])
@pytest.mark.parametrize("shift", [0, 1, 15])
@pytest.mark.parametrize("streams", [False, True])
def test_blocks_of_any_length_and_alignment(n: int, shift: int, streams: bool) -> None:
    source = np.random.default_rng(0).integers(0, 256, n + 1, dtype=np.uint8)[1:]
    memory = np.full(n + 64, 7, np.uint8)
    to = memory[shift : shift + n]
    moves = CopyList.of([BufferCopy(0, 0, 1, 0, canonical((n,), 1, (1,), (1,)))], streams)
    moves.run(addresses([to, source]))
    assert (to == source).all()
    assert (memory[:shift] == 7).all() and (memory[shift + n :] == 7).all()


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shape", [(1, 5), (16, 16), (33, 70), (257, 40), (300, 3)])
@pytest.mark.parametrize("layers", [1, 3])
def test_single_elements_are_turned(itemsize: int, shape: tuple[int, int], layers: int) -> None:
    """A matrix, or a few of them, is copied to Fortran order and back; nothing else is written."""
    rng = np.random.default_rng(1)
    full = (layers, *shape, itemsize)
    source = rng.integers(0, 256, full, dtype=np.uint8).view(f"V{itemsize}")[..., 0]
    memory = np.frombuffer(b"\7" * (source.nbytes + 2 * itemsize), f"V{itemsize}").copy()
    turned = memory[1:-1].reshape(layers, *shape[::-1]).transpose(0, 2, 1)
    form = canonical(source.shape, itemsize, turned.strides, source.strides)
    CopyList.of([BufferCopy(0, 0, 1, 0, form)]).run(addresses([turned, source]))
    assert turned.tobytes() == source.tobytes()
    assert memory[0].tobytes() == memory[-1].tobytes() == b"\7" * itemsize
    back = np.zeros_like(source)
    form = canonical(source.shape, itemsize, back.strides, turned.strides)
    CopyList.of([BufferCopy(0, 0, 1, 0, form)]).run(addresses([back, turned]))
    assert back.tobytes() == source.tobytes()


def test_no_moves_is_nothing_to_do() -> None:
    nothing = CopyList.of([])
    assert len(nothing) == 0
    nothing.run(addresses([]))


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(25, of=200), deadline=None)
def test_array_at_an_address_is_the_array(rng: Random) -> None:
    _, view = random_view(rng, random_shape(rng), rng.randint(1, 33))
    again = array_at(address_of(view), view.shape, view.strides, view.dtype)
    assert again.tobytes() == view.tobytes()
    assert address_of(view) == view.__array_interface__["data"][0]


@pytest.mark.skipif(not COMPILED, reason="needs a C compiler")
@given(seeded(lambda rng: rng), st.booleans(), st.booleans())
@settings(max_examples=sample(25, of=200), deadline=None)
def test_boxes_that_interleave(rng: Random, gathers: bool, streams: bool) -> None:
    """An array cut along some dims into tiles of their own, tile by tile or into tiles: all meets."""
    shape = [rng.choice((1, 3, 8, 40)) for _ in range(rng.randint(1, 4))]
    cuts = [rng.randint(1, min(n, 4)) for n in shape]
    itemsize = rng.choice((1, 4, 8, 24))
    whole = np.frombuffer(rng.randbytes(int(np.prod(shape)) * itemsize), f"V{itemsize}")
    whole = whole.reshape(shape).copy()
    tiles, moves = [], []
    for place in np.ndindex(*cuts):
        edges = [(i * n // k, (i + 1) * n // k) for n, k, i in zip(shape, cuts, place, strict=True)]
        part = whole[tuple(slice(a, b) for a, b in edges)]
        tile = part.copy() if gathers else np.zeros_like(part)
        ends = (part, tile) if gathers else (tile, part)
        offset = address_of(part) - address_of(whole)
        form = canonical(part.shape, itemsize, ends[0].strides, ends[1].strides)
        tiles.append((tile, part.copy()))
        number = len(tiles)
        moves.append(
            BufferCopy(0, offset, number, 0, form)
            if gathers
            else BufferCopy(number, 0, 0, offset, form)
        )
    want = whole.copy()
    if gathers:
        whole[...] = np.zeros_like(whole)
    rng.shuffle(moves)
    if rng.random() < 0.5:
        moves.sort(key=lambda move: (move.dst, move.dst_offset))
    CopyList.of(moves, streams).run(addresses([whole, *(tile for tile, _ in tiles)]))
    assert whole.tobytes() == want.tobytes()
    assert all(tile.tobytes() == part.tobytes() for tile, part in tiles)
