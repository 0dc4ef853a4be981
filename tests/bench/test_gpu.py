"""The benchmark on GPUs, as far as it goes without one: its cases, its lists, its tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.gpu import command as gpu
from bench.gpu.cases import PACKED, WHOLE, CopyCase, copy_cases
from bench.gpu.contenders import CASES, f32_case, traffic_bytes
from bench.gpu.results import as_text, is_right, read
from redist.errors import RequestError
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import CopyList
from tests.programs.gpu.jobs import must_succeed, needs_linux, needs_mpi


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
    data = read(gpu.RESULTS)
    assert data["machine"]["gpu"] == "NVIDIA H200"
    assert all(is_right(run) for run in data["runs"].values())
    kernels = data["runs"]["kernels"]
    shares = [c["redist"]["bytes_per_s"] / kernels["copy_bytes_per_s"] for c in kernels["cases"]]
    assert len(shares) == 18 and min(shares) >= 0.85
    moved = [c for c in data["runs"]["4 ranks"]["cases"] if "of_raw" in c["ipc"]]
    assert len(moved) == 12
    assert all(c["ipc"]["of_copy"] >= 0.7 and c["ipc"]["of_raw"] >= 0.9 for c in moved)


def test_table_shows_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "table"]) == 0
    shown = capsys.readouterr().out
    assert shown.strip() == as_text(read(gpu.RESULTS)).strip()
    assert "8 ranks on one GPU, 4 GiB f32" in shown


def test_command_says_why_it_cannot_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "no_gpu", lambda: "CuPy is not installed")
    assert main(["gpu", "kernels", "--json", str(tmp_path / "gpu.json")]) == 2
    assert "cannot measure: CuPy is not installed" in capsys.readouterr().err
    assert not (tmp_path / "gpu.json").exists()


def test_a_wrong_result_is_told(tmp_path: Path) -> None:
    found = {"cases": [{"case": "a", "ipc": {"label": "redist", "note": "wrong result"}}]}
    stored = tmp_path / "gpu.json"
    stored.write_text(json.dumps({"version": 1, "runs": {"2 ranks": found}}), encoding="utf-8")
    assert not is_right(read(stored)["runs"]["2 ranks"])


@needs_mpi
@needs_linux
@pytest.mark.parametrize("ranks", [2, 3])
def test_contenders_are_checked_and_timed_on_a_pretended_gpu(ranks: int) -> None:
    assert f"contenders are told apart ({ranks} ranks)" in must_succeed("comparing", ranks)
