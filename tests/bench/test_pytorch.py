"""The report beside PyTorch says what was found, losses included, and refuses wrong results."""

from __future__ import annotations

from typing import Any

import pytest

from bench.problems.judge import WrongPlanError
from bench.pytorch import race

MIB = 2**20


def found(ours_s: float, theirs_s: float, wrong: bool = False) -> dict[str, Any]:
    """What the job writes for one case and one refit; times and memory in one."""
    seconds = {
        "PyTorch": [theirs_s] * 3,
        "redist": [ours_s] * 3,
        "messages": [2 * ours_s] * 3,
    }
    peak = {"PyTorch": 10 * MIB, "redist": 2 * MIB, "messages": 3 * MIB}
    move = {
        "mesh": "4", "before": "S0", "after": "S1", "wrong": wrong, "seconds": seconds, "peak": peak,
        "source": 2 * MIB, "certified": {"redist": 4 * MIB, "messages": 4 * MIB}, "received": 8,
    }  # fmt: skip
    ways = {"redist": [ours_s], "full tensors": [theirs_s], "DCP": [3 * theirs_s]}
    refit = {
        "ranks": 2, "weights": 5, "bytes": MIB, "wrong": [], "own": "NotImplementedError",
        "first_s": 1.0, "seconds": ways, "peak": dict.fromkeys(ways, MIB),
        "received": dict.fromkeys(ways, MIB),
    }  # fmt: skip
    about = {"ranks": 4, "torch": "2.13.0", "bytes": 128 * MIB, "repeat": 3, "layers": 1}
    return {**about, "moves": [move], "refit": [refit]}


def test_gains_and_losses_are_said_alike() -> None:
    for ours_s, ratio in ((0.1, 4.0), (0.8, 0.5)):
        data = found(ours_s, 0.4)
        summary, moves, refit = race.tables(data, data)
        assert summary.rows[0][:4] == ("all", 1, pytest.approx(ratio), pytest.approx(ratio))
        assert summary.rows[0][5] == pytest.approx(4 / 12)
        assert summary.rows[0][7] == pytest.approx(1.0)
        assert dict(zip(moves.columns, moves.rows[0], strict=True))["redist MiB"] == 4.0
        assert [row[1] for row in refit.rows] == [
            "redist",
            "full tensors",
            "DCP",
            "redist, first call",
        ]
        assert refit.rows[2][5] == pytest.approx(3 * ratio)


def test_wrong_results_are_not_timed() -> None:
    data = found(0.1, 0.4, wrong=True)
    with pytest.raises(WrongPlanError, match="results differ"):
        race.tables(data, data)
