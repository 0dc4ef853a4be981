"""What computing costs: all classes are tried, and what an array library has not is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from redist.measure import computing
from redist.measure.computing import ComputingSizes, list_trials, measure_computing
from redist.plan.rates import KINDS
from redist.runtime.cuda import arrays

SMALL = ComputingSizes(("f32",), 8, 4, 64)


def test_every_class_and_dtype_is_tried() -> None:
    done: list[str] = []
    trials = list(list_trials(SMALL, np.asarray, lambda: done.append("done")))
    found = {(trial.kind, trial.dtype) for trial in trials}
    assert found >= {
        (kind, dtype) for kind in KINDS for dtype in ("f32", "f64", "f16", "i32", "i64")
    }
    assert ("memory", "") in found
    assert {trial.n for trial in trials if trial.kind == "map"} == {64}
    before = len(done)
    trials[0].work(3)
    assert len(done) == before + 1


def test_what_does_not_work_everywhere_is_left_out() -> None:
    def bring(array: Any) -> Any:
        return array.astype("U8") if array.dtype == np.float16 else array

    trials = list(list_trials(SMALL, bring, lambda: None))
    assert ("product", "f16") not in {(trial.kind, trial.dtype) for trial in trials}
    none = list(list_trials(SMALL, np.asarray, lambda: None, lambda good: False))
    assert [trial.kind for trial in none] == ["memory"]


def test_costs_are_measured_on_the_host_and_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is a stand-in whose arrays are NumPy's."""
    waits: list[int] = []
    stream = SimpleNamespace(synchronize=lambda: waits.append(1))
    monkeypatch.setattr(computing, "REPEATS", 1)
    monkeypatch.setattr(computing, "ON_GPU", SMALL)
    monkeypatch.setattr(arrays, "gpu_count", lambda: 1)
    monkeypatch.setattr(arrays, "to_device", np.asarray)
    monkeypatch.setattr(arrays, "current_stream", lambda: stream)
    heard: list[tuple[int, int]] = []
    costs = measure_computing(MPI.COMM_SELF, lambda *at: heard.append(at))
    assert list(costs) == ["cpu", "gpu"] and waits
    assert heard[-1][0] == heard[-1][1] > 40
    for device in costs.values():
        assert device.byte_fs > 0 and device.of("product", "f64") != device.elem_fs > 0


def test_without_a_gpu_there_are_no_costs_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        raise RuntimeError("the driver is too old")

    monkeypatch.setattr(arrays, "gpu_count", broken)
    monkeypatch.setattr(computing, "REPEATS", 1)
    monkeypatch.setattr(computing, "DTYPES", {"f32": "float32"})
    assert list(measure_computing(MPI.COMM_SELF)) == ["cpu"]
