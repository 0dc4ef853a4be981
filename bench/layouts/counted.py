"""What one call of a workload receives, as the transport counts it, and whether its results are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.layouts.workload import Workload, arrays_in, cut_text, error_of
from redist import RedistError, pgas
from redist.pgas.programs.capture import capture
from redist.pgas.programs.planning.plan_calls import ProgramCosts, plan_calls
from redist.pgas.programs.planning.plan_program import types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.tiles.layouts import resolved_type
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Level, Topology

EAGER, WRITTEN, PLANNED = "eager", "as written", "planned"
WAYS = (EAGER, WRITTEN, PLANNED)
BYTE_PS = 1000
BYTES_ONLY = Topology((Level("all", None, 0, 1000 * BYTE_PS),))
NO_WORK = DeviceCosts(0, 0)


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes that all ranks received, those of the busiest, those for pending results, and the moves."""

    total_bytes: int
    busiest_bytes: int
    pending_bytes: int
    moves: int


@dataclass(frozen=True, slots=True)
class Way:
    """A workload that is ready to be called, with arguments of its own: what a program keeps is its own."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    stay: tuple[int, ...]

    def call(self) -> list[Any]:
        """Results in any layouts, with nothing pending: their values are there. **Collective.**"""
        return [finished(one) for one in self.results()]

    def results(self) -> list[Any]:
        """Results as the function leaves them. **Collective.**

        Arguments that do not stay are copied first, so that no call finds what was kept of the last one's.
        """
        given = [a if i in self.stay else a.copy() for i, a in enumerate(self.arrays)]
        return arrays_in(self.function(*given))


def finished(array: Any) -> Any:
    """The array with its pending reduction done, each rank a part of the sum if it can be. **Collective.**"""
    done = resolved_type(array.type)
    return array if done is array.type else array.to(done)


def way_of(workload: Workload, name: str) -> Way:
    """A workload in one of the ways. **Collective.**"""
    function: Any = workload.of(pgas)
    if name != EAGER:
        function = pgas.program(layouts=name)(function)
    return Way(name, function, tuple(arrays_of(workload)), workload.stay)


def arrays_of(workload: Workload) -> list[Any]:
    """The arguments of a workload as global arrays. **Collective.**"""
    pairs = zip(workload.make(), workload.cuts, strict=True)
    return [pgas.asarray(one, type=cut_text(cut, one.ndim)) for one, cut in pairs]


def count(comm: MPI.Intracomm, way: Way) -> tuple[Received, list[Any]]:
    """Call once, and count what the transport receives. **Collective over `comm`.**

    A move counts if any rank receives something in it; several that are one operation count as one.
    """
    with redist.trace() as t:
        results = way.results()
        before = len(t.moves)
        results = [finished(one) for one in results]
    ranks = comm.allgather([move.received_bytes for move in t.moves])
    totals = [sum(own) for own in ranks]
    assert len({len(own) for own in ranks}) == 1, "ranks noted different moves"
    pairs = zip(t.moves, zip(*ranks, strict=True), strict=True)
    moves = math.ceil(sum(Fraction(1, move.together) for move, several in pairs if any(several)))
    pending = sum(sum(own[before:]) for own in ranks)
    return Received(sum(totals), max(totals), pending, moves), results


def error_on_all(comm: MPI.Intracomm, results: list[Any], want: list[NDArray[Any]]) -> float:
    """How far results are from those wanted, which rank 0 knows; all are told. **Collective over `comm`.**"""
    whole = [one.gather() for one in results]
    error = error_of(whole, want) if comm.rank == 0 else None
    return float(comm.bcast(error))


def least_received(workload: Workload, arrays: Sequence[Any]) -> int | None:
    """**Local.** Bytes that the busiest rank receives at least, all moves together; None if not known.

    Arguments lie as they are given, results anywhere with nothing pending. Work done several times over
    is free. That is the least over all layouts of the calls as they are written, each argument moved anew.
    """
    recorder = CallRecorder()
    capture(workload.of(pgas), arrays, {}, arrays, arranger=recorder)
    try:
        plan = plan_calls(recorder, (), ProgramCosts.of(types_of(recorder), BYTES_ONLY, NO_WORK))
    except RedistError:
        return None
    return plan.bound_ps // BYTE_PS
