"""Theorem pairing speaks of what runs: pieces, messages, and the order in which a stage goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redist
from proofs.evidence.passing import delivered
from proofs.theorems.pairing import (
    AHEAD,
    ARRIVE,
    DONE,
    LEAVE,
    POST,
    copies,
    position,
    receives,
    sends,
)
from redist.layout.tiles import tile_shapes
from redist.plan.plan import Plan
from redist.plan.steps import AllReduce
from redist.runtime.copies.strided import c_strides
from redist.runtime.host import messages as messages_module
from redist.runtime.host import staging as staging_module
from redist.runtime.host.stage import Stage
from redist.runtime.ranks.control_page import ControlPage
from redist.runtime.schedule.compiler import Bases, Compiler, Message, TileAt
from redist.runtime.schedule.pieces import StepPieces
from redist.runtime.schedule.rounds import RoundPart, part_of, turn_of, whole
from redist.runtime.schedule.stages import StagePart
from tests.fakes.ranks import compiled, phase_of, random_groups, worlds
from tests.problems.strategies import random_pair
from tests.tiers import sample


def random_steps(rng: Random, max_ranks: int) -> Iterator[tuple[Plan, int, int, int]]:
    """Plans of all kinds: a step, one of its phases, and how many ranks there are."""
    while True:
        source, target = random_pair(rng, max_devices=max_ranks, max_elems=120)
        strategy = rng.choice(["direct", "direct", "direct", "auto"])
        plan = redist.synthesize(source, target, strategy=strategy)
        n = max(*source.mesh.ranks, *target.mesh.ranks) + 1
        for number, step in enumerate(plan.steps):
            phases = 2 if isinstance(step.action, AllReduce) else 1
            for again in range(phases):
                yield plan, number, again, n


def test_both_ends_list_the_same_pieces_in_the_same_order() -> None:
    rng, pairs = Random(1), 0
    for plan, number, again, n in random_steps(rng, 8):
        phases = [phase_of(plan, number, again, rank) for rank in range(n)]
        for a in range(n):
            assert all(a in (p.sender, p.receiver) for p in phases[a].pieces)
            for b in range(n):
                sent, got = (
                    [p for p in phases[me].pieces if (p.sender, p.receiver) == (a, b)]
                    for me in (a, b)
                )
                assert sent == got
                pairs += bool(sent)
        if pairs > sample(180, of=2000):
            return


def all_pieces(phases: list[StepPieces]) -> list[Any]:
    """The pieces of all ranks, each once."""
    return [p for rank, phase in enumerate(phases) for p in phase.pieces if p.receiver == rank]


def said_of(pieces: list[Any], groups: list[int], round_part: RoundPart) -> dict[Any, int]:
    """Elements of every message (sender, receiver) of a round, by the theorem."""
    said: dict[Any, int] = {}
    for piece in pieces:
        if turn_of(piece.sender, piece.receiver, False, round_part.turns) != round_part.turn:
            continue
        part = part_of(piece, round_part)
        for a in range(len(groups)):
            for b in range(len(groups)):
                args = piece.sender, piece.receiver, groups[a] == groups[b]
                goes = a != b and sends(a, b, *args)
                assert goes == (a != b and receives(b, a, *args))
                if goes and part is not None:
                    said[a, b] = said.get((a, b), 0) + math.prod(part.shape)
    return said


@pytest.mark.slow("seconds of random steps; make prove settles the theorem")
def test_messages_are_those_of_the_theorem_and_arrive_without_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging_module, "LEAST_POOL_BYTES", 64)
    monkeypatch.setattr(staging_module, "LEAST_HOST_HALF_BYTES", 16)
    monkeypatch.setattr(staging_module, "GRAIN_BYTES", 16)
    rng, messages, cut, turned = Random(2), 0, 0, 0
    for plan, number, again, n in random_steps(rng, 6):
        groups = random_groups(rng, n)
        itemsize = plan.source.dtype.itemsize
        phases = [phase_of(plan, number, again, rank) for rank in range(n)]
        if all(phase.is_local for phase in phases):
            continue
        round_parts, rounds = compiled(plan, number, again, groups, rng.choice([0, 200, 9000]))
        assert {len(own) for own in rounds} == {len(round_parts)}
        programs: dict[int, list[list[tuple[str, int]]]] = {rank: [] for rank in range(n)}
        wanted = []
        for place, (round_part,) in enumerate(round_parts):
            said = said_of(all_pieces(phases), groups, round_part)
            for rank in range(n):
                own = rounds[rank][place]
                out = {(rank, m.peer): m.n_bytes // itemsize for m in own.sends}
                into = {(m.peer, rank): m.n_bytes // itemsize for m in own.receives}
                assert len(out) == len(own.sends) and len(into) == len(own.receives)
                assert out == {ends: k for ends, k in said.items() if ends[0] == rank}
                assert into == {ends: k for ends, k in said.items() if ends[1] == rank}
                posts = [("from", a) for a, _ in into] + [("to", b) for _, b in out]
                programs[rank].append(posts)
            wanted += list(said)
        assert sorted(delivered(programs)) == sorted(wanted)
        messages += len(wanted)
        cut += len(round_parts) > 1 and bool(wanted)
        turned += round_parts[0][0].turns > 1 and bool(wanted)
        if messages > sample(45, of=1000) and cut > sample(2, of=30) and turned > sample(0, of=3):
            return


def test_a_piece_of_a_node_is_copied_by_the_rank_of_the_theorem() -> None:
    rng, brought, fetched = Random(3), 0, 0
    for plan, number, again, n in random_steps(rng, 6):
        phases = [phase_of(plan, number, again, rank) for rank in range(n)]
        if any(phase.is_local or phase.op for phase in phases):
            continue
        opened = frozenset((rank, 0) for rank in range(n) if rng.random() < 0.6)
        before, after = (tile_shapes(plan.types[number + k]) for k in (again, 1))
        itemsize = plan.source.dtype.itemsize
        for rank in range(n):
            compiler = Compiler(
                rank,
                [StagePart(phases[rank], plan.source.dtype)],
                Bases(1, range(n)),
                dict.fromkeys(((r, 0) for r in range(n)), TileAt.SHARED),
                {},
                [c_strides(before.get(rank, ()), itemsize)],
                [c_strides(after.get(rank, ()), itemsize)],
                (0, 0),
                opened=opened,
            )
            (round_parts,) = whole(1)
            moves = compiler.round(round_parts).copies.moves()
            done = sum(move.form.n_bytes for move in moves) // itemsize
            own = [
                p
                for p in phases[rank].pieces
                if copies(rank, p.sender, p.receiver, (p.receiver, 0) in opened)
            ]
            assert done == sum(math.prod(p.shape) for p in own)
            brought += sum(p.receiver != rank for p in own)
            fetched += sum(p.sender != rank for p in own)
        if min(brought, fetched) > sample(54, of=1000):
            return


class Recorder:
    """A stage with a world that writes down what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, combines: bool, halves: int) -> None:
        self.log: list[str] = []
        self.slots: list[int] = []
        page: Any = SimpleNamespace(pool_address=0, pool_bytes=1000)
        page.slot = lambda parity, size: ControlPage.slot(page, parity, size)
        self.world: Any = SimpleNamespace(
            rank=0, meeting=SimpleNamespace(seq=7), pages={0: page},
            comm=SimpleNamespace(Irecv="receive", Isend="send"),
            meet_node=self.meet, wait_until=self.wait,
        )  # fmt: skip
        self.stage = object.__new__(Stage)
        bases = Bases(1, (0,))
        vars(self.stage).update(
            world=self.world,
            bases=bases,
            staging=SimpleNamespace(slot_bytes=100, halves=halves, send_bytes=50, receive_bytes=60),
        )
        self.posts: list[tuple[str, int]] = []
        """What was posted, and where the staging for it begins."""
        monkeypatch.setattr(messages_module, "post", self.post)
        nothing = SimpleNamespace(is_empty=lambda: True, add=lambda requests: None)
        monkeypatch.setattr(messages_module, "are_complete", lambda requests: True)
        monkeypatch.setattr(messages_module, "Incomplete", lambda requests: nothing)
        self.combines = (self.does("combine"),) if combines else ()

    def post(self, start: str, message: Any, table: Any, tag: int) -> str:
        bases = self.stage.bases
        base = bases.receive if start == "receive" else bases.send
        self.posts.append((start, int(table[base])))
        self.log.append(start)
        return start

    def wait(self, is_done: Any) -> None:
        assert is_done()
        self.log.append("wait")

    def meet(self) -> None:
        self.world.meeting.seq += 1
        self.log.append("meet")

    def does(self, what: str) -> Any:
        def run(table: Any) -> None:
            self.log.append(what)
            if what == "publish":
                self.slots.append(int(table[self.stage.bases.pool]))

        return SimpleNamespace(run=run)

    def round(self) -> Any:
        message = Message(1, 0, 0, 8)
        return SimpleNamespace(
            publish=self.does("publish"), pack=self.does("pack"), sends=(message,),
            receives=(message, message), copies=self.does("copy"), reads=(),
            unpack=self.does("unpack"), combines=self.combines,
        )  # fmt: skip


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("combines", [False, True])
def test_a_stage_goes_in_the_order_of_the_theorem(
    monkeypatch: pytest.MonkeyPatch, combines: bool, halves: int
) -> None:
    recorder = Recorder(monkeypatch, combines, halves)
    rounds = [recorder.round() for _ in range(3)]
    table = np.zeros(recorder.stage.bases.size, dtype=np.uintp)
    recorder.stage._run_rounds(rounds, {(0, 0): TileAt.POOL}, table, None)
    end = ["wait", "copy"] if combines else ["copy", "wait"]
    post = ["receive", "receive", "pack", "send"]
    last = [*end, "unpack", *(["combine"] if combines else [])]
    early, late = (post, []) if halves == 2 else ([], post)
    middle = ["publish", *late, *early, "meet", *last]
    assert recorder.log == [*post, *early, *last, *middle, "publish", *late, "meet", *last]
    # Meetings 8 and 9: slots for even meetings in front, for odd ones at the back.
    assert recorder.slots == [0, 900]
    send, receive = 50 * (halves - 1), 60 * (halves - 1)
    want = [[("receive", k % 2 * receive)] * 2 + [("send", k % 2 * send)] for k in range(3)]
    assert recorder.posts == [one for posts in want for one in posts]
    places, block, n_posts = [], 0, 0
    for what in recorder.log:
        block += what == "unpack"
        match what:
            case "receive" | "send":
                places.append(position(block, POST if n_posts // 3 == block else AHEAD))
                n_posts += 1
            case "meet":
                places += [position(block, ARRIVE), position(block, LEAVE)]
            case "wait":
                places.append(position(block, DONE))
    assert places == sorted(places) and len(set(places)) == 2 + 2 * 4


def test_worlds_of_threads_know_their_nodes() -> None:
    assert [world.node.ranks for world in worlds([0, 0, 2, 2, 2])] == [
        (0, 1),
        (0, 1),
        *3 * [(2, 3, 4)],
    ]
