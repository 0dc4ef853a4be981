"""How another library runs the programs of ``python -m bench rivals``: an adapter for each fills this in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.layouts.workload import arrays_in
from bench.report.figures import timed

Results = list[Any]
Call = Callable[[], Results]


class Programs:
    """Arrays and functions of a library on so many devices, ranks or workers."""

    library: str
    """Its name and version."""
    xp: Any
    """Its functions, under NumPy's names."""

    def place(self, array: Any, cut: int | None) -> Any:
        """An array of the library, cut along a dim over all devices, or whole on each."""
        raise NotImplementedError

    def values(self, results: Results) -> Results:
        """Results as arrays of NumPy. **Collective.**"""
        raise NotImplementedError

    def ready(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Call:
        """A call whose results are there when it returns; it may be compiled before."""
        return lambda: arrays_in(function(*arrays))

    def counted(self, call: Call) -> tuple[Results, int | None, int | None]:
        """Results of a call, with the bytes that all received and in how many transfers. **Collective.**"""
        return call(), None, None

    def seconds_of(self, call: Call) -> float:
        """Seconds of a call until all are done, after all have met. **Collective.**"""
        return timed(call)[0]

    def close(self) -> None:
        """Give everything back. **Collective.**"""


class NumPyNames:
    """A module under the names that workloads use; subclasses say what is called otherwise."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """The same values as another dtype."""
        return x.astype(dtype)
