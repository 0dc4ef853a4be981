"""Refits as benchmarks have them: parts that are cut by hand, and what is said of gains and losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redist
from bench.problems.judge import WrongPlanError
from bench.refits import gpu_race, race
from bench.refits.decoder import DECODERS, SMALL, Decoder, parts_of
from redist.layout.tiles import tile_shapes
from redist.runtime.refit.bound import BoundRefit, Options
from tests.fakes.refit_ranks import ThreadRanks, on_ranks

DENSE = Decoder(2, 16, 32, 8, 24, 64)
EXPERTS = replace(DENSE, inner=12, experts=8)
ROWS, GRID = {"dp": 4}, {"dp": 2, "tp": 2}


@pytest.mark.parametrize(
    ("decoder", "engines", "axes"),
    [(DENSE, 4, ROWS), (DENSE, 2, GRID), (EXPERTS, 4, GRID), (EXPERTS, 2, ROWS)],
)
def test_parts_by_hand_are_those_of_the_types(
    decoder: Decoder, engines: int, axes: dict[str, int]
) -> None:
    train = redist.Mesh(axes)
    serve = redist.Mesh({"tp": engines}, ranks=range(4, 4 + engines))
    plan = redist.refit(decoder.trained(train), decoder.served(serve))
    random = np.random.default_rng(engines)
    wholes = {
        name: random.integers(0, 2**16, shape, np.uint16)
        for name, shape in decoder.shapes().items()
    }

    def work(ranks: ThreadRanks) -> str:
        given, got = {}, {}
        for name in plan.source.stored if ranks.rank < 4 else ():
            part = decoder.trained_part(name, train, ranks.rank)
            if part is not None:
                given[name] = np.ascontiguousarray(wholes[name][part])
        for name, t in plan.target.types.items() if ranks.rank >= 4 else ():
            got[name] = np.zeros(tile_shapes(t)[ranks.rank], np.uint16)
        refit = BoundRefit(plan, ranks, given, got, Options())
        refit.send(1) if given else refit.receive()
        wrong = [
            name
            for name, stored, to, of in (parts_of(decoder, ranks.rank - 4, engines) if got else ())
            if not np.array_equal(got[stored][to].reshape(wholes[name][of].shape), wholes[name][of])
        ]
        return wrong[0] if wrong else ""

    assert set(on_ranks(4 + engines, True, work)) == {""}


def test_sizes_of_models() -> None:
    assert 29e9 < DECODERS["14B"].n_bytes < 30e9 and 60e9 < DECODERS["30B"].n_bytes < 62e9
    assert abs(SMALL.with_bytes(2**31).n_bytes / 2**31 - 1) < 0.1


def found(ours_s: float, theirs_s: float) -> dict[str, Any]:
    ways = {
        race.OURS: ours_s,
        "redist, messages": 2 * ours_s,
        race.FULL: theirs_s,
        race.FILES: 2 * theirs_s,
    }
    return {
        "wrong": [], "seconds": {way: [s] * 3 for way, s in ways.items()}, "bytes": 2**30,
        "received": dict.fromkeys(ways, 2**30), "bind_s": {race.OURS: 0.5}, "on_disk": False,
        "tensors": 7, "torch": "2.13.0", "repeat": 3,
    }  # fmt: skip


def test_gains_and_losses_of_refits_are_said_alike() -> None:
    for theirs_s, said in (
        (0.8, "full tensors 8.0 x (met), DCP 16.0 x"),
        (0.2, "2.0 x (MISSED), DCP 4"),
    ):
        (table,) = race.tables(found(0.1, theirs_s))
        assert said in table.notes[-1]
        assert dict(zip(table.columns, table.rows[1], strict=True))["times as long"] == 2.0
    with pytest.raises(WrongPlanError, match="DCP handed over wrong values"):
        race.tables({**found(0.1, 0.8), "wrong": ["DCP"]})


def gpu_found(ours_s: float, right: bool = True) -> dict[str, Any]:
    row = {"right": True, "prepare_s": 0.1, "first_s": 0.2, "more_bytes": 2**30}
    return {
        "model": "14B", "engines": 2, "repeat": 3, "bytes": 10**12, "copy_bytes_per_s": 4e12,
        "tensors": 7, "torch": "2.11.0", "mps": False,
        "rows": {gpu_race.OURS: {**row, "right": right, "seconds": [ours_s] * 3},
                 gpu_race.WHOLE: {**row, "seconds": [2.0] * 3}},
    }  # fmt: skip


def test_refits_on_a_gpu_are_held_against_a_copy() -> None:
    (table,) = gpu_race.tables([gpu_found(0.625), gpu_found(1.0)])
    assert "80% of the copy (met); whole tensors 3.2 x (met)" in table.notes[-1]
    assert "50% of the copy (MISSED); whole tensors 2.0 x (MISSED)" in table.notes[-1]
    assert dict(zip(table.columns, table.rows[0], strict=True))["of copy"] == pytest.approx(0.8)
    with pytest.raises(WrongPlanError, match="14B, 2 engines: redist, in place differ"):
        gpu_race.tables([gpu_found(0.5, right=False)])
