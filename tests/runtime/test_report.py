"""Reports: a table that adds up, and a line per step for those who ask."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from mpi4py import MPI

import redist
from redist.runtime.host.report import Report, StepReport

STEPS = (
    StepReport("all_to_all", 3 * 2**20, 3 * 2**20, 2**20, 2**21, 3, 0.0015, 0.001, 2),
    StepReport("slice and 2 more", 0, 0, 0, 0, 0, 0.0, 0.0, 0),
)


def transfer() -> redist.Transfer:
    """One rank that copies its tile."""
    return redist.Transfer("f32[4, 4]", "f32[4, 4]", MPI.COMM_SELF, mesh=redist.Mesh(x=1))


def test_a_report_is_a_table() -> None:
    lines = str(Report(10, 4, STEPS)).splitlines()
    assert lines[0] == "10 calls on 4 ranks"
    assert str(Report(1, 1, STEPS)).splitlines()[0] == "1 call on 1 rank"
    assert lines[1].split()[:3] == ["step", "received", "planned"]
    assert [line.split()[0] for line in lines[2:]] == ["all_to_all", "slice"]
    assert len({len(line) for line in lines[1:]}) == 1
    for cell in ("3 MiB", "2 MiB", "1.500", "1.000", "rank 2"):
        assert cell in lines[2]


def test_a_transfer_reports_its_calls() -> None:
    with transfer() as t:
        assert t.report().calls == 0
        for _ in range(3):
            t(np.zeros((4, 4), "f4"))
        report = t.report()
    assert (report.calls, report.ranks) == (3, 1)
    (step,) = report.steps
    assert (step.name, step.received_bytes, step.planned_bytes, step.slowest_rank) == (
        "copy", 0, 0, 0,
    )  # fmt: skip
    assert 0 < step.seconds < 1 and step.modelled_s == 0


def test_nothing_is_said_unasked(capfd: pytest.CaptureFixture[str]) -> None:
    with transfer() as t:
        t(np.zeros((4, 4), "f4"))
    assert capfd.readouterr() == ("", "")


def test_a_line_per_step_for_those_who_ask(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIST_DEBUG", "1")
    with transfer() as t:
        t(np.zeros((4, 4), "f4"))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("redist: rank 0 step 1 copy: received 0 B in ")


def test_the_log_has_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="redist"), transfer() as t:
        t(np.zeros((4, 4), "f4"))
    assert [record.getMessage()[:20] for record in caplog.records] == ["rank 0 step 1 copy: "]
