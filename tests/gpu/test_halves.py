"""Halves of staging: what overlaps what, within the bytes that a plan grants; and all-gathers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.runtime.cuda.transports import carriers as cuda_carriers
from redist.runtime.cuda.transports.all_gather import GatherClaim, agree, room_for
from redist.runtime.cuda.transports.carriers import ByMessages, StagingLease
from redist.runtime.cuda.transports.nccl import ByNccl
from redist.runtime.host import staging
from redist.runtime.host.staging import FROM_GPUS, ROUND_BYTES, Staging
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.runtime.schedule.pieces import StepPieces
from redist.runtime.schedule.stages import StagePart
from tests.fakes.ranks import random_groups, worlds
from tests.programs.gpu.jobs import must_succeed, needs_mpi
from tests.programs.launch import one_worker
from tests.proofs.test_allocations import random_loads
from tests.tiers import sample


class Events:
    """A stream that notes what it is told; ``tables`` are numbers of halves here."""

    ptr = 0

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def record(self) -> Any:
        """An event that is called after what came before it."""
        last = next(text for text in reversed(self.log) if text[0] != "~")
        return SimpleNamespace(
            synchronize=lambda: self.log.append(f"~{last}"), done=True, last=last
        )

    def wait_event(self, event: Any) -> None:
        """Noted."""
        self.log.append(f"~{self.name}:{event.last}")


def rounds_of(n: int, log: list[str]) -> Any:
    """Rounds that note what they do."""

    def noting(what: str) -> Any:
        return lambda table, stream: log.append(f"{what} in {table}")

    return [
        SimpleNamespace(
            pack=SimpleNamespace(run=noting(f"pack {k}")),
            sends=(f"send {k}",),
            receives=(f"receive {k}",),
            fetch=noting(f"fetch {k}"),
            take_apart=noting(f"apart {k}"),
            gathered=None,
        )
        for k in range(n)
    ]


def carried(*n_halves: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order, as messages of MPI take three rounds; in every call."""
    log: list[str] = []
    monkeypatch.setattr(cuda_carriers, "post", lambda start, message, *more: log.append(message))
    world: Any = SimpleNamespace(comm=None, wait_for_messages=lambda *args: log.append("arrived"))
    stream = Events(log, "own")
    carrier = ByMessages(world)
    for n in n_halves:
        tables: Any = list(range(n))
        carrier.carry(rounds_of(3, log), carrier.lease(), tables, stream, None)
    return log


def test_with_two_halves_the_next_round_is_packed_before_messages_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert carried(2, monkeypatch=monkeypatch) == [
        *("pack 0 in 0", "receive 0", "~pack 0 in 0", "send 0"),
        *("pack 1 in 1", "fetch 0 in 0", "arrived", "apart 0 in 0"),
        *("receive 1", "~pack 1 in 1", "send 1"),
        *("pack 2 in 0", "fetch 1 in 1", "arrived", "apart 1 in 1"),
        *("~apart 0 in 0", "receive 2", "~pack 2 in 0", "send 2"),
        *("fetch 2 in 0", "arrived", "apart 2 in 0"),
    ]


def test_with_one_half_nothing_is_packed_over_messages_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert carried(1, monkeypatch=monkeypatch) == [
        *("pack 0 in 0", "receive 0", "~pack 0 in 0", "send 0"),
        *("fetch 0 in 0", "arrived", "pack 1 in 0", "apart 0 in 0"),
        *("~apart 0 in 0", "receive 1", "~pack 1 in 0", "send 1"),
        *("fetch 1 in 0", "arrived", "pack 2 in 0", "apart 1 in 0"),
        *("~apart 1 in 0", "receive 2", "~pack 2 in 0", "send 2"),
        *("fetch 2 in 0", "arrived", "apart 2 in 0"),
    ]


def test_the_next_transfer_waits_until_all_that_was_received_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = len(carried(2, monkeypatch=monkeypatch))
    after = carried(2, 1, monkeypatch=monkeypatch)[first:]
    assert {*after[:2]} == {"~apart 1 in 1", "~apart 2 in 0"}
    assert after[2] == "pack 0 in 0"


@pytest.mark.parametrize("n_halves", [1, 2])
def test_nccl_passes_a_round_while_the_next_is_packed(n_halves: int) -> None:
    log: list[str] = []
    side, own = Events(log, "side"), Events(log, "own")
    world: Any = SimpleNamespace(
        size=2,
        rank=0,
        meeting=SimpleNamespace(wait_until=lambda look: look()),
        failure=SimpleNamespace(timeout_s=1.0),
    )
    carrier = ByNccl(world, None, None, side)
    carrier._pass = lambda round_, table: log.append(f"pass in {table}")  # type: ignore[assignment,method-assign]
    tables: Any = list(range(n_halves))
    carrier.carry(rounds_of(3, log), StagingLease(True), tables, own, None)
    after = log.index("~side:pack 1 in 1" if n_halves == 2 else "~side:pack 1 in 0")
    before = log[:after]
    # The second exchange waits for its own pack; with two halves not for the first to be taken apart.
    packed = before.index(f"pack 1 in {n_halves - 1}")
    assert (packed < before.index("~own:pass in 0")) == (n_halves == 2)
    assert (packed < before.index("apart 0 in 0")) == (n_halves == 2)
    last = log.index("pack 2 in 0")
    assert last > log.index("apart 0 in 0") > log.index("~own:pass in 0")


def prepared(
    stage_parts: list[list[StagePart]], groups: list[int], n_bytes: int, limited: bool
) -> Any:
    """The staging of every rank's GPU."""

    def of(world: Any) -> Staging:
        return Staging.of(world, stage_parts[world.rank], n_bytes, limited, FROM_GPUS)

    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(of, worlds(groups)))


def test_both_halves_together_are_no_larger_than_what_is_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = Random(4)
    seen = {1: 0, 2: 0}
    for _ in range(sample(250, of=1500)):
        monkeypatch.setattr(staging, "LEAST_HALF_BYTES", rng.choice([1, 2048, 2**18]))
        monkeypatch.setattr(staging, "ROUND_BYTES", rng.choice([3000, ROUND_BYTES]))
        n = rng.randint(2, 5)
        groups = random_groups(rng, n)
        budget = rng.choice([8192, rng.randrange(8192, 40_000), rng.randrange(2**22)])
        for each in prepared(random_loads(rng, n), groups, budget, rng.random() < 0.5):
            fits = each.send_bytes <= budget // 4
            if budget >= LEAST_POOL_BYTES and fits:
                assert each.halves * (each.send_bytes + each.receive_bytes) <= budget
                for k in range(3, 9):
                    if each.send_bytes >= 1024:
                        gathered = each.halves * sum(room_for(tuple(range(k)), each))
                        assert gathered <= each.halves * (each.send_bytes + each.receive_bytes)
                seen[each.halves] += 1
    assert min(seen.values()) > sample(14, of=100), seen


@pytest.mark.parametrize("gib", [1, 8])
def test_rounds_have_a_sensible_size_however_much_is_granted(gib: int) -> None:
    n = gib * 2**30
    piece = Piece(0, 1, 0, (0,), (0,), (n,), (n,), (n,))
    stage_part = StagePart(StepPieces((piece,), None, False, False, False, (n,)), DType.parse("u8"))
    for each in prepared([[stage_part], [stage_part]], [0, 1], n // 8, False):
        assert each.halves == 2 and each.send_bytes == each.receive_bytes <= ROUND_BYTES
        assert each.send_bytes == min(ROUND_BYTES, (n // 8 - 2**18) // 4)
        assert len(each.rounds) == -(-n // each.send_bytes)
        assert each.send_bytes % 512 == 0


def test_a_group_is_one_only_where_all_its_ranks_say_so() -> None:
    claim = GatherClaim((0, 2, 3), ((0, (4, 5)),))
    same, none = (3, claim.digest), (None, False)
    other = (3, GatherClaim((0, 2, 3), ((0, (5, 4)),)).digest)

    def agreed(*told: Any) -> tuple[Any, bool]:
        world: Any = SimpleNamespace(gather=lambda value: list(told))
        return agree(world, claim, True)

    assert agreed((same, True), none, (same, True), (same, True)) == ((0, 2, 3), True)
    assert agreed((same, False), none, (same, False), (same, False)) == ((0, 2, 3), False)
    assert agreed((same, True), none, (same, True), none) == ((), False)
    assert agreed((same, True), none, (same, True), (other, True)) == ((), False)


@one_worker
@needs_mpi
@pytest.mark.slow("22 all-gathers of pretended GPUs")
def test_nccl_gathers_what_all_ranks_of_a_group_need_and_nothing_else() -> None:
    assert "22 all-gathers and others agree (4 ranks)" in must_succeed("gathering", 4)
