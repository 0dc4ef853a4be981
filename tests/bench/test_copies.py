"""Copies beside the floor: every way runs, and the report says how they compare."""

from __future__ import annotations

import pytest

from bench.copies import packs, race
from bench.copies.packs import type_cases
from bench.copies.race import CopyCase

FLOORS = {"floor, memcpy", "floor, kernel", "floor, past the cache"}


@pytest.mark.parametrize("case", race.cases(), ids=lambda case: f"{case.name} {case.run_bytes}")
def test_every_way_of_a_case_runs(case: CopyCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "N_BYTES", 2**17)
    ways = case.ways()
    assert set(ways) >= FLOORS | {"kernel", "NumPy"}
    for work in ways.values():
        work()


def test_the_report_compares_with_the_fastest_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**dict.fromkeys(FLOORS, 0.004), "floor, kernel": 0.002, "kernel": 0.003, "NumPy": 0.01}
    monkeypatch.setattr(race, "measure", lambda number, n_processes: found)
    (table,) = race.run()
    assert table.rows[0][2:] == (2.0, 3.0, 1.5, 10.0, None)
    assert len(table.rows) == len(race.cases())


@pytest.mark.slow("processes that copy for seconds")
def test_processes_measure_together() -> None:
    times = race.measure(number=2, n_processes=2)
    assert set(times) >= FLOORS and all(seconds > 0 for seconds in times.values())


def test_packs_are_compared_with_those_of_mpi() -> None:
    (table,) = packs.run("64KiB", repeat=2)
    assert [row[:2] for row in table.rows] == [
        (case.name, way) for case in type_cases(2**16) for way in ("pack", "unpack")
    ]
    assert all(value > 0 for row in table.rows for value in row[2:] if isinstance(value, float))
