"""Blocks copied and cast: cut into batches, on the host and where a GPU's memory is pretended."""

from __future__ import annotations

import sys
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.layout.casts import cast
from redist.layout.dtype import DType
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.cuda.kernels.rounds import CudaCopyList
from redist.runtime.refit import copies
from redist.runtime.refit.copies import BLOCKS, FIRST, Copies
from tests.fakes import numpy_cupy
from tests.tiers import sample

NAMES = ("f32", "bf16", "f16", "f64", "i32")
DTYPES = [DType.parse(name) for name in NAMES]


def random_blocks(rng: Random) -> tuple[Any, list[Any], list[Any]]:
    """Blocks, each between two buffers of its own; what the buffers hold, and what they shall hold."""
    rows, have, want = [], list[Any](), list[Any]()
    for _ in range(rng.randrange(1, 4)):
        source, target = rng.randrange(len(DTYPES)), rng.randrange(len(DTYPES))
        if rng.random() < 0.3:
            target = source
        sizes = DTYPES[source].itemsize, DTYPES[target].itemsize
        elems, count = rng.randrange(1, 30), rng.randrange(1, 8)
        gaps = [rng.choice([0, 0, rng.randrange(5)]) for _ in range(4)]
        numbers = np.arange(gaps[0] + count * (elems + gaps[1])) * 0.37 - 3
        given = cast(numbers, DType.parse("f64"), DTYPES[source])
        out = np.zeros(gaps[2] + count * (elems + gaps[3]), DTYPES[target].to_numpy())
        done = out.copy()
        for i in range(count):
            at, to = gaps[0] + i * (elems + gaps[1]), gaps[2] + i * (elems + gaps[3])
            done[to : to + elems] = cast(given[at : at + elems], DTYPES[source], DTYPES[target])
        base = FIRST + len(have)
        steps = (elems + gaps[1]) * sizes[0], (elems + gaps[3]) * sizes[1]
        rows.append(
            (base + 1, gaps[2] * sizes[1], steps[1], target, base, gaps[0] * sizes[0], steps[0], source,
             elems, count)
        )  # fmt: skip
        have += [given, out]
        want += [given, done]
    return np.array(rows, BLOCKS), have, want


def run(made: Copies, have: list[Any], address: Any = address_of) -> None:
    made.run(np.array([0] * FIRST + [address(one) for one in have], np.uintp))


@pytest.mark.parametrize("most", [1, 7, 64, 2**17])
def test_random_blocks(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "CAST_ELEMS", most)
    for seed in range(sample(20, of=500)):
        blocks, have, want = random_blocks(Random(seed))
        made = Copies.of(blocks, DTYPES)
        assert all(one.n_elems <= most for one in made.casts)
        run(made, have)
        assert all(np.array_equal(a, b) for a, b in zip(have, want, strict=True)), seed


def test_a_gpu_casts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NumPy in the place of CuPy, and the host's copies in the place of kernels."""

    def copy(self: CudaCopyList, bases: Any, stream: int = 0) -> None:
        CopyList.of(self.moves).run(bases)

    cupy: Any = ModuleType("cupy")
    cupy.ndarray = numpy_cupy.ndarray
    cupy.asarray = lambda values: numpy_cupy.ndarray(np.array(values))
    cupy.empty = lambda shape, dtype: numpy_cupy.ndarray(np.empty(shape, dtype))
    cupy.cuda = SimpleNamespace(get_current_stream=numpy_cupy.Stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(CudaCopyList, "run", copy)
    monkeypatch.setattr(copies, "CAST_ELEMS_ON_GPU", 40)
    for seed in range(20):
        blocks, have, want = random_blocks(Random(seed))
        there = [cupy.asarray(one) for one in have]
        run(Copies.of(blocks, DTYPES, on_gpu=True), there, lambda one: one.data.ptr)
        assert all(np.array_equal(a.values, b) for a, b in zip(there, want, strict=True)), seed


def test_nothing_is_nothing() -> None:
    assert Copies.of(np.zeros(0, BLOCKS), []).is_empty
    none = np.zeros(3, BLOCKS)
    assert Copies.of(none, DTYPES).is_empty


def test_bf16_keeps_nan_and_rounds_to_even() -> None:
    bits = np.array(
        [0x7F800001, 0xFFFFFFFF, 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x80000000], np.uint32
    )
    made = cast(bits.view(np.float32), DType.parse("f32"), DType.parse("bf16"))
    assert made.tolist() == [0x7FC0, 0xFFFF, 0x3F80, 0x3F82, 0x7F80, 0x8000]
