"""Every benchmark runs on a few problems, and says what it should."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

import redist
from bench.__main__ import main
from bench.benchmarks import EVERY
from bench.plans import collectives, hierarchy, overhead, planning, quality
from bench.plans.hierarchy import most_entries
from bench.problems.judge import WrongPlanError, judge
from bench.report.report import Table
from bench.xla import compare as xla
from tests.problems.problems import KINDS
from tests.tiers import sample

N = 20


def column(table: Table, name: str) -> list[object]:
    return [row[table.columns.index(name)] for row in table.rows]


def numbers(table: Table, name: str) -> list[float]:
    return [float(value) for value in column(table, name) if isinstance(value, (int, float))]


@pytest.mark.slow("plans beside their bound: tests/synth looks at some in make test")
def test_quality_meets_the_lower_bound_and_beats_naive() -> None:
    received, memory = quality.run(N, seed=1)
    assert column(received, "kind") == [*KINDS, "all"]
    assert 0 < numbers(received, "cases")[-1] <= numbers(memory, "cases")[-1] <= N
    ours, naive = numbers(received, "bytes"), numbers(received, "naive")
    assert ours[0] == 1.0 and all(a <= b for a, b in zip(ours, naive, strict=True))
    assert min(numbers(memory, "bytes")) >= 0.5  # two meshes may share no rank


def test_quality_takes_no_plan_on_trust() -> None:
    plan = redist.synthesize("i32[8{x}, 8]", "i32[8, 8{x}]", mesh=redist.Mesh(x=4))
    assert judge(plan) is plan
    less = replace(plan.steps[0], received_bytes=plan.steps[0].received_bytes - 4)
    with pytest.raises(WrongPlanError, match="bytes are received"):
        judge(replace(plan, steps=(less, *plan.steps[1:])))


@pytest.mark.slow("starts a process for every pattern")
def test_planning_times_every_problem_in_a_fresh_process() -> None:
    n = sample(5, of=20)
    times, repeated, devices = planning.run(n, seed=1)
    assert column(times, "cases") == [*[n // 5] * 5, n] * 2
    assert all(0 < ms < 60_000 for ms in numbers(times, "worst ms"))
    assert column(repeated, "given as") == ["types", "text"]
    assert column(devices, "pattern") == list(planning.PATTERNS)
    assert min(numbers(devices, "peak MiB")) > 10


@pytest.mark.slow("starts processes that plan")
def test_collectives_say_how_many_plans_are_proved_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = list(planning.PATTERNS)[: sample(1, of=len(planning.PATTERNS))]
    monkeypatch.setattr(planning, "PATTERNS", {name: planning.PATTERNS[name] for name in few})
    n = sample(2, of=40)
    times, devices = collectives.run(n, seed=1)
    assert column(times, "strategy") == [s for s in collectives.STRATEGIES for _ in range(3)]
    assert column(times, "cases")[2::3] == [n, n]
    assert all(0 <= share <= 100 for share in numbers(times, "exact, %"))
    over = [value for value in column(times, "over it, geomean") if value is not None]
    assert all(isinstance(value, (int, float)) and value >= 1 for value in over)
    assert len(devices.rows) == 2 * len(planning.PATTERNS)


def test_growth_asks_for_the_meshes_it_has_aims_for() -> None:
    assert set(planning.AIMS) <= set(map(str, planning.MESHES))
    assert planning.MESHES[-1].n_devices == 2**20


@pytest.mark.slow("64 devices on 8 nodes, twice")
def test_hierarchy_is_never_slower_than_direct() -> None:
    tables = hierarchy.run(N, seed=1)
    assert len(tables) == 2
    for table in tables:
        assert column(table, "target")[:2] == list(hierarchy.TARGETS)
        assert min(numbers(table, "least")) >= 1.0
    assert max(numbers(tables[0], "entries")[:2]) <= 1  # large tiles, ranks in order


def test_entries_are_counted_element_by_element() -> None:
    mesh = redist.Mesh(x=8, y=8)

    def entries(source: str, target: str, strategy: str) -> int:
        plan = redist.synthesize(
            source, target, mesh=mesh, strategy=strategy, topology=hierarchy.NODES
        )
        return most_entries(plan, hierarchy.NODES)

    assert entries("f32[4096{x}, 64]", "f32[4096, 64]", "direct") == 8
    assert entries("f32[4096{x}, 64]", "f32[4096, 64]", "auto") == 1
    assert entries("f32[4096{y}, 64]", "f32[4096, 64]", "direct") == 0  # stays inside a node
    assert entries("f32[4096]", "f32[4096{x}]", "auto") == 0  # only slices


def test_xla_skips_in_one_line_without_jax(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["xla", "--n", str(N)]) == 0
    said = capsys.readouterr()
    assert said.err == "xla: skipped, jax is not installed\n" and not said.out


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_xla_receives_at_least_the_lower_bound() -> None:
    (table,) = xla.run(N, seed=1)
    assert min(numbers(table, "XLA")) >= 1.0


def test_command_prints_a_table_and_stores_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "deep" / "quality.json"
    assert main(["quality", "--n", "5", "--seed", "2", "--json", str(stored)]) == 0
    shown = capsys.readouterr().out
    assert "Received bytes over the lower bound" in shown and str(stored) in shown
    data = json.loads(stored.read_text(encoding="utf-8"))
    assert data["options"] == {"which": "quality", "n": 5, "seed": 2}
    assert data["reports"][0]["tables"][0]["rows"][-1]["kind"] == "all"


def test_command_fails_on_a_wrong_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(plan: redist.Plan) -> redist.Plan:
        raise WrongPlanError("cannot measure this")

    monkeypatch.setattr(quality, "judge", wrong)
    stored = tmp_path / "q.json"
    assert main(["quality", "--n", "5", "--json", str(stored)]) == 1
    assert "cannot measure this" in capsys.readouterr().err and not stored.exists()


@pytest.mark.parametrize("wrong", [["speed"], ["quality", "--n", "0"]])
def test_command_refuses_nonsense(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(wrong)
    assert stopped.value.code == 2


def test_overhead_is_measured_on_results_that_agree() -> None:
    (table,) = overhead.run(2)
    assert [row[0] for row in table.rows] == list(overhead.OPERATIONS)


@pytest.mark.parametrize("name", EVERY)
def test_options_of_every_benchmark_are_those_of_its_run(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if EVERY[name].why_not:
        pytest.skip(str(EVERY[name].why_not))
    with pytest.raises(SystemExit) as stopped:
        main([*name.split(), "--help"])
    assert stopped.value.code == 0 and "--json" in capsys.readouterr().out


def test_a_wrong_table_is_printed_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(n: int = 1) -> tuple[Table, ...]:
        return (Table.of("received", "all wrong", [{"case": "a", "ms": 1.0}], is_wrong=True),)

    monkeypatch.setattr(quality, "run", run)
    assert main(["quality", "--json", str(tmp_path / "q.json")]) == 1
    assert "all wrong" in capsys.readouterr().out and (tmp_path / "q.json").exists()
