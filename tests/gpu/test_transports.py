"""Carriers between nodes: on a pretended GPU, whose streams put work off, and on a real one.

No test here has two GPUs. NCCL itself is run on one rank that sends to itself, and between ranks that share a
GPU and each name a host of their own. On pretended GPUs a double of it moves the same messages by MPI.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.errors import PeerError
from redist.runtime.copies.kernels import ALL_SAME
from redist.runtime.cuda.transports import mpi_aware as cuda_aware
from redist.runtime.cuda.transports.carriers import StagingLease
from redist.runtime.cuda.transports.mpi_aware import Answer, probe
from redist.runtime.cuda.transports.nccl import ByNccl
from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi
from tests.tiers import sample

PRETENDED = ("--pretend", "--transport", "mpi")


@needs_gpu
@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_double_of_nccl_between_ranks_of_one_gpu(ranks: int) -> None:
    args = ("--carrier", "nccl", "--transport", "mpi", "--n", "30", "--seed", str(ranks))
    assert f"30 of 30 GPU cases agree ({ranks} ranks)" in must_succeed("carrying", ranks, *args)


@needs_gpu
@needs_mpi
def test_nccl_itself_on_one_rank() -> None:
    said = must_succeed("alone", 1)
    assert "NCCL agrees (1 rank)" in said or "SKIP" in said
    if "SKIP" in said:
        pytest.skip(said.partition("SKIP ")[2])


REAL = ("--carrier", "nccl", "--real", "--node-size", "1")
ROUNDS = ("--round-bytes", "4096")


@needs_gpu
@needs_mpi
@pytest.mark.parametrize(("ranks", "rounds"), [(2, ()), (4, ()), (2, ROUNDS)])
def test_nccl_itself_between_ranks(ranks: int, rounds: tuple[str, ...]) -> None:
    n = sample(24, of=200)
    said = must_succeed("carrying", ranks, *REAL, *rounds, "--n", str(n), "--seed", str(ranks))
    assert f"{n} of {n} GPU cases agree ({ranks} ranks)" in said


@needs_gpu
@needs_mpi
def test_streams_and_all_gathers_by_nccl_itself() -> None:
    assert "two streams at once agree (3 ranks)" in must_succeed("streams", 3, *REAL, *ROUNDS)
    assert "22 all-gathers and others agree" in must_succeed("gathering", 4, "--real")


@needs_gpu
@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_nccl_is_chosen_refused_and_fails_as_it_should(ranks: int) -> None:
    assert f"as it should ({ranks} ranks)" in must_succeed("real_nccl", ranks)


@pytest.mark.parametrize("fails", ["late", "elsewhere"])
def test_messages_of_nccl_that_never_arrive_are_an_error(fails: str) -> None:
    """The GPU would wait for ever: the communicator is given up, and the error says why."""
    aborted = []

    def wait_until(look: Any) -> None:
        while look() != ALL_SAME:
            if fails == "elsewhere":
                raise PeerError("rank 1 failed: no memory")

    never = SimpleNamespace(done=False)
    stream = SimpleNamespace(ptr=0, record=lambda: never, wait_event=lambda event: None)
    carrier = ByNccl(
        SimpleNamespace(  # type: ignore[arg-type]
            meeting=SimpleNamespace(wait_until=wait_until),
            failure=SimpleNamespace(timeout_s=0.05),
            size=1,
        ),
        SimpleNamespace(abort=lambda: aborted.append(True)),
        SimpleNamespace(groupStart=lambda: None, groupEnd=lambda: None),
        stream,
    )
    said = "within 0.05 s" if fails == "late" else "rank 1 failed"
    with pytest.raises(PeerError, match=said):
        carrier.carry([], StagingLease(on_device=True), [np.zeros(0, np.uintp)], stream, None)
    assert aborted == [True]


# CUDA-aware MPI: the probe, with children that are scripts.


def child(code: str) -> tuple[str, ...]:
    return "-c", code


@pytest.mark.parametrize(
    ("code", "works", "said", "is_final"),
    [
        ("print('tries'); print('works')", True, "sent and received", True),
        ("print('works'); raise SystemExit(1)", False, "could not try (status 1)", False),
        ("import sys; sys.exit('no GPU here')", False, "could not try (no GPU here)", False),
        ("print('tries'); import sys; sys.exit('not as sent')", False, "(not as sent)", True),
        (
            "print('tries', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            False,
            "died of SIGSEGV",
            True,
        ),
        ("print('tries', flush=True); import time; time.sleep(60)", False, "within 2 s", False),
    ],
)
def test_the_probe_survives_every_end_of_its_child(
    code: str, works: bool, said: str, is_final: bool
) -> None:
    answer, final = probe(2.0 if "sleep" in code else 30.0, child(code))
    assert (answer.works, final) == (works, is_final)
    assert said in answer.why


def test_the_child_is_no_part_of_this_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    code = "import os; print('tries'); print('works'); assert 'PMI_RANK' not in os.environ; "
    answer, _ = probe(30.0, child(code + "assert 'OMPI_COMM_WORLD_RANK' not in os.environ"))
    assert answer.works


def test_an_answer_is_remembered_in_memory_and_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(timeout_s: float) -> tuple[Answer, bool]:
        asked.append(timeout_s)
        return Answer(False, "the probe died of SIGSEGV"), len(asked) > 1

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_aware, "probe", ask)
    monkeypatch.setattr(cuda_aware, "_KNOWN", {})
    assert not cuda_aware.cuda_aware(3.0).works and not cuda_aware.cuda_aware(3.0).works
    assert len(asked) == 1 and not list(tmp_path.rglob("*.json"))  # it was not final
    for _ in range(2):
        monkeypatch.setattr(cuda_aware, "_KNOWN", {})
        assert cuda_aware.cuda_aware(3.0).why == "the probe died of SIGSEGV"
    assert len(asked) == 2 and len(list(tmp_path.rglob("*.json"))) == 1
    monkeypatch.setenv("UCX_TLS", "all")  # another transport may know more
    cuda_aware.cuda_aware(3.0)
    assert len(asked) == 3
    for file in tmp_path.rglob("*.json"):
        file.write_text("{", encoding="utf-8")
    monkeypatch.setattr(cuda_aware, "_KNOWN", {})
    assert not cuda_aware.cuda_aware(3.0).works and len(asked) == 4


def test_without_a_cache_the_probe_is_only_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(cuda_aware, "probe", lambda timeout_s: (Answer(True, "yes"), True))
    monkeypatch.setattr(cuda_aware, "_KNOWN", {})
    assert cuda_aware.cuda_aware().works


@needs_gpu
def test_the_real_probe_ends_in_time() -> None:
    answer, _ = probe(120.0)
    assert answer.works or answer.why.startswith("the probe ")
    assert "could not try" not in answer.why, answer


@needs_gpu
def test_a_library_that_knows_nothing_of_gpus_only_kills_the_child() -> None:
    """Without asking the library first, as where it cannot be asked."""
    code = """
import sys
from types import SimpleNamespace
import redist.runtime.cuda.transports.mpi_aware_child as child
child.ctypes = SimpleNamespace(CDLL=lambda name: object())
sys.exit(child.main())
"""
    answer, is_final = probe(120.0, child(code))
    assert answer.works or "died of SIG" in answer.why or "failed" in answer.why, answer
    assert is_final


# StagingLease.


@pytest.mark.parametrize("on_device", [False, True])
def test_stages_share_one_room(on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(n_bytes: int) -> Any:
        made.append(n_bytes)
        return SimpleNamespace(ptr=64 * len(made))

    cuda = SimpleNamespace(alloc=make, PinnedMemory=make)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    room = StagingLease(on_device)
    room.reserve(100, 0)
    room.reserve(60, 50)
    assert (room.send_bytes, room.receive_bytes) == (100, 50)
    for _ in range(3):
        with room.lent() as (send, receive):
            assert send != receive
    assert made == [100, 50] * (3 if on_device else 1)  # from the pool, or kept


def test_no_gpu_is_a_reason_to_skip_not_to_pass() -> None:
    from tests.programs.gpu.jobs import missing

    assert missing() == "" or missing().startswith("needs a GPU (")
    assert os.environ.get("REDIST_NEEDS_GPU", "") == "" or missing() == ""
