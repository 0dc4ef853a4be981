"""What is compiled of runs: messages that fit together, staging within the limit; and what tiles may be."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.runtime.refit import program as compiled
from redist.runtime.refit.arrival import Arrival
from redist.runtime.refit.program import Buffers, Compiler, Dtypes, Program, Ways
from redist.runtime.refit.said import Said, agreed
from redist.runtime.refit.tiles import Side, tile_of
from tests.problems.small_refits import SmallRefit, random_refit, small_refit
from tests.tiers import sample


def programs(plan: SmallRefit, ways: Ways) -> list[Program]:
    """What every rank does."""
    sides = [
        [one.type.dtype for _, one in sorted(side.items())]
        for side in (plan.source_tensors, plan.target_tensors)
    ]
    buffers = Buffers(len(sides[0]), len(sides[1]), plan.n_ranks)
    dtypes = Dtypes.of(*sides)
    return [
        Compiler(rank, dtypes, buffers, ways).program(plan.runs(rank, sends=True), plan.runs(rank))
        for rank in range(plan.n_ranks)
    ]


@pytest.mark.parametrize("by_memory", [False, True])
def test_messages_fit_together(by_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(sample(20, of=300)):
        rng = Random(seed)
        monkeypatch.setattr(compiled, "DIRECT_BYTES", rng.choice([1, 16, 64, 2**20]))
        plan = random_refit(rng, rng.randrange(2, 6))
        made = programs(plan, Ways(by_memory=by_memory, direct=rng.random() < 0.7))
        sent: dict[Any, list[int]] = {}
        got: dict[Any, list[int]] = {}
        for rank, one in enumerate(made):
            assert [r.number for r in one.rounds] == sorted({r.number for r in one.rounds})
            for r in one.rounds:
                for message in r.sends:
                    sent.setdefault((r.number, rank, message.peer), []).append(message.n_bytes)
                for message in r.receives:
                    got.setdefault((r.number, message.peer, rank), []).append(message.n_bytes)
                assert not by_memory or len({m.peer for m in r.sends}) == len(r.sends)
        assert sent == got


@pytest.mark.parametrize("together", [False, True])
def test_staging_is_what_a_rank_sends_and_receives_in_one_round(together: bool) -> None:
    plan = small_refit(2, 2, together=together)
    for rank, one in enumerate(programs(plan, Ways(direct=False))):
        sizes = np.zeros((2, plan.rounds), np.int64)
        for row, sends in enumerate((True, False)):
            runs = plan.runs(rank, sends=sends)
            runs = runs[runs["peer"] != rank]
            np.add.at(sizes[row], runs["round"], runs["bytes"] * runs["count"])
        assert one.send_bytes == sizes[0].max()
        assert one.staging_bytes == sizes.sum(axis=0).max()
        assert not together or one.staging_bytes < sizes.max(axis=1).sum()


def test_large_runs_go_straight_out_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "DIRECT_BYTES", 1)
    plan = small_refit(2, 2, target="f32", rounds=1)
    sender, receiver = (programs(plan, Ways())[rank] for rank in (0, 2))
    columns = 2 * 2 * 4 * 4  # half of two rows, for either receiver
    assert sender.send_bytes == columns and receiver.staging_bytes == 0
    assert programs(plan, Ways(direct=False))[0].send_bytes > columns


def test_rounds_without_anything_left_are_left_out() -> None:
    plan = small_refit(2, 2, rounds=40)
    dtypes = Dtypes.of(
        *([one.type.dtype for _, one in sorted(side.items())]
          for side in (plan.source_tensors, plan.target_tensors))
    )  # fmt: skip
    compiler = Compiler(0, dtypes, Buffers(4, 3, 4), Ways())
    sends = plan.runs(0, sends=True)
    norm = sends[sends["tensor"] == 2]
    assert len(compiler.program(norm, plan.runs(0)).rounds) < len(
        compiler.program(sends, plan.runs(0)).rounds
    )


T = ArrayType.parse("bf16[4{x}, 8]", Mesh(x=2))


def masked() -> Any:
    return np.ma.masked_less(np.zeros((2, 8), "u2"), 1)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            np.zeros((2, 8), "f2"),
            r"it is float16\[2, 8\]; its tile of bf16\[4\{x\}, 8\] is bf16\[2, 8\]",
        ),
        (np.zeros((4, 8), "u2"), r"it is uint16\[4, 8\]"),
        (np.zeros((8, 2), "u2").T, "it is not contiguous"),
        (np.zeros((2, 8), "O"), "unknown dtype"),
        (masked(), "it is MaskedArray"),
        (None, "it is NoneType"),
        (SimpleNamespace(data_ptr=0, device=SimpleNamespace(type="meta")), "it is on meta"),
    ],
)
def test_what_is_no_tile(array: Any, said: str) -> None:
    with pytest.raises(RequestError, match=f"cannot bind target tile 'w': {said}"):
        tile_of(array, (2, 8), T, "target tile 'w'")


def test_tiles_in_two_memories() -> None:
    side = Side({"a": T, "b": T}, "source tile")
    tensor = SimpleNamespace(
        data_ptr=lambda: 64, device=SimpleNamespace(type="cuda", index=1), shape=(2, 8),
        dtype="bf16", is_contiguous=lambda: True, is_conj=lambda: False, is_neg=lambda: False,
    )  # fmt: skip
    with pytest.raises(RequestError, match="some lie on the host, others on GPU 1; put all into"):
        side.take(0, {"a": np.zeros((2, 8), "u2"), "b": tensor})


def test_no_memory_for_another_set() -> None:
    side = Side({"a": T}, "target tile")
    side.take(0, {"a": np.zeros((2, 8), "u2")})
    huge: Any = SimpleNamespace(n_bytes=2**60, address=64, gpu=None)
    side.tiles[0] = huge
    with pytest.raises(RequestError, match=r"1048576 TiB.*commit='in place' needs none"):
        Arrival(side, "copy", Dtypes.of([], [T.dtype]), shared=False)


def test_what_is_agreed_on() -> None:
    engine = Said(False, None, None, 3, 0, None)
    sender = Said(True, 4, b"\x80", 3, 0, None)
    assert agreed([sender, engine]) == (4, b"\x80")
    with pytest.raises(RequestError, match="no rank has source tiles"):
        agreed([engine])
    with pytest.raises(RequestError, match="rank 0: version 4; rank 1: version 5; give the same"):
        agreed([sender, Said(True, 5, b"\x80", 3, 0, None)])
    with pytest.raises(RequestError, match="rank 0: 1 tensor; rank 2: all"):
        agreed([sender, engine, Said(True, 4, None, 3, 0, None)])
