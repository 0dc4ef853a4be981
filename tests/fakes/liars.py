"""Contenders that do it wrong, run under mpirun: the harness must catch every one of them."""

from __future__ import annotations

import sys

from mpi4py import MPI

from redist.measure.cases import Case, make_case
from redist.measure.compare import compare
from redist.measure.contenders.by_hand import AlltoallwByHand, GatherAndSlice
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.timing import Stopwatch


class Lazy(Contender):
    """Does nothing: the poison stays."""

    label = "lazy"

    def run(self) -> None:
        """Nothing."""


class Forgetful(AlltoallwByHand):
    """Right in the beginning, idle from the sixth run on."""

    runs = 0

    def run(self) -> None:
        """Right a few times."""
        self.runs += 1
        if self.runs < 6:
            super().run()


class OneOff(GatherAndSlice):
    """One element of one rank is wrong."""

    def run(self) -> None:
        """Nearly right."""
        super().run()
        if self.comm.rank == self.comm.size - 1 and self.output is not None:
            self.output[-1, -1] += 1


class Clumsy(Contender):
    """Fails on one rank while it is made ready."""

    label = "clumsy"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        if comm.rank == comm.size - 1:
            raise ValueError("dropped it")

    def run(self) -> None:
        """Never."""


def main() -> int:
    """0 if every liar is caught and the honest one is not."""
    comm = MPI.COMM_WORLD
    ways = {
        "lazy": (Lazy,),
        "forgetful": (Forgetful,),
        "one-off": (OneOff,),
        "clumsy": (Clumsy,),
        "honest": (AlltoallwByHand,),
    }
    case = make_case("rows-columns", 10_000, comm.size)
    outcome = compare(case, 10_000, ways, Stopwatch.on(comm), repeats=2)
    notes = {entry.key: entry.note for entry in outcome.entries}
    assert notes == {
        "lazy": "wrong result",
        "forgetful": "wrong result in the end",
        "one-off": "wrong result",
        "clumsy": "failed: ValueError: dropped it",
        "honest": "",
    }, notes
    timed = [entry.key for entry in outcome.entries if entry.times is not None]
    assert timed == ["honest"] and outcome.floor is not None
    assert [e.key for e in outcome.entries if not e.is_wrong] == ["honest"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
