"""The benchmark of programs larger than memory, small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.larger import empty, race, waiting
from bench.larger.layers import LayerChain
from bench.problems.judge import WrongPlanError


def test_larger_measures_every_policy_within_every_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "TASK_S", 2e-4)
    monkeypatch.setattr(waiting, "RATIOS", (2,))
    monkeypatch.setattr(empty, "N", 50)
    stored = tmp_path / "found.json"
    words = ["--layers", "6", "--side", "64", "--rows", "8", "--repeats", "1"]
    assert main(["larger", *words, "--folder", str(tmp_path), "--json", str(stored)]) == 0
    measured, waited, loop = json.loads(stored.read_text())["reports"][0]["tables"]
    assert [row["memory"] for row in measured["rows"]] == ["unlimited", "50% of it", "25% of it"]
    assert measured["rows"][2]["loaded"] != measured["rows"][0]["loaded"]  # some twice
    assert len(waited["rows"]) == 4
    assert all(row["event-driven"] > 0.5 for row in waited["rows"])
    assert [row["vertices"] for row in loop["rows"]] == [101, 100, 150]
    assert "GB/s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_larger_takes_no_result_on_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = LayerChain(3, 8, 64)
    monkeypatch.setattr(LayerChain, "straight", lambda *args: np.zeros(1))
    with pytest.raises(WrongPlanError, match="other bits"):
        race.run(chain, str(tmp_path), 1)
