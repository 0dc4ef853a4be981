"""Other libraries: what each can express, and figures from what an MPI job wrote."""

from __future__ import annotations

import importlib.util
import io
import math
import os

import pytest

from bench.__main__ import main
from bench.peers import CONTENDERS, jax_devices
from bench.peers.jax import question
from bench.problems import installed
from bench.problems.judge import WrongPlanError
from bench.xla import race as jax_race
from bench.xla.race import cases
from redist.measure.cases import KINDS, make_case

_MOVES = {"rows-columns", "columns-rows", "slab-0-1", "slab-0-2", "slab-2-0", "uneven"}
PLAIN = set(KINDS) - {"cyclic-rows", "cyclic-cyclic", "ragged", "fused-qkv", "experts"}
CAN = {
    "mpi4py-fft": _MOVES | {"pencil-pencil"},
    "heat": _MOVES | {"gather", "cut"},
    "dtensor": PLAIN - {"axis-order", "sub-axes", "two-meshes"},
    "jax-jit": PLAIN - {"uneven", "sum-cut", "sum-all", "two-meshes"},
    "jax-put": PLAIN - {"uneven", "sum-cut", "sum-all", "two-meshes"},
}


@pytest.mark.parametrize("name", CONTENDERS)
def test_each_says_what_it_cannot_express(name: str) -> None:
    (way,) = CONTENDERS[name]
    reasons = {kind: way.why_not(make_case(kind, 2**20, 8)) for kind in KINDS}
    assert {kind for kind, reason in reasons.items() if reason is None} == CAN[name]
    assert all(reason is None or "\n" not in reason for reason in reasons.values())


@pytest.mark.parametrize("name", CONTENDERS)
def test_each_says_that_it_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    assert CONTENDERS[name][0].absent() == "not installed"
    assert installed.why_absent("json") == "not installed"


def test_random_cases_for_jax_have_the_size_asked_for() -> None:
    asked = list(cases(20, 0, 2**20, 8))
    assert len(asked) == 20 and len({case.name for case in asked}) == 20
    for case in asked:
        n_bytes = case.source.global_elems * case.source.dtype.itemsize
        assert n_bytes == pytest.approx(2**20, rel=0.1)
        assert case.source.is_even and case.target.is_even
        assert math.prod(size for _, size in question(case.source, case.target)["axes"]) == 8
        assert question(case.source, case.target)["source"] == str(case.source)


def test_the_child_answers_no_question(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["jax_devices", "8"])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    for name in ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
    jax_devices.main()
    assert capsys.readouterr().out == ""
    assert os.environ["XLA_FLAGS"].endswith("device_count=8")


def data(jit: float, wrong: bool = False) -> dict[str, object]:
    seconds = {"redist": 1.0, "redist-any": 2.0, "jax-jit": jit, "jax-put": 1.0}
    entries = [
        {"key": key, "times": {"median_s": s}, "is_wrong": wrong, "note": "wrong result"}
        for key, s in seconds.items()
    ]
    return {
        "cases": [{"text": "a case", "entries": entries}] * 4,
        "ranks": 8,
        "repeats": 5,
        "mpi": "MPICH 5.0.2",
        "machine": {"cores": 2},
    }


def test_race_with_jax_prints_losses_too() -> None:
    (table,) = jax_race.table(data(4.0))
    rows = {row[:2]: row[2:] for row in table.rows}
    assert rows["jax-jit", "redist"] == (4, pytest.approx(4.0), 4.0, 4.0, 4.0, 4.0, 4.0, 4)
    assert rows["jax-put", "redist-any"][1] == pytest.approx(0.5)
    assert rows["jax-put", "redist-any"][-1] == 0


def test_race_with_jax_takes_no_result_on_trust() -> None:
    with pytest.raises(WrongPlanError, match="cannot compare a case: redist: wrong result"):
        jax_race.table(data(4.0, wrong=True))


def test_race_is_skipped_in_one_line_without_jax(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    assert main(["jax", "--n", "3"]) == 0
    assert capsys.readouterr().err == "jax: skipped, jax is not installed\n"


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_race_with_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_race, "RANKS", 2)
    monkeypatch.setattr(jax_race, "ARRAY_BYTES", 2**16)
    (table,) = jax_race.run(2)
    assert [row[2] for row in table.rows] == [2, 2, 2, 2]
