"""A CuPy that is NumPy, for benchmarks on a GPU: arrays have addresses, streams put nothing off."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fakes import pretended_cupy as pretend


class EagerArray(np.ndarray[Any, Any]):
    """An array of NumPy with the address that CuPy's have."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Where it lies."""
        return SimpleNamespace(ptr=self.ctypes.data)


def install() -> None:
    """Be CuPy in this process."""
    pretend.install("one", quick=True)
    top: Any = sys.modules["cupy"]
    for name in ("matmul", "clip", "transpose", "mean", "sqrt", "exp", "amax", "sum"):
        setattr(top, name, getattr(np, name))
    more = {
        "ndarray": EagerArray,
        "empty": lambda shape, dtype: np.empty(shape, dtype).view(EagerArray),
        "zeros": lambda shape: np.zeros(shape).view(EagerArray),
        "asarray": lambda values: np.array(values).view(EagerArray),
        "asnumpy": lambda values: np.array(values),
    }
    for name, thing in more.items():
        setattr(top, name, thing)
    runtime = top.cuda.runtime
    known = runtime.getDeviceProperties
    runtime.getDeviceCount = lambda: 1
    runtime.getDeviceProperties = lambda device: {**known(device), "name": b"a pretended GPU"}
    top.__version__ = "0"
