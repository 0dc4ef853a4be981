"""Topologies: levels, times, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import TopologyError
from redist.layout.mesh import Mesh
from redist.plan.rates import FLAT
from redist.plan.topology import Level, Topology, format_topology
from redist.planner import synthesize
from tests.tiers import sample

GOOD = """
[[level]]
name = "node"
size = 4
latency_us = 1.5
bandwidth_gb_s = 50

[[level]]
name = "rack"
size = 16
latency_us = 2
bandwidth_gb_s = 12.5

[[level]]
latency_us = 10
bandwidth_gb_s = 3
"""


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert (
        Topology.load(path)
        == Topology.load(str(path))
        == Topology(
            (
                Level("node", 4, 1_500_000, 20_000),
                Level("rack", 16, 2_000_000, 80_000),
                Level("level2", None, 10_000_000, 333_333),
            )
        )
    )


def test_the_default_is_one_level() -> None:
    assert FLAT.level_of(0, 10**6) == 0
    assert FLAT.levels[0].time_ps(3, 10_000) == 3 * 10**6 + 10**6  # 1 us each, 10 GB/s


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_ranks_meet_at_the_first_block_that_has_both(factors: list[int], a: int, b: int) -> None:
    sizes: list[int] = []
    for factor in factors:
        sizes.append(factor * (sizes[-1] if sizes else 1))
    topology = Topology((*(Level("", size, 1, 1) for size in sizes), Level("all", None, 1, 1)))
    found = topology.level_of(a, b)
    assert found == topology.level_of(b, a)
    for number, size in enumerate(sizes):
        blocks = [set(range(at, at + size)) for at in range(0, 104, size)]
        together = any({a, b} <= block for block in blocks)
        if together:
            assert found <= number
        else:
            assert found > number


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(st.integers(0, 100), st.integers(0, 10**15), st.integers(0, 10**15))
def test_time_is_a_whole_number_and_obeys_the_triangle_inequality(
    messages: int, one: int, two: int
) -> None:
    level = Level("net", None, 1_234_567, 33_333)
    time = level.time_ps(messages, one)
    assert type(time) is int
    exact = messages * 1_234_567 * 1000 + one * 33_333
    assert 0 <= time * 1000 - exact < 1000
    assert level.time_ps(messages, one + two) <= time + level.time_ps(messages, two)


TABLE = {"latency_us": 1, "bandwidth_gb_s": 1}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "need one [[level]] table per level"),
        ({"level": []}, "need one [[level]] table per level"),
        ({"level": {"size": 3}}, "need one [[level]] table per level"),
        ({"levels": [TABLE]}, "need one [[level]] table per level"),
        ({"level": [1]}, "level 1: need a table with latency_us and bandwidth_gb_s"),
        ({"level": [TABLE, "net"]}, "level 2: need a table with latency_us and bandwidth_gb_s"),
        (
            {"level": [{**TABLE, "latency": 1}]},
            "level 1: unknown key 'latency'; known: name, size, latency_us, bandwidth_gb_s, link_gb_s",
        ),
        ({"level": [{**TABLE, "size": 2.5}]}, "level 1: size must be a whole number"),
        ({"level": [{**TABLE, "size": True}]}, "level 1: size must be a whole number"),
        ({"level": [{"latency_us": 1}]}, "level 1: bandwidth_gb_s must be a positive number"),
        ({"level": [{"bandwidth_gb_s": 1}]}, "level 1: latency_us must be a positive number"),
        (
            {"level": [{**TABLE, "latency_us": "1us"}]},
            "level 1: latency_us must be a positive number",
        ),
        (
            {"level": [{**TABLE, "latency_us": True}]},
            "level 1: latency_us must be a positive number",
        ),
        ({"level": [{**TABLE, "latency_us": -1}]}, "level 1: latency_us is -1; need 1e-9 to 1e9"),
        ({"level": [{**TABLE, "latency_us": 0}]}, "level 1: latency_us is 0; need 1e-9 to 1e9"),
        (
            {"level": [{**TABLE, "latency_us": float("nan")}]},
            "level 1: latency_us is nan; need 1e-9 to 1e9",
        ),
        (
            {"level": [{**TABLE, "bandwidth_gb_s": float("inf")}]},
            "level 1: bandwidth_gb_s is inf; need 1e-9 to 1e9",
        ),
        (
            {"level": [{**TABLE, "bandwidth_gb_s": 1e-300}]},
            "level 1: bandwidth_gb_s is 1e-300; need 1e-9 to 1e9",
        ),
        (
            {"level": [{**TABLE, "size": 4}]},
            "a topology needs a last level without a size: it spans all ranks",
        ),
        (
            {"level": [{**TABLE, "name": "net"}, TABLE]},
            "level 'net' needs a size: only the last spans all",
        ),
        (
            {"level": [{**TABLE, "size": 4}, {**TABLE, "size": 6, "name": "rack"}, TABLE]},
            "level 'rack' has size 6; need a multiple of 4",
        ),
        (
            {"level": [{**TABLE, "size": 0, "name": "node"}, TABLE]},
            "level 'node' has size 0; need a multiple of 1",
        ),
        (
            {"level": [{**TABLE, "size": -2, "name": "node"}, TABLE]},
            "level 'node' has size -2; need a multiple of 1",
        ),
    ],
)
def test_tables_that_make_no_topology(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_tables(tables, "net.toml")
    assert str(caught.value) == f"cannot read net.toml: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "need one [[level]] table per level"),
        (b"[[level]\n", "(at line 1, column 8)"),
        (b"[[level]]\nsize = \n", "(at line 2, column 8)"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"level = 3\n", "need one [[level]] table per level"),
        (b"level = [3]\n", "level 1: need a table"),
        (b"[[level]]\nlatency_us = inf\nbandwidth_gb_s = 1\n", "latency_us is inf"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "net.toml"
    path.write_bytes(content)
    with pytest.raises(TopologyError) as caught:
        Topology.load(path)
    text = str(caught.value)
    assert text.startswith("cannot read ")
    assert str(path) in text
    assert message in text
    assert "\n" not in text


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(TopologyError) as caught:
        Topology.load(missing)
    assert str(caught.value) == f"cannot read topology {missing}: No such file or directory"
    with pytest.raises(TopologyError, match="Is a directory"):
        Topology.load(tmp_path)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((), "needs a last level without a size"),
        ((Level("node", 4, 1, 1),), "needs a last level without a size"),
        ((Level("all", None, -1, 1),), "level 'all': latency and bandwidth must be positive"),
        ((Level("all", None, 1, -1),), "level 'all': latency and bandwidth must be positive"),
    ],
)
def test_levels_that_make_no_topology(levels: tuple[Level, ...], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology(levels)


def test_a_step_costs_what_the_file_says() -> None:
    tables = {"level": [{"latency_us": 1, "bandwidth_gb_s": 10}]}
    plain = Topology.from_tables(tables)
    dear = Topology.from_tables({**tables, "step_us": 1000})
    assert (plain.step_ps, dear.step_ps) == (0, 10**9)
    mesh = Mesh(x=8)
    ask = ("f32[8{x}, 64]", "f32[8, 64]")
    few = synthesize(*ask, mesh=mesh, topology=dear)
    many = synthesize(*ask, mesh=mesh, topology=plain)
    assert len(few.steps) == 1 < len(many.steps)
    assert few.time_ps == synthesize(*ask, mesh=mesh, strategy="direct").time_ps + 10**9


@pytest.mark.parametrize("step", [-1, "quick", True, 1e10])
def test_steps_that_cannot_cost_that(step: Any) -> None:
    tables = {"step_us": step, "level": [{"latency_us": 1, "bandwidth_gb_s": 10}]}
    with pytest.raises(TopologyError, match="step_us must be a number from 0 to 1e9"):
        Topology.from_tables(tables)


def test_a_misspelt_key_beside_the_levels() -> None:
    tables = {"stepus": 3, "level": [{"latency_us": 1, "bandwidth_gb_s": 10}]}
    with pytest.raises(TopologyError, match="unknown key 'stepus'; known: step_us"):
        Topology.from_tables(tables)


def test_links_are_shared_by_the_ranks_of_a_block(tmp_path: Path) -> None:
    near, far = Level("node", 2, 0, 1000), Level("network", None, 0, 1000, 1000)
    topology = Topology((near, far))
    mesh = Mesh(x=4)
    plan = synthesize("u8[4000{x}]", "u8[4000]", mesh=mesh, topology=topology, strategy="direct")
    # A rank gets 1000 from its neighbour, both together 4000 by the link.
    assert plan.time_ps == 1000 + 4000
    path = tmp_path / "topology.toml"
    path.write_text(format_topology(topology), encoding="utf-8")
    assert Topology.load(path).levels[1] == far


def test_ranks_of_the_nearest_level_share_no_link() -> None:
    with pytest.raises(TopologyError, match="share no link"):
        Topology((Level("all", None, 0, 1000, 1000),))
