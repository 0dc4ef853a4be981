"""``redist plan``: what it prints, and the exit status of everything that can go wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from redist import Plan
from tests.cli.conftest import Run

SWAP = ("f32[64{x}, 64{y}]", "f32[64{y}, 64{x}]", "--mesh", "x=2,y=4")
GATHER = ("f32[8{x}]", "f32[8]", "--mesh", "x=2")


def test_prints_the_table(redist: Run) -> None:
    done = redist("plan", *SWAP)
    assert (done.status, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    assert first.startswith("f32[64{x}, 64{y}] -> f32[64{y}, 64{x}]")
    assert any(line.lstrip().startswith("1 exchange") for line in rest)


def test_explain_adds_the_alternatives(redist: Run) -> None:
    plain, more = redist("plan", *SWAP), redist("plan", *SWAP, "--explain")
    assert more.status == 0
    assert more.out.startswith(plain.out)
    assert "<- chosen" in more.out


@pytest.mark.parametrize(
    ("system", "call"), [("mpi4py", "Isend"), ("jax", "ppermute"), ("torch", "isend")]
)
def test_code_is_a_program(redist: Run, system: str, call: str) -> None:
    done = redist("plan", *SWAP, "--code", system)
    assert (done.status, done.err) == (0, "")
    compile(done.out, system, "exec")
    assert call in done.out and "redist" not in done.out.split('"""')[2]


def test_code_that_cannot_be_written_is_an_error(redist: Run) -> None:
    done = redist("plan", "f32[7{x}]", "f32[7]", "--mesh", "x=2", "--code", "jax")
    assert done.status == 2 and "do not divide 7" in done.err and not done.out


@pytest.mark.parametrize(
    "argv",
    [
        SWAP,
        GATHER,
        ("f32[10{x}, 7]", "f32[10, 7{x}]", "--mesh", "x=3"),
        ("f32[8{x}] sum{y}", "f32[8{y}]", "--mesh", "x=2,y=2", "--donate"),
        ("bf16[12{x}]", "bf16[12{z}]", "--mesh", "x=4", "--target-mesh", "z=3@8"),
        ("i8[12{x}]", "i8[12{z}]", "--mesh", "x=2@5;0", "--target-mesh", "z=3@2;0;9"),
        ("u8[5]", "u8[5]", "--mesh", "x=2", "--limit", "1KiB"),
    ],
)
def test_json_is_pure_and_round_trips(redist: Run, argv: tuple[str, ...]) -> None:
    done = redist("plan", *argv, "--json", "--explain")
    assert (done.status, done.err) == (0, "")
    data = json.loads(done.out)
    assert data["version"] == 1
    plan = Plan.from_json(done.out)
    assert json.loads(plan.to_json()) == data


def test_options_reach_the_plan(redist: Run, tmp_path: Path) -> None:
    topology = tmp_path / "nodes.toml"
    topology.write_text(
        "[[level]]\nsize = 4\nlatency_us = 1\nbandwidth_gb_s = 100\n"
        "[[level]]\nlatency_us = 5\nbandwidth_gb_s = 10\n",
        encoding="utf-8",
    )
    done = redist(
        "plan", *SWAP, "--objective", "bytes", "--strategy", "collectives", "--donate",
        "--limit", "1 MiB", "--topology", str(topology), "--json",
    )  # fmt: skip
    plan = Plan.from_json(done.out)
    assert (plan.objective, plan.strategy, plan.donate) == ("bytes", "collectives", True)
    assert plan.limit_bytes == 2**20
    flat = Plan.from_json(redist("plan", *SWAP, "--json").out)
    near = Plan.from_json(redist("plan", *SWAP, "--topology", str(topology), "--json").out)
    assert near.time_ps != flat.time_ps


def test_limit_holds_and_one_byte_less_does_not(redist: Run) -> None:
    refused = redist("plan", *GATHER, "--limit", "1")
    assert refused.status == 3
    line = refused.one_line()
    assert "48 bytes" in line
    assert "48 B" in line
    assert redist("plan", *GATHER, "--limit", "48").status == 0
    assert redist("plan", *GATHER, "--limit", "47").status == 3


def test_a_limit_beyond_all_numbers_is_refused_by_its_name(redist: Run) -> None:
    said = redist("plan", *GATHER, "--limit", "99999999999999999999999999TiB")
    assert said.status == 2
    assert "--limit='99999999999999999999999999TiB'" in said.one_line()
    assert "leave it out for no limit" in said.one_line()


def test_least_limit_is_also_said_for_people(redist: Run) -> None:
    line = redist("plan", *SWAP[:2], "--mesh", "x=2,y=4", "--limit", "2KiB").one_line()
    assert "4096 bytes" in line
    assert "4 KiB" in line
    assert "--limit 4096" in line


WRONG = {
    "unknown dtype": (("f33[8{x}]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*f33.*known: bool"),
    "no dtype": (("[8]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*dtype such as f32"),
    "empty type": (("", "f32[8]", "--mesh", "x=2"), "SOURCE: .*end of text"),
    "open brace": (("f32[8{x]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*character 8"),
    "negative dim": (("f32[-8]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*size of a dim"),
    "trailing text": (("f32[8]", "f32[8] x", "--mesh", "x=2"), "TARGET: .*sum, prod, max, min"),
    "unknown axis": (("f32[8{z}]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*'z'.*the mesh has x"),
    "axis twice": (("f32[8{x}, 8{x}]", "f32[8, 8]", "--mesh", "x=2"), "SOURCE: .*x twice"),
    "pending twice": (("f32[8{x}] sum{x}", "f32[8]", "--mesh", "x=2"), "SOURCE: .*x twice"),
    "wrong tile": (("f32[3{x}8]", "f32[8]", "--mesh", "x=2"), "SOURCE: .*is 4, not 3"),
    "other shape": (("f32[8{x}]", "f32[9]", "--mesh", "x=2"), "TARGET: .*expected f32.*of 8"),
    "other rank": (("f32[8{x}]", "f32[8, 1]", "--mesh", "x=2"), "TARGET: .*expected f32.*of 8"),
    "other dtype": (("f32[8{x}]", "i32[8]", "--mesh", "x=2"), "TARGET: .*expected f32"),
    "huge dim": ((f"f32[{'9' * 5000}]", "f32[8]", "--mesh", "x=2"), "SOURCE: "),
    "no mesh": (("f32[8{x}]", "f32[8]"), "--mesh.*redist plan --help"),
    "mesh without size": (("f32[8{x}]", "f32[8]", "--mesh", "x"), "--mesh: .*as in x=2"),
    "mesh of size 0": (("f32[8{x}]", "f32[8]", "--mesh", "x=0"), "--mesh: .*>= 1"),
    "mesh of size -2": (("f32[8{x}]", "f32[8]", "--mesh", "x=-2"), "--mesh: .*as in x=2"),
    "mesh axis twice": (("f32[8{x}]", "f32[8]", "--mesh", "x=2,x=2"), "--mesh: .*twice"),
    "mesh rank twice": (("f32[8{x}]", "f32[8]", "--mesh", "x=2@1;1"), "--mesh: .*twice"),
    "mesh too large": (("f32[8{x}]", "f32[8]", "--mesh", "x=2000000"), "--mesh: .*1048576"),
    "mesh far too large": (("f32[8{x}]", "f32[8]", "--mesh", f"x={'9' * 30}"), "--mesh: "),
    "target mesh": ((*GATHER, "--target-mesh", "z"), "--target-mesh: .*as in x=2"),
    "target axis": ((*GATHER, "--target-mesh", "z=0"), "--target-mesh: .*>= 1"),
    "limit": ((*GATHER, "--limit", "many"), "--limit: .*'many'.*64MiB"),
    "limit unit": ((*GATHER, "--limit", "64Q"), "--limit: .*'64Q'.*64MiB"),
    "negative limit": ((*GATHER, "--limit", "-5"), "--limit: .*'-5'.*64MiB"),
    "negative limit with unit": ((*GATHER, "--limit", "-5MiB"), "--limit.*redist plan --help"),
    "limit without value": ((*GATHER, "--limit"), "--limit.*redist plan --help"),
    "objective": ((*GATHER, "--objective", "speed"), "--objective.*'speed'.*time.*bytes"),
    "strategy": ((*GATHER, "--strategy", "best"), "--strategy.*'best'.*auto.*direct"),
    "no topology file": ((*GATHER, "--topology", "none.toml"), "--topology: .*No such file"),
    "unknown option": ((*GATHER, "--fast"), "'--fast'.*redist plan --help"),
    "abbreviated option": ((*GATHER, "--js"), "'--js'.*redist plan --help"),
    "too many types": (("f32[8]", "f32[8]", "f32[8]", "--mesh", "x=2"), "'f32.8.'.*--help"),
    "one type": (("f32[8]", "--mesh", "x=2"), "TARGET.*redist plan --help"),
    "line break": (("f32[8{\n}]\n{", "f32[8]", "--mesh", "x=2"), "SOURCE: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests_are_one_line(redist: Run, name: str) -> None:
    argv, expected = WRONG[name]
    done = redist("plan", *argv)
    assert done.status == 2
    line = done.one_line()
    assert len(line) < 1300
    assert re.search(expected, line), line


@pytest.mark.parametrize("option", ["--svg", "--html"])
def test_unwritable_picture_prints_no_plan(redist: Run, option: str, tmp_path: Path) -> None:
    for name in (tmp_path / "none" / "plan", tmp_path, ""):
        done = redist("plan", *GATHER, option, str(name))
        assert done.status == 2
        assert option in done.one_line()


def test_broken_topology_names_the_file(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    for text in ("not toml", "[[level]]\nlatency_us = -1\n", "", "[[level]]\nspeed = 1\n"):
        path.write_text(text, encoding="utf-8")
        done = redist("plan", *GATHER, "--topology", str(path))
        assert done.status == 2
        assert "broken.toml" in done.one_line()


def test_files_are_written_and_json_stays_pure(redist: Run, tmp_path: Path) -> None:
    svg, html = tmp_path / "a plan.svg", tmp_path / "plan.html"
    done = redist("plan", *SWAP, "--json", "--svg", str(svg), "--html", str(html))
    assert done.status == 0
    assert Plan.from_json(done.out).target.shape == (64, 64)
    assert [line.startswith("redist: wrote ") for line in done.err.splitlines()] == [True, True]
    ElementTree.parse(svg)
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
