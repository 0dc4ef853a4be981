"""Heat: arrays split along one dim over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from mpi4py import MPI

from bench.peers.programs import Call, NumPyNames, Programs, Results
from bench.problems.installed import version, why_absent
from bench.report.figures import slowest_s
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
        if case.is_beyond is not None:
            return case.is_beyond
        for t in (case.source, case.target):
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


class HeatPrograms(Programs):
    """Heat does not tell what it receives, so that there are times only."""

    def __init__(self, devices: int) -> None:
        import heat
        import torch

        torch.set_num_threads(1)
        self._heat, self.library, self.xp = heat, f"Heat {version('heat')}", HeatNames(heat)

    def place(self, array: Any, cut: int | None) -> Any:
        """Split along a dim."""
        return self._heat.array(array, split=cut)

    def values(self, results: Results) -> Results:
        """Gathered on all ranks."""
        return [one.numpy() for one in results]

    def seconds_of(self, call: Call) -> float:
        """Of the slowest rank."""
        return slowest_s(MPI.COMM_WORLD, call)


class HeatNames(NumPyNames):
    """It has no Einstein sums: chains of matrices are products here, other sums say that they cannot be."""

    def mean(self, x: Any, axis: int, keepdims: bool) -> Any:
        """The mean along a dim, which is kept."""
        return self._module.sum(x, axis=axis, keepdims=keepdims) / x.shape[axis]

    def einsum(self, notation: str, *operands: Any) -> Any:
        """A chain of products of matrices, from left to right."""
        if any(len(term) != 2 for term in notation.partition("->")[0].split(",")):
            raise NotImplementedError("it has no Einstein sums")
        return reduce(self._module.matmul, operands)

    def maximum(self, x: Any, least: float) -> Any:
        """No value below a number."""
        return self._module.clip(x, least, float("inf"))


def fit_kmeans(x: Any, start: Any, rounds: int, ranks: int) -> tuple[Callable[[], Any], Any]:
    """A fit of Heat on all ranks, and what makes its centres an array of NumPy."""
    import heat

    there, centers = heat.array(x, split=0), heat.array(start)

    def fit() -> Any:
        model = heat.cluster.KMeans(n_clusters=len(start), init=centers, max_iter=rounds, tol=-1.0)
        model.fit(there)
        return model

    return fit, lambda model: model.cluster_centers_.numpy()
