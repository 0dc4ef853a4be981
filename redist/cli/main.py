"""The command ``redist``: every outcome is an exit status, every error one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from redist.cli.options import make_parser
from redist.cli.status import (
    BUG,
    INTERRUPTED,
    NO_PLAN,
    OK,
    PIPE_CLOSED,
    WRONG_REQUEST,
    UsageError,
    one_line,
)
from redist.errors import CheckError, NoPlanError, RedistError
from redist.text.units import format_bytes

MAX_LINE = 1200
"""Longer errors lose their middle: somebody's text of thousands of characters."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; see :mod:`redist.cli.status`.

    >>> main(["plan", "f32[8{x}]", "f32[8]"])       # prints one line on stderr
    2
    """
    try:
        status = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except NoPlanError as error:
        return _say(
            f"{error} (that is {format_bytes(error.least_bytes)}; try --limit {error.least_bytes})",
            NO_PLAN,
        )
    except CheckError as error:
        return _say(f"a bug in redist, please report it: in the plan that was found {error}", BUG)
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
        return _say(f"a bug in redist, please report it: {type(error).__name__}: {error}", BUG)


def _run(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    try:
        args, unknown = parser.parse_known_args(argv)
    except SystemExit:
        return OK
    if unknown:
        see = f"redist {args.command or ''}".strip()
        raise UsageError(f"cannot use {unknown[0]!r}: unknown here; see '{see} --help'")
    match args.command:
        case "plan":
            from redist.cli.commands.plan import run_plan

            return run_plan(args)
        case "check":
            from redist.cli.commands.check import run_check

            return run_check(args)
        case "prove":
            from redist.cli.commands.prove import run_prove

            return run_prove(args)
        case "simulate":
            from redist.cli.commands.simulate import run_simulate

            return run_simulate(args)
        case "bench":
            from redist.cli.commands.bench import run_bench

            return run_bench(args)
        case "calibrate":
            from redist.cli.commands.calibrate import run_calibrate

            return run_calibrate(args)
        case "doctor":
            from redist.cli.commands.doctor import run_doctor

            return run_doctor(args)
        case _:
            parser.print_help(sys.stderr)
            return WRONG_REQUEST


def _say(what: object, status: int) -> int:
    text = one_line(what)
    if len(text) > MAX_LINE:
        text = f"{text[: MAX_LINE // 2]} ... {text[-MAX_LINE // 2 :]}"
    print(f"redist: {text}", file=sys.stderr)
    return status


def _leave_stdout() -> None:
    """Nobody reads standard output any more: keep the interpreter from flushing into it at exit."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass
