"""The simulation of transfers on large machines: engine, rounds, classes, closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redist
from bench.scale.engine import Engine, Event, Gate, Process
from bench.scale.machine import FAR, NODE, OWN, POD, Machine
from bench.scale.rounds import rounds_of, work_of
from bench.scale.shares import class_by_class, rank_by_rank
from bench.scale.transfer import simulate
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.runtime.host import staging as staging_module
from redist.runtime.host.staging import Staging
from redist.runtime.schedule.stages import TransferStages
from tests.tiers import sample

BARE = Machine("bare", 1, 1e9, 1e9)
FULL = Machine(
    "full", 8, 25e9, 50e9, nodes_per_pod=4, pod_rate=100e9, latency_s=2e-6, far_latency_s=4e-6,
    hop_s=3e-6, node_meeting_s=1e-6, call_s=50e-6, stage_s=20e-6, round_s=10e-6, message_s=1e-6,
    copy_rate=10e9, near_rate=10e9, combine_rate=5e9,
)  # fmt: skip


def plan_of(n: int, source: str, target: str, **options: Any) -> Plan:
    return redist.synthesize(source, target, mesh=redist.Mesh(x=n), **options)


def two_meshes(n: int, source: str, target: str, **options: Any) -> Plan:
    half = n // 2
    here = redist.Mesh({"x": half}, ranks=range(half))
    there = redist.Mesh({"x": half}, ranks=range(half, n))
    return redist.synthesize(source, target, mesh=here, target_mesh=there, **options)


# The engine


def run(engine: Engine, *processes: Process) -> float:
    for process in processes:
        engine.spawn(process)
    return engine.run()


def send(engine: Engine, ends: list[float], amount: float, uses: dict[Any, float]) -> Process:
    yield [engine.start(amount, uses)]
    ends.append(engine.now)


def test_two_flows_share_a_link() -> None:
    engine, ends = Engine({"link": 10.0}), list[float]()
    run(engine, *(send(engine, ends, n, {"link": 1.0}) for n in (10.0, 30.0)))
    assert ends == pytest.approx([2.0, 4.0])


def test_what_a_full_resource_leaves_goes_to_others() -> None:
    engine, ends = Engine({"a": 10.0, "b": 2.0}), list[float]()
    uses: list[dict[Any, float]] = [{"a": 1.0, "b": 1.0}, {"a": 1.0}]
    run(engine, *(send(engine, ends, 16.0, use) for use in uses))
    assert ends == pytest.approx([2.0, 8.0])


def test_nothing_is_lost_or_made() -> None:
    rng = np.random.default_rng(7)
    capacities = {
        name: float(rate) for name, rate in zip("abcd", rng.uniform(1, 9, 4), strict=True)
    }
    engine, ends = Engine(capacities), list[float]()
    want = dict.fromkeys("abcd", 0.0)
    for _ in range(40):
        uses = {name: float(rng.uniform(0.1, 2)) for name in rng.choice(list("abcd"), 2, False)}
        amount = float(rng.uniform(0.1, 5))
        for name, coefficient in uses.items():
            want[name] += amount * coefficient
        engine.spawn(send(engine, ends, amount, uses))
    seconds = engine.run()
    assert len(ends) == 40 and max(ends) == seconds
    for name, rate in capacities.items():
        assert want[name] <= rate * seconds * (1 + 1e-9)


def test_a_full_resource_passes_what_it_can() -> None:
    rng = np.random.default_rng(8)
    engine, amounts = Engine({"link": 3.0, "more": 100.0}), rng.uniform(0.1, 5, 20).tolist()
    seconds = run(engine, *(send(engine, [], n, {"link": 2.0, "more": 1.0}) for n in amounts))
    assert seconds == pytest.approx(2 * sum(amounts) / 3)


def test_a_meeting_waits_for_the_last() -> None:
    engine, ends = Engine({}), list[float]()
    gate = Gate(engine, 2, 0.5)

    def come(at: float) -> Process:
        yield [engine.after(at)]
        yield [gate.enter()]
        ends.append(engine.now)

    run(engine, come(1.0), come(3.0))
    assert ends == [3.5, 3.5]


def test_work_shares_processors() -> None:
    engine, ends = Engine({"all": 2.0, **{("own", k): 1.0 for k in range(8)}}), list[float]()
    run(engine, *(send(engine, ends, 1.0, {"all": 1.0, ("own", k): 1.0}) for k in range(8)))
    assert ends == pytest.approx([4.0] * 8)


def test_an_event_that_has_happened_is_not_waited_for() -> None:
    engine = Engine({})

    def process() -> Process:
        yield [Event(done=True)]
        yield []

    assert run(engine, process()) == 0.0


# Machines


def test_distances() -> None:
    assert [FULL.distance(0, rank) for rank in (0, 7, 8, 31, 32)] == [OWN, NODE, POD, POD, FAR]
    assert FULL.meeting_s(8) == pytest.approx(3 * FULL.hop_s)
    assert [level.size for level in FULL.topology().levels] == [8, 32, None]


# Rounds, as the runtime makes them


class _Asked(Exception):
    pass


@dataclass
class PaperWorld:
    """A rank's world whose collectives are answered from a list, or ask for the next answer."""

    rank: int
    n_ranks: int
    node_size: int
    answers: list[Any] = field(default_factory=list)
    at: int = 0

    @property
    def node(self) -> Any:
        first = self.rank // self.node_size * self.node_size
        groups = tuple(r // self.node_size * self.node_size for r in range(self.n_ranks))
        ranks = range(first, first + self.node_size)
        return SimpleNamespace(ranks=ranks, groups=groups, place=self.rank - first)

    @property
    def one_node(self) -> bool:
        return self.n_ranks == self.node_size

    def all_max(self, values: Any) -> None:
        if self.at == len(self.answers):
            raise _Asked(values.copy())
        values[...] = self.answers[self.at]
        self.at += 1

    def gather_on_node(self, value: Any) -> list[Any]:
        return [([True], [[{}]] * self.node_size)] * self.node_size


def staging_of(plan: Plan, stage: int, n_ranks: int, node_size: int) -> Staging:
    """The runtime's staging: its collectives are answered with the most that any rank says."""
    answers: list[Any] = []
    stages = [TransferStages.of((plan,), rank, FLAT) for rank in range(n_ranks)]
    while True:
        said = []
        for rank, one in enumerate(stages):
            world: Any = PaperWorld(rank, n_ranks, node_size, answers)
            try:
                found = Staging.of(world, one.stages[stage], one.staging_bytes(stage), False)
            except _Asked as asked:
                said.append(asked.args[0])
        if not said:
            return found
        answers.append(np.max(said, axis=0))


PROBLEMS = [
    ("f64[512{x}, 512]", "f64[512, 512{x}]"),
    ("f64[2048{x}, 2048]", "f64[2048, 2048{x}]"),
    ("f64[160{x}, 160, 160]", "f64[160, 160{x}, 160]"),
    ("f64[4194304{x}]", "f64[4194304]"),
    ("f64[4194304] sum{x}", "f64[4194304{x}]"),
    ("f64[262144] sum{x}", "f64[262144]"),
    ("f64[1000{x}, 999]", "f64[1000, 999{x}]"),
]


@pytest.mark.parametrize("node_size", [1, 2, 8])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem[0])
def test_rounds_are_those_of_the_runtime(
    monkeypatch: pytest.MonkeyPatch, problem: tuple[str, str], node_size: int
) -> None:
    """But for turns, which the simulation does not know."""
    monkeypatch.setattr(staging_module, "_in_turns", lambda *args: (args[-1], args[-1] * 0 + 1))
    plan = plan_of(8, *problem)
    machine = replace(BARE, ranks_per_node=node_size)
    classes = rank_by_rank(plan, FLAT, machine, 8)
    stages = TransferStages.of((plan,), 0, FLAT)
    for number in range(len(stages.stages)):
        shares = [c.stages[number] for c in classes]
        ours = rounds_of(shares, stages.staging_bytes(number), node_size == 8, node_size > 1)
        theirs = staging_of(plan, number, 8, node_size)
        assert ours.parts == len(theirs.rounds)
        assert ours.crosses == theirs.crosses
        assert (ours.halves == theirs.halves) or ours.parts == 1


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_rounds_move_every_byte_once(parts: int) -> None:
    plan = plan_of(8, "f64[48{x}, 96]", "f64[48, 96{x}]", strategy="direct")
    (share,) = rank_by_rank(plan, FLAT, BARE, 8)[3].stages
    works = [work_of(share, k, parts) for k in range(parts)]
    sent = sum(n_bytes for work in works for *_, n_bytes, _ in work.sends)
    assert sent == 7 * 6 * 12 * 8
    # a part of one row lies in one piece: it is sent as it is
    assert sum(work.pack for work in works) == (0 if parts == 7 else sent)
    assert sum(work.own for work in works) == 6 * 12 * 8
    assert all(len(work.sends) in (0, 7) for work in works)


# Closed forms


def test_all_to_all_on_a_flat_machine_is_bytes_over_rate() -> None:
    machine = replace(BARE, latency_s=1e-3, hop_s=1e-2, call_s=0.1)
    plan = plan_of(8, "f64[64{x}, 64]", "f64[64, 64{x}]", strategy="direct")
    found = simulate(plan, machine, 8)
    assert found.rounds == (1,)
    assert found.seconds == pytest.approx(0.1 + 3 * 1e-2 + 7 * 64 * 8 / 1e9 + 1e-3)


def test_a_gather_waits_for_the_link_of_a_node() -> None:
    machine = replace(BARE, ranks_per_node=4, rank_rate=math.inf)
    plan = plan_of(8, "f64[1024{x}]", "f64[1024]", strategy="direct")
    # four ranks of a node each get what is not in their node, through one link
    assert simulate(plan, machine, 8).seconds == pytest.approx(4 * 512 * 8 / 1e9)


def test_an_oversubscribed_pod_slows_what_leaves_it() -> None:
    plan = two_meshes(16, "f64[1024{x}]", "f64[1024{x}]")
    pods = replace(BARE, nodes_per_pod=8, pod_rate=2e9)
    assert simulate(plan, BARE, 16).seconds == pytest.approx(1024 / 1e9)
    assert simulate(plan, pods, 16).seconds == pytest.approx(8 * 1024 / 2e9)


def test_work_of_all_ranks_shares_the_processors() -> None:
    machine = replace(BARE, processors=2.0, call_s=1e-3)
    plan = plan_of(8, "f64[8{x}]", "f64[8]", strategy="direct")
    seconds = simulate(plan, machine, 8).seconds
    assert seconds == pytest.approx(4e-3, rel=1e-3)


# One rank for all


def both_ways(plan: Plan, n_ranks: int, machine: Machine = FULL) -> float:
    known = machine.topology()
    one, all_ = (simulate(plan, machine, n_ranks, known, by_class=way) for way in (True, False))
    assert one.rounds == all_.rounds
    return one.seconds / all_.seconds


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f64[1048576{x}]", "f64[1048576]"),
        ("f64[8192] sum{x}", "f64[8192]"),
    ],
)
def test_one_rank_stands_for_all(source: str, target: str) -> None:
    n_ranks = sample(32, of=64)
    plan = plan_of(n_ranks, source, target, topology=FULL.topology(), strategy="no_permute")
    assert both_ways(plan, n_ranks) == pytest.approx(1.0, abs=0.01)


def test_one_rank_stands_for_all_of_a_direct_plan() -> None:
    n_ranks = sample(32, of=64)
    plan = plan_of(n_ranks, "f64[512{x}, 512]", "f64[512, 512{x}]", strategy="direct")
    assert both_ways(plan, n_ranks) == pytest.approx(1.0, abs=0.01)


def test_two_ranks_stand_for_two_meshes() -> None:
    plan = two_meshes(64, "f64[1048576{x}]", "f64[1048576{x}]")
    assert both_ways(plan, 64) == pytest.approx(1.0, abs=0.01)


def test_classes_count_what_lists_do() -> None:
    plan = plan_of(32, "f64[4096{x}, 128]", "f64[4096, 128{x}]", strategy="direct")
    (one,) = class_by_class(plan, FLAT, FULL, 32)
    lists = rank_by_rank(plan, FLAT, FULL, 32)[0]
    for few, many in zip(one.stages, lists.stages, strict=True):
        for distance in range(4):
            counted, listed = (
                sum(k.count * k.elems for k in share.got if k.distance == distance)
                for share in (few, many)
            )
            assert counted == listed
        assert few.exports == many.exports


def test_65536_ranks_take_a_moment() -> None:
    n = 65536
    plan = plan_of(n, f"f64[{2 * n}{{x}}, {n}]", f"f64[{2 * n}, {n}{{x}}]", strategy="direct")
    found = simulate(plan, replace(FULL, message_s=0.0), n)
    # what leaves a pod of 32 ranks is all but one part in 2048 of what they have
    least = 32 * 2**20 * (1 - 1 / 2048) / FULL.pod_rate
    assert least < found.seconds < 3 * least + FULL.call_s + FULL.meeting_s(n)
