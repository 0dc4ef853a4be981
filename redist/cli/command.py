"""How a command joins the command line: its parser, and the form of its module."""

from __future__ import annotations

import argparse
from typing import Protocol, TypeAlias

from redist.errors import RedistError
from redist.text.parser import LineParser

# Exit statuses, and the error that the command line raises itself.


OK = 0
FAILED = 1
"""The plan was judged or run, and found wrong."""
WRONG_REQUEST = 2
NO_PLAN = 3
UNKNOWN = 4
"""The solver gave up: neither proved nor refuted."""
BUG = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


class UsageError(RedistError):
    """A command line that makes no sense, or a file that cannot be read or written."""


Commands: TypeAlias = "argparse._SubParsersAction[LineParser]"
"""What argparse returns for a parser of several commands."""


class Command(Protocol):
    """What every module of :mod:`redist.cli.commands` has."""

    def add_parser(self, commands: Commands) -> argparse.ArgumentParser:
        """Add the command with its arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do what the arguments ask for; returns the exit status."""
        ...


def add_command(commands: Commands, name: str, text: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command without arguments yet; ``text`` says what it does."""
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
