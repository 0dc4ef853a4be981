"""``redist check``: accepts what the planner made, rejects what somebody changed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redist.plan.plan import Certificate
from redist.refits.plan import RefitPlan
from tests.cli.conftest import Run

REQUESTS = {
    "even": ("f32[64{x}, 64{y}]", "f32[64{y}, 64{x}]", "--mesh", "x=2,y=4"),
    "uneven": ("f32[10{x}, 7]", "f32[10, 7{x}]", "--mesh", "x=3"),
    "replicated": ("f32[8{x}, 8]", "f32[8, 8]", "--mesh", "x=2,y=2", "--donate"),
    "pending": ("f32[8{x}] sum{y}", "f32[8{y}]", "--mesh", "x=2,y=2"),
    "two meshes": ("i16[12{x}]", "i16[12{z}]", "--mesh", "x=4", "--target-mesh", "z=3@2"),
    "nothing to do": ("i16[12{x}]", "i16[12{x}]", "--mesh", "x=4"),
}


@pytest.fixture
def stored(redist: Run, tmp_path: Path) -> Callable[[str], Path]:
    """Plan a request of :data:`REQUESTS` and store it."""

    def store(name: str) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(redist("plan", *REQUESTS[name], "--json").out, encoding="utf-8")
        return path

    return store


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize("name", REQUESTS)
def test_accepts_and_proves(redist: Run, stored: Callable[[str], Path], name: str) -> None:
    done = redist("check", str(stored(name)))
    assert (done.status, done.err) == (0, "")
    accepted, proved = done.out.splitlines()
    assert accepted.startswith("accepted")
    assert proved.startswith("proved")


def test_reads_standard_input(
    redist: Run, stored: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = stored("even").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert redist("check", "-").status == 0


def test_writes_the_proof_question(
    redist: Run, stored: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "plan.smt2"
    done = redist("check", str(stored("even")), "--smt2", str(path))
    assert done.status == 0
    assert "plan.smt2" in done.err
    assert "(assert" in path.read_text(encoding="utf-8")
    done = redist("check", str(stored("even")), "--smt2", str(tmp_path / "none" / "plan.smt2"))
    assert done.status == 2
    assert "--smt2" in done.err


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Certificate("refuted", "source", 8, "", "z3", counterexample=(("n0", 7),)), "n0 = 7"),
        (Certificate("unknown", "source", 8, "", "z3", reason="out of time"), "out of time"),
    ],
)
def test_what_is_not_proved_fails(
    redist: Run,
    stored: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    verdict: Certificate,
    said: str,
) -> None:
    path = stored("even")
    monkeypatch.setattr("redist.check.prove.certify", lambda plan: verdict)
    done = redist("check", str(path))
    assert done.status == 1
    last = done.out.splitlines()[-1]
    assert last.startswith(verdict.verdict)
    assert said in last


def _set(data: dict[str, Any], value: Any, *keys: str | int) -> None:
    for key in keys[:-1]:
        data = data[key]  # type: ignore[index]
    data[keys[-1]] = value  # type: ignore[index]


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("steps", 0, "received_bytes"), 1, "step 1"),
        (("steps", 0, "messages"), [7, 7], "step 1"),
        (("steps", 0, "peak_bytes"), 1, "step 1"),
        (("steps", 0, "events", 0, "n_bytes"), 1, "step 1"),
        (("steps", 0, "op"), "all_permute", "step 1"),
        (("steps", 0, "after", "dims"), [["x"], ["y"]], ""),
        (("steps",), [], "the plan"),
        (("lower_bound_bytes",), 1, "the plan"),
        (("received_bytes",), 1, "received_bytes"),
        (("peak_bytes",), 1, "peak_bytes"),
        (("limit_bytes",), 1, "limit"),
    ],
)
def test_rejects_changed_plans_in_one_line(
    redist: Run,
    stored: Callable[[str], Path],
    keys: tuple[str | int, ...],
    value: Any,
    said: str,
) -> None:
    path = stored("even")
    change(path, lambda data: _set(data, value, *keys))
    done = redist("check", str(path))
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith("rejected")
    assert done.out.count("\n") == 1
    assert said in done.out


NO_PLAN = {
    "empty": "",
    "no JSON": "hello",
    "cut off": '{"version": 1,',
    "a list": "[1, 2]",
    "a number": "3",
    "another kind": '{"name": "redist", "private": true}',
    "another version": '{"version": 2}',
    "nothing but a version": '{"version": 1}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("command", ["check", "simulate"])
@pytest.mark.parametrize("name", NO_PLAN)
def test_what_is_no_plan_is_a_wrong_request(
    redist: Run, tmp_path: Path, name: str, command: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(NO_PLAN[name], encoding="utf-8")
    done = redist(command, str(path))
    assert done.status == 2
    line = done.one_line()
    assert "plan.json" in line
    assert "redist plan" in line


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("steps", 0, "op"), "teleport"),
        (("meshes",), []),
        (("meshes", 0, "axes"), [["x", -2], ["y", 4]]),
        (("meshes", 0, "axes"), [["x", 2**20], ["y", 4]]),
        (("meshes", 0, "axes"), [["x", 2**70], ["y", 4]]),
        (("source", "mesh"), 5),
        (("source", "dims"), [["w"], []]),
        (("dtype",), "f33"),
        (("shape",), [64]),
        (("shape",), [-64, 64]),
        (("shape",), "64"),
        (("received_bytes",), "many"),
        (("steps", 0, "received_bytes"), "many"),
        (("steps", 0, "received_bytes"), None),
        (("steps", 0, "events"), 3),
        (("certificate",), 3),
        (("steps",), None),
    ],
)
def test_broken_fields_never_break_the_command(
    redist: Run, stored: Callable[[str], Path], keys: tuple[str | int, ...], value: Any
) -> None:
    path = stored("even")
    change(path, lambda data: _set(data, value, *keys))
    done = redist("check", str(path))
    assert done.status in (1, 2)
    if done.status == 2:
        done.one_line()


@pytest.mark.parametrize("command", ["check", "simulate"])
def test_unreadable_files(redist: Run, tmp_path: Path, command: str) -> None:
    assert "No such file" in redist(command, str(tmp_path / "none.json")).one_line()
    assert redist(command, str(tmp_path)).status == 2
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00\x80")
    done = redist(command, str(path))
    assert done.status == 2
    assert "binary.json" in done.one_line()


MANIFEST = """\
{"tensor": ["w", [4, 6], 2]}
{"source": [0, "w", 48]}
{"source_box": [0, "w", [0, 0], [4, 6], 0]}
{"target": [1, "w", 48]}
{"target_box": [0, "w", [0, 0], [4, 6], 0]}
{"run": [0, 0, 0, 0, 0, 24]}
"""
REST = '{"run": [0, 0, 24, 0, 24, 24]}\n'


def test_manifests_of_runs_are_judged(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(MANIFEST + REST, encoding="utf-8")
    done = redist("check", str(path))
    assert done.status == 0
    assert done.out.startswith("right      2 runs write each byte of 1 target box once")
    assert "received   48 B = 1.00 x lower bound" in done.out
    assert re.search(r"^ +1 +48 B +48 B +0 B +48 B$", done.out, re.MULTILINE)
    full = redist("check", str(path), "--limit", "40B")
    assert full.status == 1
    assert "wrong      too much in a round: rank 0 sends and receives 48 B in round 0" in full.out
    path.write_text(MANIFEST, encoding="utf-8")
    done = redist("check", str(path), "--limit", "24B")
    assert done.status == 1
    assert "never written: byte 24 of 'w' on rank 1, w[2, 0], 24 bytes (1 box)" in done.out


def test_manifests_on_standard_input(redist: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO((MANIFEST + REST).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    assert redist("check", "-").status == 0


def test_wrong_manifests_and_options_are_one_line(
    redist: Run, stored: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(MANIFEST + '{"run": 1}\n', encoding="utf-8")
    assert "cannot use runs" in redist("check", str(path)).one_line()
    path.write_text(MANIFEST, encoding="utf-8")
    assert "--smt2" in redist("check", str(path), "--smt2", "x").one_line()
    assert "40G" in redist("check", str(path), "--limit", "40G").one_line()
    assert "its own limit" in redist("check", str(stored("even")), "--limit", "1GiB").one_line()
    assert "No such file" in redist("check", str(tmp_path / "none.npz")).one_line()


SIDES = {
    "train": ('mesh = "dp=2"', "{dp}, {}"),
    "serve": ('mesh = "tp=2@2"', "{}, {tp}"),
}


@pytest.fixture
def refit(redist: Run, tmp_path: Path) -> Path:
    """The plan of a refit, in rounds."""
    for name, (mesh, cuts) in SIDES.items():
        text = f'{mesh}\n[types]\n"*" = "{cuts}"\n[shapes]\n"l.{{0..1}}.w" = "f32[8, 8]"\n'
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    sides = [str(tmp_path / f"{name}.toml") for name in SIDES]
    path = tmp_path / "refit.json"
    assert redist("refit", *sides, "--limit", "128", "--json", str(path)).status == 0
    return path


def test_refits_are_judged_by_kinds_and_run_by_run(redist: Run, refit: Path) -> None:
    RefitPlan.load(refit).save(refit.with_suffix(".refit"))
    for path in (refit, refit.with_suffix(".refit")):
        done = redist("check", str(path))
        assert (done.status, done.err) == (0, "")
        proved, right, *_ = done.out.splitlines()
        assert proved.startswith("certificate proved: every element of 2 tensors")
        assert right.startswith("right ") and "limit 128 B" in done.out
    for option in (["--limit", "1KiB"], ["--smt2", "x"]):
        assert redist("check", str(refit), *option).status == 2
    change(refit, lambda data: data["turns"].reverse())
    done = redist("check", str(refit))
    assert done.status == 2 and "cannot read the refit: its digest is" in done.err
