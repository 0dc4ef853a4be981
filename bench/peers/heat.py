"""Heat: arrays split along one dim over all ranks, and ``resplit``."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from bench.problems.installed import version, why_absent
from redist.layout.array_type import ArrayType
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.values import ValueBox, source_values


class HeatResplit(Contender):
    """``heat.resplit(a, dim)``; the result is a new array every time."""

    label = "Heat resplit"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        import heat
        import torch

        super().__init__(case, comm, ends)
        torch.set_num_threads(1)
        self.label = f"Heat {version('heat')} resplit"
        # It cuts uneven dims in its own way: larger tiles first.
        self.source_box = _box(heat.get_comm(), case.source)
        self.target_box = _box(heat.get_comm(), case.target)
        tile = torch.from_numpy(source_values(case.source, self.source_box, 0))
        self._array: Any = heat.array(tile, is_split=_dim(case.source))
        self._resplit: Any = heat.resplit
        self._to = _dim(case.target)
        self._result: Any = None

    @classmethod
    def absent(cls) -> str | None:
        """It may not be installed."""
        return why_absent("heat", "torch")

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """One dim cut over all ranks, or none."""
        source, target = case.source, case.target
        if case.is_beyond is not None:
            return case.is_beyond
        for t in (source, target):
            if max(t.cuts, default=1) not in (1, t.mesh.n_devices) or any(
                len(dim) > 1 for dim in t.dims
            ):
                return "it cuts one dim, over all ranks"
        return None

    def run(self) -> None:
        """One call. **Collective over all ranks.**"""
        self.output = self._result = None
        self._result = self._resplit(self._array, self._to)
        self.output = self._result.larray.numpy()

    def close(self) -> None:
        """Let the arrays go. **Local.**"""
        super().close()
        self._array = self._result = None


def _dim(t: ArrayType) -> int | None:
    """The dim that is cut."""
    return next((i for i, dim in enumerate(t.dims) if dim), None)


def _box(comm: Any, t: ArrayType) -> ValueBox:
    _, _, slices = comm.chunk(t.shape, _dim(t))
    return ValueBox(tuple(s.start for s in slices), tuple(s.stop for s in slices))
