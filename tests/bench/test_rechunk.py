"""The benchmark of rechunking, small."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.problems.judge import WrongPlanError
from bench.rechunk import race, ways

needs_zarr = pytest.mark.skipif(
    find_spec("zarr") is None, reason="needs zarr: make store has an environment with it"
)


def test_the_formula_does_not_depend_on_the_box() -> None:
    shape = (6, 5, 4)
    whole = ways.values(shape, tuple(slice(0, n) for n in shape))
    part = ways.values(shape, (slice(2, 5), slice(1, 4), slice(0, 3)))
    assert np.array_equal(whole[2:5, 1:4, :3], part)
    assert whole.dtype == np.float32
    assert len(np.unique(whole)) > 100


@needs_zarr
def test_a_race_of_redist_alone(tmp_path: Path) -> None:
    stored = tmp_path / "found.json"
    words = ["--steps", "32", "--side", "32", "--chunk", "8", "--ways", "redist"]
    assert main(["rechunk", *words, "--folder", str(tmp_path), "--json", str(stored)]) == 0
    (table,) = json.loads(stored.read_text())["reports"][0]["tables"]
    (row,) = table["rows"]
    assert (row["way"], row["result"]) == ("redist", "right")
    assert row["processor s"] > 0
    assert row["peak MiB"] > 10
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@needs_zarr
def test_wrong_elements_end_the_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "is_right", lambda *given: False)
    with pytest.raises(WrongPlanError, match="redist wrote other elements"):
        race.run(steps=8, side=8, chunk=4, ways="redist", folder=str(tmp_path))


@needs_zarr
def test_a_library_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    (table,) = race.run(steps=8, side=8, chunk=4, ways="redist", limit_s=0.0, folder=str(tmp_path))
    assert table.rows[0][-1] == "ended after 0 s"
