"""A command-line parser whose errors are exceptions, so that each becomes one line."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from redist.errors import RequestError
from redist.text.columns import one_line


class LineParser(argparse.ArgumentParser):
    """Raises :class:`~redist.RequestError` where argparse would print its usage and exit.

    >>> parser = LineParser(prog="mine")
    >>> _ = parser.add_argument("--size", type=int)
    >>> parser.parse_args(["--size", "x"])
    Traceback (most recent call last):
    ...
    redist.errors.RequestError: argument --size: invalid int value: 'x'; see 'mine --help'
    """

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, in one line."""
        given = re.sub(r"\(choose from (.*)\)", r"(one of \1)", message)
        raise RequestError(f"{one_line(given)}; see '{self.prog} --help'")
