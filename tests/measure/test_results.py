"""Results: the table to the letter, JSON, and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from redist.measure.results.chart import draw
from redist.measure.results.results import Entry, Outcome, Results, machine
from redist.measure.results.table import as_text
from redist.measure.timing import Times

MACHINE: dict[str, Any] = {
    "processor": "Abacus 1",
    "cores": 2,
    "system": "Linux x86_64",
    "python": "3.12.1",
    "numpy": "2.4.0",
}


def times(ms: float) -> Times:
    return Times(5, ms * 0.8e-3, ms * 0.9e-3, ms * 1e-3, ms * 1.1e-3, ms * 2e-3)


def made_up() -> Results:
    swap = Outcome(
        "swap",
        32 * 2**20,
        32 * 2**20,
        "f64[2048{x}, 2048{y}] -> f64[2048{y}, 2048{x}] on x=2,y=4",
        floor=times(4),
        entries=(
            Entry("naive", "naive all-gather", times=times(100), peak_bytes=42 * 2**20),
            Entry("by-hand", "Alltoallw", times=times(4.5), peak_bytes=-4096),
            Entry("redist", "redist", "", False, times(5), 8 * 2**20, 9 * 2**20),
            Entry("heat", "Heat resplit", "cannot: it cuts one dim"),
        ),
    )
    gather = Outcome(
        "gather",
        32 * 2**20,
        32 * 2**20,
        "f64[724{x}, 724] -> f64[724, 724] on x=8",
        floor=times(1),
        entries=(
            Entry("naive", "naive all-gather", times=times(20)),
            Entry("redist", "redist", "wrong result", is_wrong=True),
        ),
    )
    pencils = Outcome("slab-pencil", 1024, note="cannot measure 'slab-pencil' on 7 ranks: ...")
    return Results("MPICH 5.0.2", 8, 5, (swap, gather, pencils), MACHINE)


TABLE = """\
machine    8 ranks on 2 cores, Abacus 1, Linux x86_64
software   MPICH 5.0.2, Python 3.12.1, NumPy 2.4.0
times      median of 5 and quartiles, contenders in turn; results checked before and after
floor      the fastest contiguous copy, by every rank, of its tile of the target, all together
x redist   time as a multiple of redist's; below 1 is quicker than redist
peak       memory of the rank that needs most, with source and target

32 MiB in all
    contender            ms      quartiles   of floor   x redist     peak   planned
  swap: f64[2048{x}, 2048{y}] -> f64[2048{y}, 2048{x}] on x=2,y=4
    fastest copy       4.00    3.60 - 4.40
    naive all-gather    100     90.0 - 110        4 %      20.00   42 MiB         -
    Alltoallw          4.50    4.05 - 4.95       89 %       0.90      0 B         -
    redist             5.00    4.50 - 5.50       80 %       1.00    8 MiB     9 MiB
    Heat resplit       cannot: it cuts one dim
  gather: f64[724{x}, 724] -> f64[724, 724] on x=8
    fastest copy       1.00   0.900 - 1.10
    naive all-gather   20.0    18.0 - 22.0        5 %          -        -         -
    redist             wrong result
  naive        20.00 x redist (20.00 to 20.00, 1 case)
  by-hand      0.90 x redist (0.90 to 0.90, 1 case); quicker than redist: swap

1 KiB in all
    contender   ms   quartiles   of floor   x redist   peak   planned
  slab-pencil: cannot measure 'slab-pencil' on 7 ranks: ..."""


def test_the_table_shows_losses_as_plainly_as_gains() -> None:
    assert as_text(made_up()) == TABLE


def test_json_has_everything() -> None:
    results = made_up()
    data = json.loads(results.to_json())
    assert {key: data[key] for key in ("version", "mpi", "ranks", "repeats", "machine")} == {
        "version": 1,
        "mpi": "MPICH 5.0.2",
        "ranks": 8,
        "repeats": 5,
        "machine": MACHINE,
    }
    swap, gather, pencils = data["cases"]
    assert swap["name"] == "swap" and swap["size_bytes"] == swap["held_bytes"] == 32 * 2**20
    assert swap["floor"]["median_s"] == pytest.approx(4e-3)
    naive, _, ours, heat = swap["entries"]
    assert naive["times_redist"] == pytest.approx(20) and naive["of_floor"] == pytest.approx(0.04)
    assert set(naive["times"]) == {"n", "least_s", "low_s", "median_s", "high_s", "most_s"}
    assert ours["planned_bytes"] == 9 * 2**20 and ours["times_redist"] == 1.0
    assert heat["times"] is None and heat["note"].startswith("cannot")
    assert gather["entries"][1]["is_wrong"] and gather["entries"][0]["times_redist"] is None
    assert pencils["note"] and not pencils["entries"]


def test_a_wrong_result_is_remembered() -> None:
    results = made_up()
    assert not results.is_right
    assert Results("", 8, 5, results.outcomes[:1], MACHINE).is_right


def test_machine_is_named() -> None:
    assert set(machine()) == set(MACHINE) and machine()["cores"] >= 1


@pytest.mark.parametrize(("name", "start"), [("p.svg", b"<?xml"), ("p.png", b"\x89PNG")])
def test_picture(tmp_path: Path, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    assert draw(made_up(), str(path)) == f"wrote {path}"
    assert path.read_bytes().startswith(start)


def test_no_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install matplotlib" in draw(made_up(), "p.svg")
