"""``redist join``: run a program on ranks that mpirun did not start."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from types import TracebackType

from redist.cli.command import FAILED, INTERRUPTED, OK, Commands, UsageError, add_command

EPILOG = """\
example:
  torchrun --nproc-per-node 4 -m -- redist.cli join examples/heat.py --n 512
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "join the job that torchrun, Slurm or Kubernetes started, and run a program in it"
    parser = add_command(commands, "join", text, EPILOG)
    parser.add_argument(
        "-m", metavar="MODULE", dest="module", help="run a module, as python -m does"
    )
    parser.add_argument("--at", help="where the ranks meet: host:port, or a folder that all see")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for all ranks",
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM ...",
        help="a program and its arguments",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Join, and run the program as Python would; its exit status."""
    from redist.runtime.ranks.joining import join

    if args.module is None and not args.program:
        raise UsageError("cannot join: no program is given; see 'redist join --help'")
    join(at=args.at, timeout_s=args.timeout)
    try:
        if args.module is not None:
            sys.argv = [args.module, *args.program]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(args.module, run_name="__main__", alter_sys=True)
        else:
            sys.argv = args.program
            sys.path[0] = str(Path(args.program[0]).resolve().parent)
            runpy.run_path(args.program[0], run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:
        # It is the program's: shown as Python shows it, and told to the other ranks.
        sys.excepthook(type(error), error, _of_program(error.__traceback__))
        return FAILED if isinstance(error, Exception) else INTERRUPTED
    return OK


def _of_program(where: TracebackType | None) -> TracebackType | None:
    """A traceback without what is here and in runpy."""
    inner = where
    while inner and inner.tb_frame.f_code.co_filename in (
        __file__,
        runpy.__file__,
        "<frozen runpy>",
    ):
        inner = inner.tb_next
    return inner or where
