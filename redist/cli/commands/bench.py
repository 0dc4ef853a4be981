"""``redist bench``: start an MPI job that measures, and hand on its exit status."""

from __future__ import annotations

import argparse
import sys

from redist.cli.command import Commands, add_command
from redist.cli.files import check_folder
from redist.cli.request import add_mpirun, read_ranks
from redist.launch.launcher import find_launcher, launch
from redist.measure.options import BenchOptions, add_options, names_text

EPILOG = f"""\
{names_text()}

examples:
  redist bench -n 8
  redist bench -n 4 --sizes 1GiB --cases rows-columns,uneven --json figures.json --plot figures.svg

exit status 1 means that a result was wrong. 'mpirun -n 8 python -m redist.measure' does the same
inside a job that you start yourself.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "move arrays between local ranks and compare with other ways: times, memory"
    parser = add_command(commands, "bench", text, EPILOG)
    parser.add_argument("-n", dest="ranks", metavar="RANKS", required=True, help="how many ranks")
    add_options(parser)
    add_mpirun(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Find out what can be wrong, then start the job."""
    n_ranks = read_ranks(args.ranks, least=2)
    options = BenchOptions.read(args)
    for option, name in (("--json", options.json), ("--plot", options.plot)):
        if name is not None:
            check_folder(name, option)
    launcher = find_launcher(args.mpi)
    program = ["-m", "redist.measure", "--ranks", str(n_ranks), *options.arguments()]
    program += ["--bar"] if sys.stderr.isatty() else []
    return launch(launcher, n_ranks, program)
