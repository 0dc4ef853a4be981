"""Run the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from redist.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    def one_line(self) -> str:
        """The only line on stderr, without the name of the program; nothing is on stdout."""
        assert self.out == ""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        assert self.err.startswith("redist: ")
        assert "Traceback" not in self.err
        return self.err[len("redist: ") : -1]


Run = Callable[..., Outcome]


@pytest.fixture
def redist(capsys: pytest.CaptureFixture[str]) -> Run:
    """``redist("plan", ...)`` runs the command and returns its outcome."""

    def run(*argv: str) -> Outcome:
        status = main(list(argv))
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
