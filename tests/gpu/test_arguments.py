"""Arrays of repeated calls on a GPU, without one: those that look as before are not checked again."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redist
from redist.errors import RequestError
from redist.plan.rates import FLAT
from redist.runtime.cuda import arguments as gpu_arguments
from redist.runtime.cuda.arguments import GpuArguments
from redist.runtime.schedule.stages import TransferStages


class Tile:
    """As much of an array of CuPy as checks ask for."""

    def __init__(self, address: int, shape: tuple[int, ...] = (2, 4), dtype: str = "f4") -> None:
        self.data = SimpleNamespace(ptr=address)
        self.shape, self.dtype, self.size = shape, np.dtype(dtype), int(np.prod(shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.strides = (self.dtype.itemsize * shape[1], self.dtype.itemsize)
        self.device, self.flags = SimpleNamespace(id=0), SimpleNamespace(c_contiguous=True)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every array whose place is checked."""
    found: list[int] = []
    gpu = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))
    fake: Any = SimpleNamespace(ndarray=Tile, cuda=gpu, may_share_memory=lambda a, b: False)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    check = gpu_arguments.check_place

    def counted(array: Any, what: str, writes: bool) -> None:
        found.append(1)
        check(array, what, writes)

    monkeypatch.setattr(gpu_arguments, "check_place", counted)
    return found


def arguments_of(donate: bool = False) -> GpuArguments:
    """Of rank 0 in a transfer of rows to columns by two."""
    mesh = redist.Mesh(x=2)
    plan = redist.synthesize("f32[4{x}, 4]", "f32[4, 4{x}]", mesh=mesh, donate=donate)
    schedule = TransferStages.of((plan,), 0, FLAT)
    return GpuArguments(schedule, ("",), False)


def call(arguments: GpuArguments, source: Tile, target: Tile) -> RequestError | None:
    """The error of a call, if there is one."""
    *_, error = arguments.check_call(source, target)
    assert error is None or isinstance(error, RequestError)
    return error


SOURCE, TARGET = Tile(64), Tile(1024, (4, 2))


def test_arrays_that_look_as_before_are_not_checked_again(checked: list[int]) -> None:
    arguments = arguments_of()
    assert call(arguments, SOURCE, TARGET) is None
    n = len(checked)
    assert call(arguments, Tile(64), Tile(1024, (4, 2))) is None
    assert len(checked) == n > 0


@pytest.mark.parametrize("other", [Tile(64, (2, 5)), Tile(64, (2, 4), "f8")])
def test_another_array_at_the_same_place_is_refused(checked: list[int], other: Tile) -> None:
    arguments = arguments_of()
    assert call(arguments, SOURCE, TARGET) is None
    assert call(arguments, other, TARGET) is not None


def test_a_refused_array_is_refused_again(checked: list[int]) -> None:
    arguments = arguments_of()
    errors = [call(arguments, Tile(64, (3, 4)), TARGET) for _ in range(2)]
    assert all(error is not None for error in errors)


def test_memory_takes_the_place_of_no_array_of_a_gpu(checked: list[int]) -> None:
    arguments = arguments_of()
    assert call(arguments, SOURCE, TARGET) is None
    plain: Any = np.zeros((2, 4), np.float32)
    error = call(arguments, plain, TARGET)
    assert error is not None and "is in memory" in str(error)


def test_donated_arrays_are_checked_in_every_call(checked: list[int]) -> None:
    arguments = arguments_of(donate=True)
    for k in (1, 2):
        assert call(arguments, SOURCE, TARGET) is None
        assert len(checked) == 2 * k
