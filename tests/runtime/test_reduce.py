"""Reductions in place, compiled or not, against those that make new arrays: the same bits."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from redist.layout.array_type import OPS
from redist.layout.dtype import DType
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.reduce import combine, combine_into
from redist.runtime.copies.strided import canonical
from redist.runtime.schedule.compiler import Combine
from tests.problems.strategies import seeded
from tests.programs.mpi.ways import LAYOUTS, Dressed
from tests.tiers import sample

DTYPES = (
    *("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    *("f16", "f32", "f64", "c64", "c128", "bf16", "f8e5m2"),
)
SHAPES = [(), (1,), (7,), (64,), (1001,), (3, 5), (2, 3, 4), (5, 0)]


def random_pair(rng: Random) -> tuple[str, DType, Any, Any]:
    name = rng.choice(DTYPES)
    op = rng.choice(OPS if name[0] != "c" else ("sum", "prod"))
    dtype, shape = DType.parse(name), rng.choice(SHAPES)
    source = np.random.default_rng(rng.randrange(2**32))
    real = dtype.to_numpy()
    if dtype.extended_name is not None:
        pytest.importorskip("ml_dtypes", reason="reducing bf16 and f8 needs ml_dtypes")
        import ml_dtypes

        real = np.dtype(getattr(ml_dtypes, dtype.extended_name))

    def values() -> Any:
        if real.kind in "fcV":
            numbers: Any = source.normal(size=shape) * 10.0 ** source.integers(-3, 3, shape)
            if real.kind == "c":
                numbers = numbers + 1j * source.normal(size=shape)
            return np.asarray(numbers).astype(real).view(dtype.to_numpy())
        raw = source.integers(0, 2 if real.kind == "b" else 256, (*shape, real.itemsize))
        return np.ascontiguousarray(raw.astype(np.uint8)).view(real).reshape(shape)

    return op, dtype, values(), values()


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(50, of=400), deadline=None)
def test_in_place_and_by_program_give_the_same_bits(rng: Random) -> None:
    op, dtype, a, b = random_pair(rng)
    with np.errstate(all="ignore"):
        want = combine(op, dtype, a, b).tobytes()
        one = a.copy()
        combine_into(op, dtype, one, b)
        assert one.tobytes() == want
        to, of = (Dressed(x, rng.choice(LAYOUTS)) for x in (a, b))
        to.fill(a)
        of.fill(b)
        form = canonical(a.shape, a.itemsize, to.array.strides, of.array.strides)
        Combine(op, dtype, CopyList.of([BufferCopy(0, 0, 1, 0, form)])).run(
            addresses([to.array, of.array])
        )
    assert np.ascontiguousarray(to.array).tobytes() == want
    assert to.is_untouched_around()


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_complex_numbers_round_alike_however_they_are_cut(dtype: str, op: str) -> None:
    kind, rng = DType.parse(dtype), np.random.default_rng(3)
    a, b = (
        (rng.normal(size=40_001) + 1j * rng.normal(size=40_001)).astype(kind.to_numpy())
        for _ in range(2)
    )
    whole = combine(op, kind, a, b)
    for step in (1, 3, 1000):
        parts = [combine(op, kind, a[k : k + step], b[k : k + step]) for k in range(0, 2000, step)]
        joined = np.concatenate(parts)
        assert joined.tobytes() == whole[: len(joined)].tobytes()
    combine_into(op, kind, a, b)
    assert a.tobytes() == whole.tobytes()
