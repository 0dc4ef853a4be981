"""Refits as benchmarks have them: parts that are cut by hand, and what is said of gains and losses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist
from bench.problems.judge import WrongPlanError
from bench.refits import gpu_race, judging, planning, race
from bench.refits.decoder import DECODERS, SMALL, Decoder, parts_of
from bench.refits.models import QWEN3_235B
from bench.report.jobs import SkippedError
from bench.report.report import Table
from bench.tables.renew import Measurement, steps
from bench.tables.stored import stored_of
from redist.layout.tiles import tile_shapes
from redist.runtime.refit.bound import BoundRefit
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
        refit = BoundRefit(plan, ranks, given, got)
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
        "gpu": "NVIDIA H200", "model": "14B", "engines": 2, "repeat": 3, "bytes": 10**12,
        "copy_bytes_per_s": 4e12,
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


SMALL_QWEN = replace(QWEN3_235B, hidden=256, vocabulary=1024, experts=32, expert=64)


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    """Both lists of a small model, as their jobs find them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "QWEN3_235B", SMALL_QWEN)
        return {
            judging.MODEL: judging.measure(judging.MODEL, repeat=1, layers=2),
            judging.BLOCKS: judging.measure(judging.BLOCKS, repeat=1, receivers=4),
        }


def test_the_judge_is_timed_on_right_lists_and_on_one_wrong(judged: dict[str, Any]) -> None:
    table = judging.table_of(judged)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    orders = [judging.BY_RECEIVER, judging.ANY_ORDER, judging.WRONG]
    assert [(row["list"], row["order"]) for row in rows] == [
        (name, order) for name in judging.AIMS for order in orders
    ]
    assert judged[judging.BLOCKS]["runs"] > 4 * 32 * 256 // 2  # rows of the experts, one by one
    assert all(row["aim"] in ("met", "MISSED") for row in rows)


@pytest.mark.parametrize("order", [judging.ANY_ORDER, judging.WRONG])
def test_a_judge_that_errs_is_not_timed(judged: dict[str, Any], order: str) -> None:
    job = judged[judging.BLOCKS]
    fault = {**job["fault"], order: not job["fault"][order]}
    with pytest.raises(WrongPlanError, match=f"single blocks, {order}, was (refused|accepted)"):
        judging.table_of({**judged, judging.BLOCKS: {**job, "fault": fault}})


MODEL_FILE = {
    "model.embed_tokens.weight": {"shape": [64, 32], "dtype": "BF16"},
    **{
        f"model.layers.{n}.self_attn.{name}_proj.weight": {"shape": shape, "dtype": "BF16"}
        for n in range(2)
        for name, shape in (("q", [64, 32]), ("k", [16, 32]), ("v", [16, 32]), ("o", [32, 64]))
    },
}
SYSTEM_FILE = {
    "train": {"num_gpus": 8, "tp_size": 2, "ep_size": 1, "pp_size": 2},
    "generation": {"num_gpus": 4, "tp_size": 2},
}


def test_model_and_system_files_are_found_in_folders_of_their_own(tmp_path: Path) -> None:
    for name, found in (
        ("models/tiny-1.model.json", MODEL_FILE),
        ("systems/tiny-8.json", SYSTEM_FILE),
        ("systems/other-8.json", {}),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(found), encoding="utf-8")
    _, files = planning.run(limit="1KiB", models="", configs=str(tmp_path))
    rows: list[dict[str, Any]]
    rows = [dict(zip(files.columns, one, strict=True)) for one in files.rows]
    (row,) = rows
    assert (row["refit"], row["model"], row["tensors"]) == ("tiny-8", "tiny-1", 9)
    assert row["over bound"] == 1.0 and row["direct %"] == 100.0
    assert row["GiB a round"] * 2**30 <= 1024 < row["rounds"] * 1024
    with pytest.raises(SkippedError, match="no model and system files in 'systems'"):
        planning.run(configs=str(tmp_path / "systems"))


def test_where_files_lie_is_not_stored() -> None:
    table = Table.of("files", "t", [{"refit": "a", "s": 1.0}]).to_dict()
    options = {"limit": "2GiB", "configs": "somewhere", "disk": "there"}
    data = {"options": options, "reports": [{"name": "refit", "tables": [table]}]}
    about = {"date": "2026-01-02", "redist": "0.2.0", "machine": {}}
    (run,) = stored_of(data | about)["refit"].runs.values()
    assert run["options"] == {"limit": "2GiB"}


def test_figures_start_benchmarks_of_two_words() -> None:
    named: dict[str, Measurement] = {one.name: one for one in steps()}
    assert named["refit judge"].words == ("-m", "bench", "refit", "judge")
