"""Run one benchmark inside an MPI job: all cases in all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpi4py import MPI

from redist.errors import RequestError
from redist.measure.cases import make_case
from redist.measure.compare import compare
from redist.measure.contenders.registry import Ways, choose_contenders
from redist.measure.options import BenchOptions
from redist.measure.results.results import Outcome, Results
from redist.measure.timing import Stopwatch
from redist.text.units import format_bytes


def measure(
    comm: MPI.Intracomm,
    options: BenchOptions,
    peers: Mapping[str, Ways] | None = None,
    watcher: Callable[[int, int, str], None] = lambda *_: None,
) -> Results:
    """**Collective over** ``comm``. Measure what the options ask for; the same on every rank.

    ``peers`` take part beside redist's contenders; ``watcher`` hears how many cases are done, of
    how many, and which comes next.
    """
    contenders = choose_contenders(options.contenders, peers or {})
    watch = Stopwatch.on(comm)
    asked = [(name, size) for size in options.sizes for name in options.cases]
    outcomes = []
    for number, (name, size) in enumerate(asked):
        watcher(number, len(asked), f"{name}, {format_bytes(size)}")
        try:
            case = make_case(name, size, comm.size)
        except RequestError as error:
            outcomes.append(Outcome(name, size, note=str(error)))
            continue
        outcomes.append(compare(case, size, contenders, watch, options.repeats))
    watcher(len(asked), len(asked), "")
    return Results(mpi_name(), comm.size, options.repeats, tuple(outcomes))


def mpi_name() -> str:
    """The MPI library with its version, such as MPICH 5.0.2."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"
