"""Calibration: the fit is exact on exact times, and the file it writes is read back."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import redist
from redist.arrange.device_file import load_costs
from redist.cli.main import main
from redist.measure.calibrate import fit
from redist.plan.rates import FLAT, KINDS
from redist.plan.topology import Level, Topology, format_topology
from tests.measure.test_job import LAUNCHER, job
from tests.programs.launch import one_worker


@given(
    step=st.integers(1, 10**4),
    latency=st.integers(1, 10**3),
    gb_s=st.integers(1, 500),
    messages=st.integers(2, 64),
)
def test_what_the_model_says_is_what_is_found(
    step: int, latency: int, gb_s: int, messages: int
) -> None:
    def seconds(k: int, n_bytes: int) -> float:
        return step * 1e-6 + k * latency * 1e-6 + n_bytes / (gb_s * 1e9)

    n_bytes = 2**26
    found = fit(seconds(1, 0), seconds(messages, 0), seconds(1, n_bytes), messages, n_bytes)
    assert found == pytest.approx((step * 1e-6, latency * 1e-6, gb_s * 1e9), rel=1e-3)


def test_times_that_fit_no_model_give_no_negative_costs() -> None:
    step, latency, bandwidth = fit(5e-6, 4e-6, 4e-6, 7, 2**20)
    assert step >= 0 and latency > 0 and bandwidth > 0


@pytest.mark.parametrize(
    "topology",
    [
        FLAT,
        Topology((Level("node", None, 1, 123_000),), 20_500_000),
        Topology((Level("node", 4, 50_000, 50_000), Level("network", None, 2 * 10**6, 10**5)), 7),
        Topology((Level("node", 4, 0, 50_000), Level("network", None, 10**6, 10**5, 30_000)), 7),
    ],
)
def test_the_file_is_read_back(tmp_path: Path, topology: Topology) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(format_topology(topology), encoding="utf-8")
    again = Topology.load(path)
    assert again.step_ps == topology.step_ps
    assert [level.size for level in again.levels] == [level.size for level in topology.levels]
    for a, b in zip(again.levels, topology.levels, strict=True):
        rates = [(one.latency_ps, one.byte_fs, one.link_fs) for one in (a, b)]
        assert rates[0] == pytest.approx(rates[1], rel=1e-4)


@one_worker
@pytest.mark.skipif(LAUNCHER is None, reason="needs mpirun")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            (), marks=pytest.mark.slow("a node alone: the lowest of two levels"), id="one"
        ),
        pytest.param(("--node-size", "2"), id="two nodes"),
    ],
)
def test_ranks_measure_themselves(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "here.toml"
    done = job(4, "-m", "redist.measure.calibrate", "--output", str(path), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    topology = Topology.load(path)
    assert [level.size for level in topology.levels] == ([2, None] if options else [None])
    assert [level.link_fs > 0 for level in topology.levels] == (
        [False, True] if options else [False]
    )
    # On a busy machine what a step costs may show in what a message costs.
    assert topology.step_ps + topology.levels[0].latency_ps > 0
    costs = load_costs(path)
    kinds = {(one.kind, one.dtype) for one in costs.operations}
    assert kinds >= set(itertools.product(KINDS, ("f32", "f64", "f16", "i32", "i64")))
    assert costs.byte_fs > 0 and all(one.elem_fs > 0 for one in costs.operations)
    request = ["plan", "f32[64{x}, 64]", "f32[64, 64{x}]", "--mesh", "x=4"]
    assert main([*request, "--topology", str(path)]) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-n", "1"], "-n: cannot use '1'"),
        (["-n", "4", "--node-size", "3"], "4 ranks do not make whole nodes of 3"),
        (["-n", "4", "--output", "no/such/folder/t.toml"], "there is no such folder"),
    ],
)
def test_bad_requests_start_no_job(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_one_rank_cannot_be_calibrated() -> None:
    with pytest.raises(redist.RequestError, match="cannot calibrate 1 rank"):
        redist.calibrate(MPI.COMM_SELF)
