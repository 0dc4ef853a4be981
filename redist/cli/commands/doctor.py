"""``redist doctor``: start a process, or an MPI job, that says what it finds to move arrays with.

As in ``redist doctor -n 4``. The process is another one because an MPI that is broken ends it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from redist.cli.command import FAILED, Commands, UsageError, add_command
from redist.cli.request import add_mpirun, read_ranks
from redist.errors import LaunchError, RedistError
from redist.launch.launcher import Launcher, environment, find_launcher, launch

MODULE = "redist.doctor"
EPILOG = """\
examples:
  redist doctor                 what this process finds: MPI, kernels, CuPy, GPUs, transports
  redist doctor -n 4            and how 4 local ranks reach each other, pair by pair
  redist doctor --topology here.toml    and the costs of computation in the file

'mpirun -n 64 python -m redist.doctor' does the same inside a job that you start yourself,
over several machines too. Exit status 1 means that MPI does not start.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "say what was detected here, which way arrays would move, and why"
    parser = add_command(commands, "doctor", text, EPILOG)
    parser.add_argument("-n", dest="ranks", metavar="RANKS", help="start this many local ranks")
    parser.add_argument(
        "--node-size", metavar="RANKS", help="pretend that nodes have this many ranks"
    )
    parser.add_argument(
        "--topology", metavar="FILE", help="show computing costs that redist calibrate wrote there"
    )
    add_mpirun(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Return 0 if arrays can be moved, 1 if MPI does not even start."""
    costs = [] if args.topology is None else _costs_of(args.topology)
    status = _diagnose(args)
    if costs:
        print("", *costs, sep="\n")
    return status


def _costs_of(file: str) -> list[str]:
    """What computing costs as a file has it, in columns; the built-in costs if it has none."""
    from redist.arrange.device_file import costs_lines, load_every_cost

    try:
        found = load_every_cost(file)
    except RedistError as error:
        raise UsageError(f"--topology: {error}") from None
    return costs_lines(found)


def _diagnose(args: argparse.Namespace) -> int:
    if args.ranks is None:
        if args.node_size is not None:
            raise UsageError("--node-size: cannot make nodes of one process; give -n too")
        return _run_alone(_describe_launcher(args.mpi))
    n_ranks = read_ranks(args.ranks)
    launcher = find_launcher(args.mpi)
    program = ["-m", MODULE, "--launcher", _launcher_text(launcher)]
    if args.node_size is not None:
        program += ["--node-size", str(read_ranks(args.node_size))]
    status = launch(launcher, n_ranks, program)
    if status not in (0, FAILED):
        print(f"\nthe job ended with status {status}; one process alone finds:")
        _run_alone(_launcher_text(launcher))
    return status


def _run_alone(launcher: str) -> int:
    command = [sys.executable, "-m", MODULE, "--launcher", launcher]
    sys.stdout.flush()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env=environment(), text=True, errors="replace")  # fmt: skip
    print(done.stdout, end="")
    if done.returncode not in (0, FAILED):
        print(f"MPI   no   a process that starts it ends with status {done.returncode}")
    return FAILED if done.returncode else 0


def _describe_launcher(given: str | None) -> str:
    """The launcher in words, or why there is none."""
    try:
        return _launcher_text(find_launcher(given))
    except LaunchError as error:
        if given is not None:
            raise
        return f"no: {error}"


def _launcher_text(launcher: Launcher) -> str:
    return f"{launcher.kind}: {launcher.path}"
