"""The command ``redist``: every outcome is an exit status, every error one line."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Mapping, Sequence

from redist.cli.command import (
    BUG,
    INTERRUPTED,
    NO_PLAN,
    OK,
    PIPE_CLOSED,
    WRONG_REQUEST,
    Command,
    UsageError,
)
from redist.cli.commands import (
    bench,
    calibrate,
    check,
    convert,
    doctor,
    inspect,
    join,
    plan,
    program,
    prove,
    rechunk,
    refit,
    simulate,
)
from redist.errors import CheckError, NoPlanError, RedistError
from redist.text.columns import one_line
from redist.text.parser import LineParser
from redist.text.units import format_bytes
from redist.version import __version__

COMMANDS: Mapping[str, Command] = {
    "plan": plan,
    "check": check,
    "prove": prove,
    "simulate": simulate,
    "program": program,
    "inspect": inspect,
    "convert": convert,
    "rechunk": rechunk,
    "refit": refit,
    "join": join,
    "bench": bench,
    "calibrate": calibrate,
    "doctor": doctor,
}
MAX_LINE = 1200
"""Longer errors lose their middle: somebody's text of thousands of characters."""

EPILOG = """\
example:
  redist plan "f32[4096{x}, 4096{y}]" "f32[4096{y}, 4096{x}]" --mesh x=2,y=4

exit status:
  0  done
  1  the plan, a checksum or a result is wrong
  2  the request is wrong (one line on stderr says what)
  3  no plan fits the limit (the message names the smallest that is enough)
  4  neither proved nor refuted: the solver gave up

'redist COMMAND --help' explains a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; see :mod:`redist.cli.command`.

    >>> main(["plan", "f32[8{x}]", "f32[8]"])       # prints one line on stderr
    2
    """
    try:
        status = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except NoPlanError as error:
        least = format_bytes(error.least_bytes, round_up=True)
        option = "--memory" if "rechunk" in str(error) else "--limit"
        return _say(f"{error} (that is {least}; try {option} {error.least_bytes})", NO_PLAN)
    except CheckError as error:
        return _say_bug(f"in the plan that was found {error}")
    except RedistError as error:
        return _say(error, WRONG_REQUEST)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _leave_stdout()
        return PIPE_CLOSED
    except OSError as error:
        _leave_stdout()
        return _say(f"cannot write the output: {error.strerror or error}", WRONG_REQUEST)
    except ModuleNotFoundError as error:
        return _say(
            f"this needs the Python package {error.name}, which is not installed; "
            f"'pip install {error.name}'",
            WRONG_REQUEST,
        )
    except (MemoryError, OverflowError) as error:
        why = str(error) or "not enough memory"
        return _say(f"the request is too large: {why}; use a smaller mesh or array", WRONG_REQUEST)
    except Exception as error:
        return _say_bug(f"{type(error).__name__}: {error}")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = LineParser(
        prog="redist",
        description="Plan how a distributed array moves from one layout to another.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"redist {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(commands)
    return parser


def _run(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    try:
        args, unknown = parser.parse_known_args(argv)
    except SystemExit:
        return OK
    if unknown:
        see = f"redist {args.command or ''}".strip()
        raise UsageError(f"cannot use {unknown[0]!r}: unknown here; see '{see} --help'")
    if args.command is None:
        parser.print_help(sys.stderr)
        return WRONG_REQUEST
    return COMMANDS[args.command].run(args)


def _say(what: object, status: int) -> int:
    text = one_line(what)
    if len(text) > MAX_LINE:
        text = f"{text[: MAX_LINE // 2]} ... {text[-MAX_LINE // 2 :]}"
    print(f"redist: {text}", file=sys.stderr)
    return status


def _say_bug(what: str) -> int:
    """Say what went wrong inside; with REDIST_DEBUG=1 the traceback comes first."""
    if os.environ.get("REDIST_DEBUG", "") not in ("", "0"):
        traceback.print_exc()
        return _say(f"a bug in redist, please report it: {what}", BUG)
    more = "run again with REDIST_DEBUG=1 for the traceback"
    return _say(f"a bug in redist, please report it: {what}; {more}", BUG)


def _leave_stdout() -> None:
    """Keep the interpreter from flushing at exit into an output that nobody reads any more."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass
