"""``redist.diagnose``: what ``redist doctor`` says, as a value."""

from __future__ import annotations

import sys

import pytest
from mpi4py import MPI

import redist
from redist.doctor.__main__ import main
from redist.doctor.among_ranks import Pairing, Way
from redist.doctor.diagnosis import Diagnosis, pairing_lines
from redist.doctor.process import Fact


def test_it_says_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    found = redist.diagnose()
    assert found.has_mpi and found.pairing is None and len(found.likely) == 2
    assert capsys.readouterr().out == f"{found}\n"
    assert str(redist.diagnose(MPI.COMM_SELF)) == str(found)


def test_without_mpi_there_are_facts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    found = redist.diagnose()
    assert not found.has_mpi and not found.likely
    assert "\n\n" not in str(found)
    assert any(line.split()[:2] == ["MPI", "no"] for line in str(found).splitlines())


def test_ranks_ways_and_reasons_are_three_tables() -> None:
    pairing = Pairing(
        (("here", "none"), ("here", "none"), ("there", "none")),
        (Way(((0, 1),), "near", ""), Way(((0, 2), (1, 2)), "far", "wire")),
        (("process reads", "yes"),),
    )
    found = Diagnosis((Fact("MPI", "Abacus 1", ""),), pairing=pairing)
    assert str(found).split("\n\n") == [
        "MPI   Abacus 1",
        *"\n".join(pairing_lines(pairing)).split("\n\n"),
    ]
    ranks, ways, why = "\n".join(pairing_lines(pairing)).split("\n\n")
    assert ranks.splitlines()[-1] == "2      there     none"
    assert ways.splitlines()[1:] == [
        "0-1             near               -",
        "0-2 1-2         far                wire",
    ]
    assert why.splitlines()[1].split("  ")[0] == "process reads"
