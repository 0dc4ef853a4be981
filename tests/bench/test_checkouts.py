"""This checkout beside another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import checkouts
from bench.__main__ import main


def test_figures_of_both_kinds_of_files() -> None:
    entry = {"key": "redist", "times": {"median_s": 0.5}}
    absent = {"key": "heat", "times": None}
    data = {"cases": [{"name": "swap", "size_bytes": 8, "entries": [entry, absent]}]}
    assert checkouts.figures(data) == {"swap, 8 B, redist": 0.5}
    row = {"objective": "time", "kind": "even", "cases": 4, "median ms": 2.0}
    other = {"devices": 8, "worst s": 1.0}
    report = {"name": "planning", "tables": [{"rows": [row]}, {"rows": [other]}]}
    assert checkouts.figures({"reports": [report]}) == {"time, even": 2.0}


def test_both_are_measured_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Path] = []

    def measure(folder: Path, words: object) -> dict[str, object]:
        asked.append(folder)
        seconds = 1.0 if folder == tmp_path else 1.5
        entry = {"key": "redist", "times": {"median_s": seconds}}
        return {"cases": [{"name": "swap", "size_bytes": 8, "entries": [entry]}]}

    monkeypatch.setattr(checkouts, "_measure", measure)
    assert main(["compare-checkouts", str(tmp_path), "--works", "moves", "--rounds", "2"]) == 0
    assert asked == [tmp_path, checkouts.HERE, checkouts.HERE, tmp_path]
    assert "geomean of 1 rows 1.50" in capsys.readouterr().out


@pytest.mark.slow("starts a benchmark in another process")
def test_a_checkout_that_cannot_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__main__.py").write_text("raise SystemExit('no such thing')\n")
    assert main(["compare-checkouts", str(tmp_path), "--works", "overhead", "--rounds", "1"]) == 1
    assert "cannot run" in capsys.readouterr().err
