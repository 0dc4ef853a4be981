"""Simulate a transfer: what every rank does in every stage and round, on a machine on paper.

A rank is a process of the engine, as the runtime has it: it meets all others, packs, sends, copies what its
neighbours have, waits, unpacks and adds up; with two halves of staging the messages of the next round are
under way before the end of this one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bench.scale.engine import Engine, Event, Gate, Process
from bench.scale.machine import FAR, Machine
from bench.scale.rounds import Message, RoundWork, StageRounds, rounds_of, work_of
from bench.scale.shares import RankClass, StageShare, class_by_class, rank_by_rank
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.host.messages import CUT_BYTES, MOST_CUTS
from redist.runtime.host.places import BROUGHT_BYTES, FEW_ROUNDS, SMALL_BYTES
from redist.runtime.ranks.waiting import BUSY_S
from redist.runtime.schedule.stages import TransferStages, homes_of

MOST_LISTED = 64
"""Up to so many ranks are simulated one by one."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Seconds of a transfer, and the rounds of each stage."""

    seconds: float
    rounds: tuple[int, ...]


def simulate(
    plan: Plan,
    machine: Machine,
    n_ranks: int,
    topology: Topology | None = None,
    by_class: bool | None = None,
) -> Simulated:
    """Run a plan on paper; ``topology`` is what it was made for.

    >>> import redist
    >>> mesh = redist.Mesh(x=4)
    >>> plan = redist.synthesize("f64[4096{x}, 4096]", "f64[4096, 4096{x}]", mesh=mesh)
    >>> round(simulate(plan, Machine("slow", 1, 1e8, 1e8), 4).seconds, 6)
    0.251658
    """
    known = machine.topology() if topology is None else topology
    if by_class is None:
        by_class = n_ranks > MOST_LISTED
    make = class_by_class if by_class else rank_by_rank
    classes = make(plan, known, machine, n_ranks)
    return _Simulation(plan, machine, n_ranks, classes).run()


class _Simulation:
    def __init__(
        self, plan: Plan, machine: Machine, n_ranks: int, classes: Sequence[RankClass]
    ) -> None:
        self.plan, self.machine, self.n_ranks, self.classes = plan, machine, n_ranks, classes
        self.packs_all = machine.is_gpu
        self.one_node = n_ranks <= machine.ranks_per_node
        self.rounds = [self._rounds(k) for k in range(len(classes[0].stages))]
        self.engine = Engine(self._capacities())
        self.meeting = Gate(self.engine, len(classes), machine.meeting_s(n_ranks))
        self.on_node = self._node_gates()
        self.arrived: defaultdict[tuple[int, int, int, int, int], Event] = defaultdict(Event)

    def run(self) -> Simulated:
        for number in range(len(self.classes)):
            self.engine.spawn(self._rank(number))
        seconds = self.engine.run()
        return Simulated(seconds, tuple(one.parts for one in self.rounds))

    def _rounds(self, stage: int) -> StageRounds:
        shares = [c.stages[stage] for c in self.classes]
        if shares[0].is_local:
            return StageRounds(1, 1, False)
        steps = self.plan.steps
        staging = steps[shares[0].step_number].staging_bytes if steps else 0
        shared = self.machine.ranks_per_node > 1
        return rounds_of(shares, staging, self.one_node, shared, self.packs_all)

    # Resources

    def _capacities(self) -> dict[Hashable, float]:
        machine = self.machine
        found: dict[Hashable, float] = {}
        for number, c in enumerate(self.classes):
            node, pod = machine.node(c.rank), machine.pod(c.rank)
            found["processor", number] = 1.0
            for way in ("out", "in"):
                found["rank", number, way] = machine.rank_rate
                found["node", node, way] = machine.node_rate
                found["pod", pod, way] = machine.pod_rate
        if machine.processors is not None:
            found["processors"] = machine.processors
        return found

    def _node_gates(self) -> list[Gate]:
        """By class: where the ranks of its node meet; one that stands for all of them meets itself."""
        by_class = any(c.size > 1 for c in self.classes)
        gates: dict[int, Gate] = {}
        found = []
        for number, c in enumerate(self.classes):
            key = number if by_class else self.machine.node(c.rank)
            found.append(gates.setdefault(key, Gate(self.engine, 0, self.machine.node_meeting_s)))
            found[-1].size += 1
        return found

    def _in_node(self, number: int) -> int:
        """How many ranks of a class are in the node of the one that stands for it."""
        return min(self.classes[number].size, self.machine.ranks_per_node)

    def _in_pod(self, number: int) -> int:
        size, nodes = self.classes[number].size, self.machine.nodes_per_pod
        return size if nodes is None else min(size, nodes * self.machine.ranks_per_node)

    # What ranks do

    def _work(self, number: int, seconds: float) -> Event:
        uses = {("processor", number): 1.0, "processors": float(self.classes[number].size)}
        return self.engine.start(seconds, uses)

    def _send(self, stage: int, k: int, number: int, message: Message, share: float) -> Event:
        """Start the messages of a round to one class; ``share`` is their part of all that is sent."""
        peer, distance, n_bytes, n = message
        machine, classes = self.machine, self.classes
        ratio = classes[number].size / classes[peer].size
        mine, theirs = classes[number].rank, classes[peer].rank
        uses: defaultdict[Hashable, float] = defaultdict(float)
        uses["rank", number, "out"] += 1.0
        uses["rank", peer, "in"] += ratio
        uses["node", machine.node(mine), "out"] += self._in_node(number)
        uses["node", machine.node(theirs), "in"] += ratio * self._in_node(peer)
        if distance == FAR:
            uses["pod", machine.pod(mine), "out"] += self._in_pod(number)
            uses["pod", machine.pod(theirs), "in"] += ratio * self._in_pod(peer)
        # either end is at work on every message, while others are under way
        each = machine.byte_s / 2 + _n_messages(n_bytes, n) * machine.message_s / n_bytes
        uses["processor", number] += each
        uses["processor", peer] += ratio * each
        uses["processors"] = 2 * each * classes[number].size
        latency = machine.far_latency_s if distance == FAR else machine.latency_s
        weight = share * min(machine.rank_rate, machine.node_rate / machine.ranks_per_node)
        arrival = self.arrived[stage, k, number, peer, distance]
        return self.engine.start(n_bytes, uses, weight, latency, arrival)

    def _rank(self, number: int) -> Process:
        machine = self.machine
        yield [self._work(number, machine.call_s)]
        in_place = False
        stages = self.classes[number].stages
        for k, share in enumerate(stages):
            if share.is_local:
                work = work_of(share, 0, 1)
                yield [self._work(number, self._fresh_s(share) + work.own / machine.copy_rate)]
                continue
            yield [self._work(number, machine.stage_s + self._fresh_s(share))]
            yield from self._stage(number, k, share)
            in_place = bool(share.exports) or in_place
        if in_place:
            yield [self.on_node[number].enter()]

    def _stage(self, number: int, stage: int, share: StageShare) -> Process:
        machine, rounds = self.machine, self.rounds[stage]
        small = rounds.parts <= FEW_ROUNDS and share.source_bytes <= SMALL_BYTES
        pooled = small and bool(share.exports) and not self.packs_all
        if pooled:
            yield [self._publish(number, share, rounds)]
        yield [self.meeting.enter()]
        n_rounds = rounds.parts if rounds.crosses or pooled else 1
        halves = rounds.halves if n_rounds > 1 else 1
        posted: dict[int, tuple[RoundWork, list[Event]]] = {}
        for k in range(n_rounds):
            if k and pooled:
                yield [self._publish(number, share, rounds)]
            for ahead in range(k, min(k + halves, n_rounds)):
                if ahead not in posted:
                    work = work_of(share, ahead, n_rounds, self.packs_all)
                    pack_s = machine.round_s + work.pack / machine.copy_rate
                    yield [self._work(number, pack_s)]
                    posted[ahead] = work, self._post(number, stage, ahead, work)
            if k and pooled:
                yield [self.on_node[number].enter()]
            yield from self._fetch(number, stage, k, *posted.pop(k))
        opened = share.is_brought and share.target_bytes >= BROUGHT_BYTES
        if opened and bool(share.exports) and not self.packs_all:
            yield [self.on_node[number].enter()]

    def _fetch(
        self, number: int, stage: int, k: int, work: RoundWork, sent: list[Event]
    ) -> Process:
        machine = self.machine
        came = (self.arrived[stage, k, peer, number, far] for peer, far, *_ in work.receives)
        events = [*sent, *came]
        near_rate = min(machine.copy_rate, machine.near_rate)
        copies = work.own / machine.copy_rate + work.near / near_rate
        if work.combine:
            yield from self._wait(events)
        yield [self._work(number, copies)]
        yield from self._wait(events)
        after = work.unpack / machine.copy_rate + work.combine / machine.combine_rate
        yield [self._work(number, after)]

    def _wait(self, events: list[Event]) -> Process:
        """Wait as the runtime does: after a while it only looks now and then."""
        start = self.engine.now
        yield events
        waited = self.engine.now - start
        if waited > BUSY_S and self.machine.processors is not None:
            yield [self.engine.after(min(1e-3, waited / 20) / 2)]

    def _post(self, number: int, stage: int, k: int, work: RoundWork) -> list[Event]:
        total = sum(n_bytes for _, _, n_bytes, _ in work.sends)
        return [self._send(stage, k, number, one, one[2] / total) for one in work.sends]

    def _publish(self, number: int, share: StageShare, rounds: StageRounds) -> Event:
        """Copy what neighbours read in a round to where they read it."""
        n_bytes = sum(math.prod(shape) * n for shape, n in share.exports) * share.itemsize
        return self._work(number, n_bytes / rounds.parts / self.machine.copy_rate)

    def _fresh_s(self, share: StageShare) -> float:
        """Seconds to get new pages for a tile between two steps that is not kept between calls."""
        plan = self.plan
        stages = TransferStages((plan,), 0, (), (homes_of(plan),))
        placed = stages.placed_tiles()  # in the memory of the target
        if (0, share.target) in placed or share.target >= max(1, len(plan.steps)):
            return 0.0
        held = sum(
            t.tile_bytes
            for k, t in enumerate(plan.types)
            if (0, k) not in placed and stages.has_memory(0, k)
        )
        staging = max((step.staging_bytes for step in plan.steps), default=0)
        if held + staging <= plan.peak_bytes or share.source == share.target:
            return 0.0
        return share.target_bytes / self.machine.fresh_rate


def _n_messages(n_bytes: float, n: float) -> float:
    """How many messages so many bytes are to ``n`` peers, long ones cut into parts."""
    return n * min(MOST_CUTS, max(1, math.ceil(n_bytes / n / CUT_BYTES)))
