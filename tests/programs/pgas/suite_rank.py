"""One rank of a run of the public suite of the array API standard: all ranks run the same examples.

Started by :mod:`tests.programs.pgas.conformance`. Hypothesis draws the same on all ranks: by one seed,
without a database, without shrinking, which would part them after a failure. A test has failed where it
failed on any rank; a rank that waits too long for the others ends the job and says where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import hypothesis.internal.conjecture.providers as drawing
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.constants_ast import Constants
from mpi4py import MPI

from redist import pgas

WAIT_S = 20.0
"""So long after its own end of a test a rank waits for the others."""


def draw_the_same() -> None:
    """Hypothesis's settings; they stand on those of the suite (how many examples)."""
    settings.register_profile(
        "ranks",
        settings(
            database=None,
            derandomize=False,
            deadline=None,
            print_blob=False,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    settings.load_profile("ranks")
    # It would also draw numbers from the source of imported modules; ranks import different ones.
    none = Constants()
    drawing._get_local_constants = lambda: none


class Ranks:
    """A plugin of pytest that keeps the ranks together and tells what became of each test."""

    def __init__(self, comm: MPI.Comm, test_s: float, say: TextIO) -> None:
        self.comm, self.test_s, self.say = comm, test_s, say
        self.passed = 0

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """After the suite's own settings."""
        draw_the_same()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run a test; meet after it."""
        faulthandler.dump_traceback_later(self.test_s, exit=True, file=self.say)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._meet(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        """What became of a test on this rank, and on the others."""
        report: Any = yield
        if call.when == "call" or report.outcome != "passed":
            self._tell(report)
        return report

    def _tell(self, report: Any) -> None:
        said = self.comm.allgather((report.outcome, report.longreprtext))
        if any(outcome == "failed" for outcome, _ in said):
            report.outcome = "failed"
        if self.comm.rank != 0:
            return
        if report.outcome == "failed":
            where = [rank for rank, (outcome, _) in enumerate(said) if outcome == "failed"]
            print(f"FAILED {report.nodeid} on ranks {where}", file=self.say)
            print(said[where[0]][1], file=self.say, flush=True)
        elif report.outcome == "skipped":
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            print(f"SKIPPED {report.nodeid}: {reason}", file=self.say, flush=True)
        else:
            print(f"PASSED {report.nodeid}", file=self.say, flush=True)

    def _meet(self, name: str) -> None:
        request, start = self.comm.Ibarrier(), time.monotonic()
        while not request.Test():
            time.sleep(1e-4)
            if time.monotonic() - start > WAIT_S:
                print(f"rank {self.comm.rank} is alone after {name}", file=self.say, flush=True)
                self.comm.Abort(3)


def program() -> int:
    """The exit status of pytest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("file")
    parser.add_argument("--max-examples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--test-s", type=float, default=60.0)
    args, options = parser.parse_known_args()
    os.environ["ARRAY_API_TESTS_MODULE"] = "redist.pgas"
    os.environ["ARRAY_API_TESTS_VERSION"] = pgas.__array_api_version__
    sys.dont_write_bytecode = True
    os.chdir(args.suite)
    say = os.fdopen(os.dup(2), "w")
    given = [
        "-p", "no:cacheprovider", "-q", "--tb=short", f"--max-examples={args.max_examples}",
        f"--hypothesis-seed={args.seed}", *options, args.file,
    ]  # fmt: skip
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = int(pytest.main(given, plugins=[Ranks(MPI.COMM_WORLD, args.test_s, say)]))
    if status not in (0, 1) and MPI.COMM_WORLD.rank == 0:
        print(printed.getvalue(), file=say, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(program())
