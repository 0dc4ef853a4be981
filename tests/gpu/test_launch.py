"""Launches without a GPU: nobody waits for the stream, tables come before the kernel that reads them."""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided
from redist.runtime.cuda.kernels import launch as cuda_launch
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.launch import INLINE_BASES, Launch, join_tables, remembered
from redist.runtime.cuda.kernels.tables import tables_of
from tests.fakes import pretended_cupy as pretend


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Bytes of tables and of bases, as kernels find them when their turn comes."""
    found: list[bytes] = []

    def start(function: Any, *rest: Any) -> int:
        *_, stream, params, _ = rest
        rows, many = (ctypes.c_uint64.from_address(params[k]).value for k in (0, 6))

        def kernel() -> None:
            found.append(ctypes.string_at(rows, 16))
            if many:
                found.append(ctypes.string_at(many, 8 * (INLINE_BASES + 1)))

        pretend.STREAMS[stream.value].add(kernel)
        return 0

    cuda = SimpleNamespace(get_current_stream=lambda: pretend.CURRENT[0])
    cupy: Any = SimpleNamespace(asarray=pretend.asarray, cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda_launch, "driver", lambda: SimpleNamespace(cuLaunchKernel=start))
    kernel = SimpleNamespace(function=1, n_resident=1)
    monkeypatch.setattr(cuda_launch, "kernel_for", lambda *args: kernel)
    return found


@pytest.mark.parametrize("n_bases", [2, INLINE_BASES + 1])
def test_a_launch_does_not_wait_for_a_stream_that_waits_for_messages(
    n_bases: int, read: list[bytes]
) -> None:
    arrived: list[bool] = []

    def message() -> None:
        assert arrived, "somebody waits for a message that may never come"

    tables = tables_of([BufferCopy(0, 0, 1, 0, Strided(8, ((3, 8, 24),)))], [0, 0], Tuning())
    bases = np.arange(n_bases, dtype=np.uintp) * np.uintp(32)
    with pretend.Stream(non_blocking=True) as stream:
        stream.add(message)
        Launch(tables, Tuning()).bind(bases, stream.ptr)()
        assert not read
        arrived.append(True)
        stream.synchronize()
    whole, starts = join_tables([tables.rows])
    assert starts == [0]
    assert read == [whole[:16].tobytes(), bases.tobytes()][: 1 + (n_bases > INLINE_BASES)]


def test_every_device_has_launches_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cupy: Any = SimpleNamespace(cuda=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    launches: dict[Any, int] = {}
    bases = np.zeros(2, np.uintp)
    made = []
    for device in (0, 1, 0, 1):
        cupy.cuda.runtime = SimpleNamespace(getDevice=partial(int, device))
        made.append(remembered(launches, bases, 0, partial(int, device)))
    assert made == [0, 1, 0, 1]
