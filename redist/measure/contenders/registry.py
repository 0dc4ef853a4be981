"""Who takes part, by the name on the command line: redist's contenders, and peers of others.

Peers come from modules with a mapping ``CONTENDERS``, named on the command line:
``redist bench -n 8 --peers my_project.contenders``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mpi4py import MPI

from redist.errors import RequestError
from redist.measure.cases import Case
from redist.measure.contenders.by_hand import (
    AllReduceByHand,
    AlltoallwByHand,
    GatherAndSlice,
    JustSlice,
    PackedByHand,
    ReduceAndSlice,
    ReduceScatterByHand,
)
from redist.measure.contenders.contender import Contender, Ends
from redist.runtime.transfer import Transfer

# redist itself: on its own buffers, on any arrays, and without shared memory.


class AnyArrays(Contender):
    """``transfer(local, out)``: source and target are the user's own arrays."""

    label = "redist, any arrays"
    knows_segments = True
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


class OwnBuffers(AnyArrays):
    """``transfer()``: source and target lie in arrays that the transfer gives."""

    label = "redist"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self.input = self._transfer.input
        self.output = self._transfer.output

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self._transfer()


class OnlyMessages(AnyArrays):
    """The same with MPI messages between all ranks, as between nodes."""

    label = "redist, MPI only"
    transport = "mpi"


Ways: TypeAlias = Sequence[type[Contender]]
"""The first that can express a case takes part in it."""

CONTENDERS: Mapping[str, Ways] = {
    "naive": (JustSlice, GatherAndSlice, ReduceAndSlice),
    "by-hand": (AlltoallwByHand, ReduceScatterByHand, AllReduceByHand, PackedByHand),
    "redist": (OwnBuffers,),
    "redist-any": (AnyArrays,),
    "redist-mpi": (OnlyMessages,),
}


def choose_contenders(names: Sequence[str], peers: Mapping[str, Ways]) -> dict[str, Ways]:
    """Choose the contenders called so; the peers come last, and all of them.

    >>> list(choose_contenders(["redist", "naive"], {}))
    ['naive', 'redist']
    """
    return {key: ways for key, ways in CONTENDERS.items() if key in names} | dict(peers)


def load_peers(modules: Sequence[str]) -> dict[str, Ways]:
    """Import the contenders that modules bring along in ``CONTENDERS``."""
    found: dict[str, Ways] = {}
    for module in modules:
        try:
            found |= importlib.import_module(module).CONTENDERS
        except (ImportError, AttributeError) as error:
            raise RequestError(
                f"cannot measure the contenders of {module}: {error}; run where it can be imported"
            ) from None
    return found
