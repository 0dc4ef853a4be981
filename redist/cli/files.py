"""Read and write the files of the command line; what goes wrong is a :class:`UsageError`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from redist.cli.command import UsageError
from redist.errors import PlanFormatError
from redist.plan.plan import Plan

MAX_DEVICES = 2**20
"""Larger meshes would only run out of memory."""


def read_text(name: str) -> str:
    """Read the text of a file; ``-`` is standard input."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {name_text(name)}: {_why(error)}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read {name_text(name)}: byte {error.start} is not UTF-8; "
            "expected a plan as 'redist plan ... --json' prints it"
        ) from None


def read_plan(name: str) -> tuple[Plan, str]:
    """Read the plan that a file holds; returns the text too."""
    text = read_text(name)
    return plan_of(text, name), text


def plan_of(text: str, name: str) -> Plan:
    """The plan in the text of a file with this name."""
    try:
        plan = Plan.from_json(text)
        most = max(t.mesh.n_devices for t in (*plan.types, plan.target))
        if most > MAX_DEVICES:
            raise PlanFormatError(f"it is for {most} devices, more than {MAX_DEVICES}")
        return plan
    except PlanFormatError as error:
        raise UsageError(
            f"{name_text(name)}: {error}; expected a plan as 'redist plan ... --json' prints it"
        ) from None


def write_text(name: str, text: str, option: str) -> None:
    """Write a file and say so on standard error."""
    try:
        Path(name).write_bytes(text.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot write {name_text(name)}: {_why(error)}; give {option} a file that can be written"
        ) from None
    print(f"redist: wrote {name_text(name)}", file=sys.stderr)


def check_folder(name: str, option: str) -> None:
    """Refuse a file whose folder does not exist, before long work is done for it."""
    if not Path(name).absolute().parent.is_dir():
        raise UsageError(f"{option}: cannot write {name_text(name)}: there is no such folder")


def name_text(name: str) -> str:
    """A file name as messages print it."""
    if name == "-":
        return "standard input"
    return name if name and not re.search(r"[\s']", name) else repr(name)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
