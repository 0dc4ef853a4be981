"""The benchmark on GPUs, as far as it goes without one: its cases, its lists, its tables."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.gpu import kernels, ranks
from bench.gpu.cases import PACKED, WHOLE, CopyCase, copy_cases
from bench.gpu.contenders import CASES, f32_case, traffic_bytes
from bench.report.report import Table, save_json
from bench.tables.gpu import runs_of
from bench.tables.stored import keep, read
from redist.errors import RequestError
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import CopyList
from tests.programs.gpu.jobs import needs_linux, needs_mpi
from tests.programs.launch import run


@pytest.mark.parametrize("case", copy_cases(2**16), ids=lambda case: case.label)
def test_lists_do_what_numpy_does(case: CopyCase) -> None:
    source = np.arange(case.n_bytes // 4, dtype=np.float32)
    target = np.zeros_like(source)
    if case.unpacks:
        want = source.reshape(case.packed_shape).transpose(case.back)
    else:
        want = source.reshape(case.shape).transpose(case.order)
    buffers = [target, source] if case.unpacks else [source, target]
    assert (WHOLE, PACKED) == (0, 1)
    CopyList.of(case.moves()).run(addresses(buffers))
    assert np.array_equal(target, want.reshape(-1))


@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_cases_hold_what_is_asked_for(n_ranks: int) -> None:
    for name in CASES:
        try:
            case = f32_case(name, 2**32, n_ranks)
        except RequestError:
            assert n_ranks == 2 and "pencil" in name
            continue
        assert case.source.dtype.name == "f32"
        assert abs(case.held_bytes / 2**32 - 1) < 0.01
        assert traffic_bytes(case) <= 2.01 * 2**32


def test_the_stored_run_names_its_machine_and_keeps_what_was_promised() -> None:
    stored = read("gpu")
    assert all(run["machine"]["gpu"] == "NVIDIA H200" for run in stored.runs.values())
    assert all(row.found.get("right", True) for row in stored.rows)
    (kernels,) = runs_of("kernels")
    shares = [kernels.share(case, key) for case, key in kernels.found if key == "redist"]
    assert len(shares) == 18 and min(share or 0 for share in shares) >= 85
    four = runs_of("4 ranks")[0].found
    moved = [found for (_, key), found in four.items() if key == "ipc" and "of_raw" in found]
    assert len(moved) == 12
    assert all(found["of_copy"] >= 0.7 and found["of_raw"] >= 0.9 for found in moved)


def test_table_shows_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "gpu"]) == 0
    shown = capsys.readouterr().out
    assert "4 GiB of f32 in all" in shown and "| 8 ranks |" in shown
    assert "faces of a box, 4 deep" in shown and "| 4 column blocks |" in shown
    assert "rows to columns, 4096" not in shown  # no table of anything else


@pytest.mark.parametrize("what", ["kernels", "ranks", "packs", "halos", "onesided"])
def test_command_says_why_it_cannot_measure(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "gpu.json"
    monkeypatch.setattr("bench.benchmarks.why_absent", lambda *modules: None)
    monkeypatch.setitem(sys.modules, "cupy", None)  # type: ignore[arg-type]
    assert main(["gpu", what, "--json", str(stored)]) == 0
    assert capsys.readouterr().err == f"bench gpu {what}: skipped, CuPy is not installed\n"
    assert not stored.exists()


def test_a_run_takes_the_place_of_that_of_its_name(tmp_path: Path) -> None:
    for name, seconds in (("2 ranks", 1.0), ("4 ranks", 2.0), ("2 ranks", 3.0)):
        about = {"ranks": int(name[0]), "machine": {"gpu": "none"}}
        row = (name, "rows-columns", "ipc", seconds)
        columns = ("run", "case", "contender", "median_s")
        save_json(
            tmp_path / "found.json",
            {"gpu": (Table("t", columns, (row,), (), "runs", 3, about=about),)},
            {},
        )
        keep(tmp_path / "found.json", tmp_path)
    stored = read("gpu", tmp_path)
    assert [row.found["median_s"] for row in stored.rows] == [3.0, 2.0]
    assert [stored.runs[row.run]["ranks"] for row in stored.rows] == [2, 4]
    assert all(run["machine"] == {"gpu": "none"} for run in stored.runs.values())


def test_new_runs_have_the_columns_of_stored_ones() -> None:
    for row in read("gpu").select(table="runs"):
        assert list(row.what) == ["table", "run", "case", "contender"]
        columns = kernels.FOUND if "kernels" in row.what["run"] else ranks.FOUND
        assert set(row.found) <= set(columns)


@needs_mpi
@needs_linux
@pytest.mark.parametrize("n_ranks", [2, pytest.param(3, marks=pytest.mark.slow("on more ranks"))])
def test_contenders_are_checked_and_timed_on_a_pretended_gpu(n_ranks: int) -> None:
    done = run("tests.bench.comparing", n_ranks, limit_s=300.0)
    assert done.status == 0, done.output
    assert f"contenders are told apart ({n_ranks} ranks)" in done.output
