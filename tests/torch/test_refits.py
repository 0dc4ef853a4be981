"""Refits on ranks of PyTorch: random ones, and trainers that are killed in the middle of one."""

from __future__ import annotations

import pytest

from tests.programs.torch.launch import must_pass, needs_cuda, needs_torch, one_worker, run
from tests.tiers import sample

pytestmark = [needs_torch, one_worker]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_random_refits(ranks: int) -> None:
    n = str(sample(12, of=120))
    said = must_pass("refits", ranks, variables={"REDIST_TEST_REFITS": n}, limit_s=300)
    assert said.count("well ") == 2 and "WRONG" not in said, said


@needs_cuda
@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_random_refits_on_a_gpu(ranks: int, backend: str) -> None:
    variables = {
        "REDIST_TEST_REFITS": str(sample(12, of=120)), "REDIST_TEST_DEVICE": "cuda",
        "REDIST_TEST_BACKEND": backend,
    }  # fmt: skip
    said = must_pass("refits", ranks, variables=variables, limit_s=300)
    assert "well random plans" in said and "WRONG" not in said, said


MORE = pytest.mark.slow("more ways to refit")
WAYS = [
    pytest.param(
        transport, commit, marks=() if commit == "copy" and transport != "messages" else MORE
    )
    for transport in ("ipc", "far", "messages", "early")
    for commit in ("copy", "swap", "in place")
    if (transport, commit) not in (("early", "swap"), ("early", "in place"))
]


@pytest.mark.parametrize(("transport", "commit"), WAYS)
def test_an_engine_outlives_its_trainer(transport: str, commit: str) -> None:
    done = run("refits", 4, "kill", transport, commit)
    assert done.statuses == (-9, 0, 0, 0), f"{done.statuses}\n{done.output}"
    assert done.output.count("kept after") == 2, done.output


ENGINES = [
    pytest.param(transport, commit, marks=() if (transport, commit) == ("vote", "copy") else MORE)
    for transport in ("ipc", "far", "messages", "early", "vote")
    for commit in ("copy", "swap", "in place")
    if (transport, commit) not in (("early", "swap"), ("early", "in place"), ("vote", "in place"))
]


@pytest.mark.parametrize(("transport", "commit"), ENGINES)
def test_an_engine_outlives_another(transport: str, commit: str) -> None:
    done = run("refits", 4, "kill", transport, commit, "engine")
    assert done.statuses == (0, 0, 0, -9), f"{done.statuses}\n{done.output}"
    assert done.output.count("kept after") == 1, done.output
