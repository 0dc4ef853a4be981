"""The benchmark as a program that ``mpirun`` starts: measures, prints, writes."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mpi4py import MPI

from redist.errors import RequestError
from redist.measure.cases import make_case
from redist.measure.compare import compare
from redist.measure.contenders.registry import Ways, choose_contenders, load_peers
from redist.measure.options import BenchOptions, add_options, names_text
from redist.measure.results.chart import draw
from redist.measure.results.results import Outcome, Results
from redist.measure.results.table import as_text
from redist.measure.timing import Stopwatch
from redist.text.parser import LineParser
from redist.text.progress import Progress
from redist.text.units import format_bytes

# Run one benchmark inside an MPI job: all cases in all sizes.


def measure(
    comm: MPI.Intracomm,
    options: BenchOptions,
    peers: Mapping[str, Ways] | None = None,
    watcher: Callable[[int, int, str], None] = lambda *_: None,
) -> Results:
    """**Collective over** ``comm``. Measure what the options ask for; returns the same on every rank.

    ``peers`` take part besides redist's contenders; ``watcher`` is told how many cases are done, how many
    there are, and which comes next.
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


OK, FAILED, WRONG_REQUEST = 0, 1, 2


def main(argv: Sequence[str] | None = None, prog: str = "python -m redist.measure") -> int:
    """Measure on all ranks; rank 0 prints. The exit status is 1 if a result was wrong.

    **Collective over all ranks of the job.**
    """
    comm = MPI.COMM_WORLD
    # Ctrl-C ends all ranks; one traceback each is noise.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        args = _parser(prog).parse_args(argv)
        _check_ranks(comm.size, args.ranks)
        options = BenchOptions.read(args)
        return _run(comm, options, load_peers(options.peers), args.bar or None)
    except RequestError as error:
        return _say(comm.rank, f"redist: {error}")
    except SystemExit:
        return OK
    except Exception:
        # The other ranks may be waiting for this one: end them too.
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(FAILED)
        return FAILED


def _run(
    comm: MPI.Intracomm, options: BenchOptions, peers: Mapping[str, Ways], bar: bool | None
) -> int:
    if comm.rank == 0:
        results = measure(comm, options, peers, Progress("redist", bar=bar))
    else:
        results = measure(comm, options, peers)
    if comm.rank == 0:
        print(as_text(results), flush=True)
        if options.json is not None:
            Path(options.json).write_text(results.to_json(), encoding="utf-8")
            print(f"redist: wrote {options.json}", file=sys.stderr)
        if options.plot is not None:
            print(f"redist: {draw(results, options.plot)}", file=sys.stderr)
    return OK if results.is_right else FAILED


def _check_ranks(n_ranks: int, expected: int | None) -> None:
    if expected is not None and n_ranks != expected:
        raise RequestError(
            f"cannot measure: mpirun started {expected} processes, but MPI says {n_ranks}; "
            "this mpirun belongs to another MPI than the one mpi4py uses"
        )


def _say(rank: int, text: str) -> int:
    if rank == 0:
        print(text, file=sys.stderr, flush=True)
    return WRONG_REQUEST


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = LineParser(
        prog=prog,
        description="Measure redistributions inside an MPI job; results are checked first.",
        epilog=names_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bar", action="store_true", help=argparse.SUPPRESS)
    return add_options(parser)
