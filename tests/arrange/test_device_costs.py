"""Costs of computing: classes of operations, files, and plans that know them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from redist import Mesh, Topology
from redist.arrange.device_file import costs_lines, format_costs, load_costs, read_costs
from redist.arrange.ein_graph import EinGraph, EinInput, EinNode
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layouts import plan_layouts
from redist.arrange.strategies import kind_of
from redist.cli.main import main
from redist.errors import CheckError, TopologyError
from redist.layout.axes import whole
from redist.layout.dtype import DType
from redist.plan.rates import CPU, FLAT, GPU, KINDS, DeviceCosts, OperationCost
from redist.plan.topology import format_topology

SIZES = dict.fromkeys("ijk", 64)
NODES = {
    "product": EinNode("ij,jk->ik", (~0, ~1), SIZES),
    "map": EinNode("ij,ij->ij", (~0, ~1), SIZES, "add"),
    "reduce": EinNode("ij->i", (~0,), SIZES, "copy", "max"),
    "copy": EinNode("ij->ji", (~0,), SIZES, "copy"),
}


def test_classes_of_operations() -> None:
    assert {kind: kind_of(node) for kind, node in NODES.items()} == {kind: kind for kind in KINDS}
    assert kind_of(EinNode("ij,ij->i", (~0, ~1), SIZES, "subtract")) == "reduce"
    assert kind_of(EinNode("ij,jk->ik", (~0, ~1), SIZES, agg="max")) == "reduce"
    assert kind_of(EinNode("ij,j->ij", (~0, ~1), SIZES)) == "map"


@pytest.mark.parametrize("kind", KINDS)
def test_plans_and_the_judge_know_the_class_and_the_dtype(kind: str) -> None:
    mesh, node = Mesh(x=4), NODES[kind]
    prices = {"product": 3, "map": 5, "reduce": 7, "copy": 11}
    device = DeviceCosts(
        13_000, 0, tuple(OperationCost(k, "f32", 1000 * fs) for k, fs in prices.items())
    )
    given = tuple(EinInput(tuple(node.sizes[label] for label in term)) for term in node.terms)
    points = 64 ** len(node.labels) // 4
    plan = plan_layouts(EinGraph(given, (node,)), mesh, [whole(mesh, "x")], FLAT, device)
    assert plan.work_ps == plan.compute_ps == points * prices[kind]
    judge_layouts(plan, device)
    with pytest.raises(CheckError, match="work of"):
        judge_layouts(plan, DeviceCosts(1000, 0))
    other = replace(node, dtype=DType.parse("i64"))
    plan = plan_layouts(EinGraph(given, (other,)), mesh, [whole(mesh, "x")], FLAT, device)
    assert plan.work_ps == points * 13
    judge_layouts(plan, device)


def test_costs_are_in_the_file_of_the_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "here.toml"
    path.write_text(format_topology(FLAT), encoding="utf-8")
    assert load_costs(path, "gpu") == GPU  # as before there were costs
    assert load_costs(path) == CPU
    gpu = DeviceCosts(2000, 250, (OperationCost("product", "bf16", 4),))
    text = format_topology(FLAT) + "\n" + format_costs({"cpu": GPU, "gpu": gpu})
    path.write_text(text, encoding="utf-8")
    assert Topology.load(path) == FLAT
    assert load_costs(path) == GPU and load_costs(path, "gpu") == gpu
    assert main(["doctor", "--topology", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for line in costs_lines({"cpu": GPU, "gpu": gpu}))
    assert main(["doctor", "--topology", str(tmp_path / "none.toml")]) == 2


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({}, "need .*computing.* tables"),
        ([{"speed": 1}], "unknown key 'speed'"),
        ([{"product": 3}], "must be a table of dtypes"),
        ([{"map": {"f32": 0}}], "map.f32 is 0"),
        ([{"memory_gb_s": "fast"}], "memory_gb_s is 'fast'"),
    ],
)
def test_files_that_make_no_sense(tables: object, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        read_costs({"computing": tables})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="cannot read"):
        load_costs(tmp_path / "none.toml")
    path = tmp_path / "bad.toml"
    path.write_text("= 3", encoding="utf-8")
    with pytest.raises(TopologyError, match="cannot read"):
        load_costs(path)
