"""``redist calibrate``: start an MPI job that measures this machine and writes a topology file."""

from __future__ import annotations

import argparse
import sys

from redist.cli.command import Commands, UsageError, add_command
from redist.cli.files import check_folder
from redist.cli.request import add_mpirun, read_ranks
from redist.launch.launcher import find_launcher, launch

EPILOG = """\
example:
  redist calibrate -n 8 --output here.toml
  redist plan "f32[4096{x}, 4096]" "f32[4096, 4096{x}]" --mesh x=8 --topology here.toml

'mpirun -n 64 python -m redist.measure.calibrate --output FILE' does the same inside a job that you
start yourself, over several machines too.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "measure what steps, messages, bytes and computing cost here, and write a topology file"
    parser = add_command(commands, "calibrate", text, EPILOG)
    parser.add_argument("-n", dest="ranks", metavar="RANKS", required=True, help="how many ranks")
    parser.add_argument(
        "--output", metavar="FILE", default="topology.toml", help="(default topology.toml)"
    )
    parser.add_argument(
        "--node-size", metavar="RANKS", help="pretend that nodes have this many ranks"
    )
    add_mpirun(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Find out what can be wrong, then start the job."""
    n_ranks = read_ranks(args.ranks, least=2)
    check_folder(args.output, "--output")
    program = ["-m", "redist.measure.calibrate", "--output", args.output]
    if args.node_size is not None:
        size = read_ranks(args.node_size)
        if n_ranks % size:
            raise UsageError(f"--node-size: {n_ranks} ranks do not make whole nodes of {size}")
        program += ["--node-size", str(size)]
    program += ["--bar"] if sys.stderr.isatty() else []
    return launch(find_launcher(args.mpi), n_ranks, program)
