"""Files that the command line reads and writes; what goes wrong is a :class:`UsageError`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from redist.cli.request import MAX_DEVICES
from redist.cli.status import UsageError
from redist.errors import PlanFormatError
from redist.plan.plan import Plan


def read_text(name: str) -> str:
    """The text of a file; ``-`` is standard input."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {shown(name)}: {_why(error)}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read {shown(name)}: byte {error.start} is not UTF-8; "
            "expected a plan as 'redist plan ... --json' prints it"
        ) from None


def read_plan(name: str) -> tuple[Plan, str]:
    """The plan that a file holds, and the text it was read from."""
    text = read_text(name)
    try:
        plan = Plan.from_json(text)
        most = max(t.mesh.n_devices for t in (*plan.types, plan.target))
        if most > MAX_DEVICES:
            raise PlanFormatError(f"it is for {most} devices, more than {MAX_DEVICES}")
        return plan, text
    except PlanFormatError as error:
        raise UsageError(
            f"{shown(name)}: {error}; expected a plan as 'redist plan ... --json' prints it"
        ) from None


def write_text(name: str, text: str, option: str) -> None:
    """Write a file and say so on standard error."""
    try:
        Path(name).write_bytes(text.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot write {shown(name)}: {_why(error)}; give {option} a file that can be written"
        ) from None
    print(f"redist: wrote {shown(name)}", file=sys.stderr)


def shown(name: str) -> str:
    """A file name as messages print it."""
    if name == "-":
        return "standard input"
    return name if name and not re.search(r"[\s']", name) else repr(name)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
