"""mpi4py-fft's pencils: one Alltoallw on subarray types between two alignments."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from bench.problems.installed import version, why_absent
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.values import ValueBox


class Mpi4pyFft(Contender):
    """``Pencil.transfer(...).forward(a, b)``."""

    label = "mpi4py-fft"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        from mpi4py_fft.pencil import Pencil, Subcomm

        super().__init__(case, comm, ends)
        self.label = f"mpi4py-fft {version('mpi4py-fft')}"
        loses, gains = moved_dims(case) or (0, 0)
        source = case.source
        self._comms = Subcomm(comm, list(source.cuts))
        before = Pencil(self._comms, source.shape, gains)
        after = before.pencil(loses)
        dtype = source.dtype.to_numpy()
        self._transfer = before.transfer(after, dtype)
        # It cuts uneven dims in its own way: larger tiles first.
        self.source_box = _box(before)
        self.target_box = _box(after)
        self.input = np.zeros(before.subshape, dtype)
        self.output = np.zeros(after.subshape, dtype)

    @classmethod
    def absent(cls) -> str | None:
        """It may not be installed."""
        return why_absent("mpi4py_fft")

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """One axis moves from one dim to another, uncut one."""
        return None if moved_dims(case) else "an axis must move from one dim to an uncut one"

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self._transfer.forward(self.input, self.output)

    def close(self) -> None:
        """Free types and communicators. **Collective over `comm`.**"""
        super().close()
        self._transfer.destroy()
        self._comms.destroy()


def moved_dims(case: Case) -> tuple[int, int] | None:
    """The dim that loses its axis and the one that gains it; None where something else happens.

    >>> from redist.measure.cases import make_case
    >>> moved_dims(make_case("slab-0-2", 2**20, 4)), moved_dims(make_case("swap", 2**20, 4))
    ((0, 2), None)
    """
    source, target = case.source, case.target
    if source.mesh != target.mesh or source.pending_op or target.pending_op:
        return None
    if any(len(dim) > 1 for dim in (*source.dims, *target.dims)):
        return None
    if np.prod(source.cuts, dtype=int) != source.mesh.n_devices:
        return None
    differ = [i for i in range(source.ndim) if source.dims[i] != target.dims[i]]
    if len(differ) != 2:
        return None
    loses, gains = sorted(differ, key=lambda i: not source.dims[i])
    fits = not source.dims[gains] and not target.dims[loses]
    return (loses, gains) if fits and source.dims[loses] == target.dims[gains] else None


def _box(pencil: object) -> ValueBox:
    lo, shape = pencil.substart, pencil.subshape  # type: ignore[attr-defined]
    return ValueBox(tuple(lo), tuple(a + n for a, n in zip(lo, shape, strict=True)))
