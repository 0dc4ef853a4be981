"""redist itself: on its own buffers, on any arrays, and without shared memory."""

from __future__ import annotations

from mpi4py import MPI

from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.runtime.transfer import Transfer


class OwnBuffers(Contender):
    """``transfer()``: source and target lie in arrays that the transfer gives."""

    label = "redist"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._transfer = Transfer(case.source, case.target, comm)
        self.planned_bytes = self._transfer.plan.peak_bytes
        self.input = self._transfer.input
        self.output = self._transfer.output

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self._transfer()

    def close(self) -> None:
        """Free the buffers. **Collective over `comm`.**"""
        super().close()
        self._transfer.close()


class AnyArrays(Contender):
    """``transfer(local, out)``: source and target are the user's own arrays."""

    label = "redist, any arrays"
    transport = "auto"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._transfer = Transfer(case.source, case.target, comm, transport=self.transport)
        self.planned_bytes = self._transfer.plan.peak_bytes

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self._transfer(self.input, out=self.output)

    def close(self) -> None:
        """Free the buffers. **Collective over `comm`.**"""
        super().close()
        self._transfer.close()


class OnlyMessages(AnyArrays):
    """The same with MPI messages between all ranks, as between nodes."""

    label = "redist, MPI only"
    transport = "mpi"
