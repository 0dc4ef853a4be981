"""One benchmark inside an MPI job: all cases in all sizes."""

from __future__ import annotations

import sys

from mpi4py import MPI

from redist.errors import RequestError
from redist.measure.cases import make_case
from redist.measure.compare import compare
from redist.measure.contenders.registry import chosen, contenders_of
from redist.measure.options import PEERS, BenchOptions
from redist.measure.results.results import Outcome, Results
from redist.measure.timing import Stopwatch
from redist.text.units import format_bytes


def measure(comm: MPI.Intracomm, options: BenchOptions) -> Results:
    """Measure what the options ask for; the same on every rank. **Collective over `comm`.**"""
    contenders = chosen(options.contenders, contenders_of(PEERS) if options.with_peers else {})
    watch = Stopwatch.on(comm)
    asked = [(name, size) for size in options.sizes for name in options.cases]
    outcomes = []
    for number, (name, size) in enumerate(asked):
        _say(comm, f"{number + 1} of {len(asked)}: {name}, {format_bytes(size)}")
        try:
            case = make_case(name, size, comm.size)
        except RequestError as error:
            outcomes.append(Outcome(name, size, note=str(error)))
            continue
        outcomes.append(compare(case, size, contenders, watch, options.repeats))
    return Results(mpi_name(), comm.size, options.repeats, tuple(outcomes))


def mpi_name() -> str:
    """The MPI library with its version, such as MPICH 5.0.2."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _say(comm: MPI.Intracomm, text: str) -> None:
    if comm.rank == 0:
        print(f"redist: {text}", file=sys.stderr, flush=True)
