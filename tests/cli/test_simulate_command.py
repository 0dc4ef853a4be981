"""``redist simulate``: plans run on data, and what is measured is what was planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_check_command import REQUESTS


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_run_correctly(redist: Run, name: str) -> None:
    done = redist("simulate", *REQUESTS[name], "--seed", "3")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert any(line.startswith("result     correct") and "seed 3" in line for line in lines)
    assert lines[-2].startswith("received ")
    assert lines[-1].startswith("memory ")


def test_stored_plans_run_too(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(redist("plan", *REQUESTS["even"], "--json").out, encoding="utf-8")
    stored, asked = redist("simulate", str(path)), redist("simulate", *REQUESTS["even"])
    assert stored.status == 0
    assert stored.out == asked.out


def test_many_ranks_are_cut_short(redist: Run) -> None:
    done = redist("simulate", "u8[64{x}]", "u8[64]", "--mesh", "x=64")
    assert done.status == 0
    assert "and 48 more ranks" in done.out


@pytest.mark.parametrize(
    ("field", "said"), [("received_bytes", "DIFFERS"), ("events", "OVER the plan")]
)
def test_plans_that_lie_are_found_out(redist: Run, tmp_path: Path, field: str, said: str) -> None:
    path = tmp_path / "plan.json"
    data = json.loads(redist("plan", *REQUESTS["even"], "--json").out)
    if field == "events":
        data["steps"][0]["events"][0]["n_bytes"] = 1
    else:
        data["steps"][0][field] = 1
    path.write_text(json.dumps(data), encoding="utf-8")
    done = redist("simulate", str(path))
    assert done.status == 1
    assert said in done.out


def test_wrong_results_are_found_out(redist: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from redist.runtime import simulator

    right = simulator.simulate

    def wrong(*args, **options):
        run = right(*args, **options)
        rank = max(run.tiles)
        run.tiles[rank] = run.tiles[rank] + 1
        return run

    monkeypatch.setattr(simulator, "simulate", wrong)
    done = redist("simulate", *REQUESTS["even"])
    assert done.status == 1
    assert "WRONG" in done.out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("f32[8{x}]", "f32[8]"), "--mesh is missing"),
        (("plan.json", "--mesh", "x=2"), "--mesh goes with SOURCE and TARGET"),
        (("plan.json", "--donate"), "--donate goes with SOURCE and TARGET"),
        (("plan.json", "--target-mesh", "x=2"), "--target-mesh goes with"),
        (("plan.json", "--seed", "-1"), "--seed: cannot use '-1'"),
        (("plan.json", "--seed", "x"), "--seed: cannot use 'x'"),
        (("plan.json", "--max-memory", "1"), "No such file"),
        (("f32[8{x}]", "f32[8]", "--mesh", "x=2", "--max-memory", "9Q"), "--max-memory: "),
        (("f32[8{x}]", "f32[8]", "--mesh", "x=2", "--max-memory", "1"), "raise --max-memory"),
        (("f32[99999{x}, 99999]", "f32[99999, 99999]", "--mesh", "x=2"), "use smaller dims"),
        ((), "FILE|SOURCE"),
    ],
)
def test_wrong_requests_are_one_line(redist: Run, argv: tuple[str, ...], said: str) -> None:
    done = redist("simulate", *argv)
    assert done.status == 2
    assert said in done.one_line()


def test_limit_too_small(redist: Run) -> None:
    done = redist("simulate", "f32[8{x}]", "f32[8]", "--mesh", "x=2", "--limit", "8")
    assert done.status == 3
    done.one_line()
