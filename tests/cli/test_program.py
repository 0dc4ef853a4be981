"""``redist program``: functions in files, explained for machines that are not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redist.cli.main import main
from redist.errors import PlanFormatError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan

STEP = """\
from redist import pgas

@pgas.program
def step(x, w):
    return pgas.tanh(x @ w) + pgas.sum(x, axis=1, keepdims=True)

def reads(x):
    return float(pgas.sum(x))

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "steps.py"
    path.write_text(STEP, encoding="utf-8")
    return str(path)


def test_prints_calls_and_moves(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    types = ("f64[1048576{x}, 4096]", "f64[4096, 1048576{y}]")
    assert main(["program", f"{file}:step", *types, "--mesh", "x=64,y=16"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("step: 4 calls") and "steps.py:5" in said and "mesh x=64,y=16" in said


def test_writes_json_and_pictures(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, html = tmp_path / "step.svg", tmp_path / "step.html"
    types = ("f64[64{x}, 32]", "f64[32, 64{x}]")
    words = ["--mesh", "x=4", "--json", "--svg", str(svg), "--html", str(html)]
    assert main(["program", f"{file}:step", *types, *words]) == 0
    said = capsys.readouterr().out
    graph = ProgramGraph.from_json(said)
    assert json.loads(said)["name"] == graph.name == "step" and graph.moves
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert "<pre>" in html.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("steps", "need FILE:FUNCTION"),
        ("nowhere.py:step", "there is no such file"),
        ("{file}:missing", "cannot find the function 'missing'"),
        ("{file}:number", "cannot find the function 'number'"),
        ("{file}:reads", "cannot read f64[]"),
    ],
)
def test_mistakes_are_one_line(
    what: str, words: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = what.replace("{file}", file)
    types = ["f64[8{x}, 8]"]
    assert main(["program", given, *types, "--mesh", "x=2"]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_file_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("1 / 0\n", encoding="utf-8")
    assert main(["program", f"{path}:f", "f64[8]", "--mesh", "x=2"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_plans_layouts(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = tmp_path / "plan.html"
    types = ("f64[4096{x}, 512]", "f64[512, 4096{x}]")
    words = ["--mesh", "x=4", "--plan", "--html", str(html)]
    assert main(["program", f"{file}:step", *types, *words]) == 0
    said = capsys.readouterr().out
    assert said.startswith("step: 4 calls") and "exact: no layouts can be below" in said
    assert "computing alone" in html.read_text(encoding="utf-8")
    assert main(["program", f"{file}:step", *types, *words, "--json"]) == 0
    plan = ProgramPlan.from_json(capsys.readouterr().out)
    assert str(plan) == said.rstrip("\n") and plan.bound_ps == plan.time_ps
    assert plan.floor_ps <= plan.bound_ps <= plan.written_ps and len(plan.rows) == 4
    with pytest.raises(PlanFormatError, match="expected the format"):
        ProgramPlan.from_json("{}")
    with pytest.raises(PlanFormatError, match="cannot read a plan"):
        ProgramPlan.from_json('{"format": "redist program plan 1"}')
