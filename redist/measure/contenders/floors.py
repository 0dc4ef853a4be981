"""The measure of all: every rank copies its tile of the target once, contiguously, as fast as can be."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends, new_tile
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.strided import Strided


class NumpyCopy(Contender):
    """``np.copyto``: the memcpy of the C library."""

    label = "memcpy"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._from = None if ends.target is None else np.zeros_like(ends.target)

    def run(self) -> None:
        """One copy. **Local.**"""
        if self.output is not None and self._from is not None:
            np.copyto(self.output, self._from)


class KernelCopy(NumpyCopy):
    """The compiled kernel, which goes up line by line, through the cache."""

    label = "kernel"
    streams = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._moves, self._table = CopyList.of(()), addresses(())
        if self.output is not None and self._from is not None:
            whole = BufferCopy(0, 0, 1, 0, Strided(self.output.nbytes, ()))
            self._moves = CopyList.of([whole], self.streams)
            self._table = addresses([self.output, self._from])

    def run(self) -> None:
        """One copy. **Local.**"""
        self._moves.run(self._table)


class KernelStream(KernelCopy):
    """The same past the cache, where the processor has stores for that."""

    label = "kernel, past the cache"
    streams = True


def host_floors(case: Case, comm: MPI.Intracomm) -> list[Contender]:
    """**Local.** Three copies in memory; the fastest of a run is its floor."""
    ends = Ends(None, new_tile(case.target, comm.rank))
    return [way(case, comm, ends) for way in (NumpyCopy, KernelCopy, KernelStream)]
