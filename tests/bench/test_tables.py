"""Stored figures, the tables made from them, and the pages that show them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.plans import comparison
from bench.report.figures import geomean
from bench.tables import command, renew
from bench.tables.markdown import fill, table_names
from bench.tables.stored import Stored, StoredRow, keep, read, write
from tests.tiers import sample

TIMES = {"n": 5, "least_s": 1.0, "low_s": 1.5, "median_s": 2.0, "high_s": 2.5, "most_s": 3.0}


def moved(date: str, contenders: dict[str, float | None], wrong: bool = False) -> dict[str, Any]:
    """What ``redist bench`` writes about one case; seconds by contender, None for one not there."""
    entries = []
    for key, seconds in contenders.items():
        times = None if seconds is None else {**TIMES, "median_s": seconds}
        ratio = None if seconds is None else seconds / (contenders["redist"] or 1.0)
        entry = {"key": key, "label": key, "is_wrong": wrong, "times": times}
        entries.append({**entry, "peak_bytes": 1, "planned_bytes": None, "times_redist": ratio})
    case = {"name": "swap", "size_bytes": 2**27, "floor": TIMES, "entries": entries}
    about = {"date": date, "redist": "0.2.0", "machine": {"cores": 2}, "mpi": "MPICH 5.0.2"}
    return {**about, "ranks": 8, "cases": [case]}


def kept(folder: Path, data: dict[str, Any]) -> Stored:
    path = folder / "found.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    keep(path, folder)
    return read("moves", folder)


def median(row: StoredRow) -> float:
    return row.found["median_s"]


def test_pages_show_what_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--check"]) == 0, capsys.readouterr().err


def test_the_readme_shows_tables() -> None:
    shown = [
        name
        for path in command.pages(command.ROOT)
        for name in table_names(path.read_text("utf-8"))
    ]
    assert {"comparison", "cpu-moves", "cpu-peers", "gpu-packs", "gpu-moves"} <= {
        name.removesuffix("-short") for name in shown
    }


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with nothing but a page that shows one table."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("nothing\n", encoding="utf-8")
    path = tmp_path / "docs" / "deep" / "cpu.md"
    path.write_text("a\n<!-- table: gpu-moves -->\n| old |\n<!-- end -->\nb\n", encoding="utf-8")
    return path


def test_check_fails_until_the_page_is_written(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", "--check"]) == 1
    said = capsys.readouterr().err
    assert "docs/deep/cpu.md" in said and "-| old |" in said and "--write" in said
    assert main(["tables", "--write"]) == 0
    assert main(["tables", "--check"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- table: gpu-moves -->\n| raw,") and text.endswith("-->\nb\n")
    page.write_text(text.replace("2.48", "1.48"), encoding="utf-8")
    assert main(["tables", "--check"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: cpu-moves -->\nno end",
        "<!-- table: cpu-moves -->\n<!-- table: cpu-peers -->\n<!-- end -->",
        "<!-- table: no-such-table -->\n<!-- end -->",
        "<!-- table: -->\n<!-- end -->",
    ],
)
def test_a_wrong_mark_is_told(page: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_text(text, encoding="utf-8")
    assert main(["tables", "--check"]) == 2
    assert "docs/deep/cpu.md: " in capsys.readouterr().err


def test_pages_without_marks_stay_as_they_are() -> None:
    assert fill("| a |\n", lambda name: ["new"]) == "| a |\n"


@pytest.mark.parametrize("name", command.known())
def test_every_table_can_be_made(name: str) -> None:
    lines = command.lines_of(name)
    if lines == [command.NONE]:
        return
    head = lines[0].replace("\\|", "").count("|")
    assert lines[1] == "|" + "---|" * (head - 1)
    rows = [line for line in lines[2:] if line.startswith("|")]
    assert rows and all(line.replace("\\|", "").count("|") == head for line in rows)
    assert any("easured " in line and "redist 0." in line for line in lines)


def test_stored_files_survive_a_round_trip(tmp_path: Path) -> None:
    for path in command.ROOT.glob("bench/results/*.json"):
        if path.stem != "gpu":
            stored = read(path.stem)
            assert stored.rows and {row.run for row in stored.rows} == set(stored.runs)
            write(path.stem, stored, tmp_path)
            assert read(path.stem, tmp_path) == stored
            assert (tmp_path / path.name).read_text("utf-8") == path.read_text("utf-8")


def test_a_run_without_a_library_keeps_the_row_it_had(tmp_path: Path) -> None:
    first = kept(tmp_path, moved("2026-01-01", {"redist": 1.0, "heat": 4.0}))
    assert [row.what["contender"] for row in first.rows] == ["floor", "redist", "heat"]
    second = kept(tmp_path, moved("2026-02-02", {"redist": 2.0, "heat": None}))
    rows = {row.what["contender"]: row for row in second.rows}
    assert median(rows["redist"]) == 2.0 and median(rows["heat"]) == 4.0
    assert second.runs[rows["redist"].run]["date"] == "2026-02-02"
    assert second.runs[rows["heat"].run]["date"] == "2026-01-01"
    (peer,) = read("peers", tmp_path).rows
    assert peer.what["library"] == "heat" and peer.found["geomean"] == 4.0
    third = kept(tmp_path, moved("2026-03-03", {"redist": 2.0, "heat": 6.0}))
    assert [run["date"] for run in third.runs.values()] == ["2026-03-03"]


def test_a_row_with_fewer_figures_replaces_nothing() -> None:
    full = Stored.of_run({"redist": "1"}, [({"example": "fft"}, {"ours": 1.0, "theirs": 2.0})])
    poor = Stored.of_run({"redist": "2"}, [({"example": "fft"}, {"ours": 3.0, "theirs": None})])
    assert full.merge(poor).rows == full.rows
    assert poor.merge(full).rows == full.rows
    again = replace(poor.rows[0], found={"ours": 3.0, "theirs": 5.0})
    assert full.merge(Stored(poor.runs, (again,))).rows == (again,)


def test_wrong_results_and_other_files_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="redist had a wrong result in swap"):
        kept(tmp_path, moved("2026-01-01", {"redist": 1.0}, wrong=True))
    assert not (tmp_path / "moves.json").exists()
    other = tmp_path / "plan.json"
    other.write_text("{}", encoding="utf-8")
    assert main(["keep", str(other)]) == 2
    assert "cannot keep plan.json" in capsys.readouterr().err


def test_what_a_benchmark_writes_can_be_kept(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    assert main(["overhead", "--n", "1", "--json", str(found)]) == 0
    (path,) = keep(found, tmp_path / "stored")
    assert path.name == "overhead.json"
    stored = read("overhead", tmp_path / "stored")
    assert stored.rows[0].what == {"table": "operations", "operation": "x + y"}
    (run,) = stored.runs.values()
    assert run["date"] and run["redist"] and run["machine"]["cores"]


def test_figures_name_known_benchmarks_and_say_how_long() -> None:
    found = renew.steps()
    assert {"quality", "planning", "examples", "overhead", "moves-mpi-8"} <= {s.name for s in found}
    assert all(step.minutes > 0 for step in found)
    with pytest.raises(SystemExit):
        renew.main(["speed"])


def test_a_benchmark_that_fails_leaves_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    step = renew.Measurement("broken", ("-c", "raise SystemExit(3)"), 1)
    monkeypatch.setattr(renew, "steps", lambda: [step])
    monkeypatch.setattr(command, "main", lambda arguments: 0)
    before = {path: path.read_bytes() for path in command.ROOT.glob("bench/results/*.json")}
    assert renew.main([]) == 1
    assert before == {path: path.read_bytes() for path in command.ROOT.glob("bench/results/*.json")}


ONCE_MORE = pytest.mark.slow("plans 120 problems once more")


@ONCE_MORE
@pytest.mark.parametrize("way", comparison.WAYS)
def test_figures_of_our_plans_have_not_become_worse(way: str) -> None:
    (row,) = read("comparison").select(table="received", planner=way)
    for devices in comparison.DEVICES[: sample(1, of=len(comparison.DEVICES))]:
        ratios = list(comparison.received_ratios(way, devices, comparison.EACH))
        mean = geomean(ratios)
        assert mean is not None and round(mean, 2) <= round(row.found[f"{devices} devices"], 2)
        assert round(max(ratios), 2) <= round(row.found["worst"], 2)
