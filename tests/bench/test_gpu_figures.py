"""Stored figures of GPUs keep what was promised, and are of enough runs for a range."""

from __future__ import annotations

import pytest

from bench.gpu.contenders import CASES
from bench.tables.gpu import runs_of


def test_ranges_are_over_several_runs() -> None:
    assert len(runs_of("4 ranks")) >= 3


def best_of(case: str, key: str, name: str = "more kernels") -> float:
    """The share of the contiguous copy in the stored run."""
    return (runs_of(name)[0].share(case, key) or 0.0) / 100


@pytest.mark.parametrize("way", ["pack", "unpack"])
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("transpose, 1-byte elements", 0.6),
        ("transpose, 2-byte elements", 0.75),
        ("transpose, odd pitches", 0.6),
    ],
)
def test_stored_transposes_keep_what_was_promised(name: str, least: float, way: str) -> None:
    assert best_of(f"{name}, {way}", "redist") >= least


@pytest.mark.parametrize("way", ["pack", "unpack"])
@pytest.mark.parametrize("width", [1, 4])
def test_stored_faces_are_quicker_than_with_cupy(width: int, way: str) -> None:
    case = f"faces of a box, {width} deep, {way}"
    assert best_of(case, "redist") > best_of(case, "CuPy")


SHORT_RUNS = ("thin", "thin-back", "single", "single-back", "transposed", "sum-cut")
"""Cases that move less than blocks, or reduce them."""


@pytest.mark.parametrize("case", [case for case in CASES if case not in SHORT_RUNS])
def test_stored_blocks_are_as_quick_as_the_raw_copy_in_every_run(case: str) -> None:
    for run in runs_of("4 ranks"):
        assert run.of(case, "ipc")["of_raw"] >= 1
