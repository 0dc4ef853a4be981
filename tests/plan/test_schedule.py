"""Schedules: every piece arrives once, from a rank that has it, near and not busy."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.mesh import Mesh
from redist.layout.tiles import Grid, grid
from redist.plan.rates import FLAT
from redist.plan.rules import added_axes, kept_axes, resolved_axes, type_after
from redist.plan.schedule import Schedule, make_schedule, own_rows, source_ranges
from redist.plan.steps import (
    Action,
    AllGather,
    AllPermute,
    AllToAll,
    Exchange,
    ReduceScatter,
)
from redist.plan.topology import Level, Topology
from redist.plan.traffic import flow
from tests.problems import oracle
from tests.problems.strategies import divisors, random_pair, seeded
from tests.tiers import sample

Pair = tuple[ArrayType, ArrayType]
Box = tuple[range, ...]


def tiered(*sizes: int) -> Topology:
    """Levels of the given block sizes, and one that spans all ranks."""
    levels = [Level(f"level{i}", size, 10**6, 10**5) for i, size in enumerate(sizes)]
    return Topology((*levels, Level("all", None, 10**7, 10**6)))


TOPOLOGIES = [FLAT, tiered(2), tiered(4), tiered(1, 3, 6), tiered(2, 4, 8), tiered(5, 100)]


def pieces(schedule: Schedule) -> list[tuple[int, int, int, Box]]:
    """Sender row, receiver row, level and box of every piece, as plain data."""
    return [
        (int(s), int(r), int(level), tuple(map(range, lo.tolist(), hi.tolist())))
        for s, r, level, lo, hi in zip(
            schedule.sender,
            schedule.receiver,
            schedule.level,
            schedule.lo,
            schedule.hi,
            strict=True,
        )
    ]


def check(source: ArrayType, target: ArrayType, topology: Topology) -> Schedule:
    """Everything a schedule of two types without pending axes must keep."""
    schedule = make_schedule(grid(source), grid(target), topology)
    moves = pieces(schedule)
    before, after = oracle.holdings(source), oracle.holdings(target)
    old, new = list(source.mesh.ranks), list(target.mesh.ranks)
    got: dict[int, Counter[oracle.Index]] = {rank: Counter() for rank in new}
    volumes = schedule.elems().tolist()
    for (sender, receiver, level, box), volume in zip(moves, volumes, strict=True):
        elems = oracle.elements(box)
        assert elems and volume == len(elems)
        assert old[sender] != new[receiver]
        assert elems <= before[old[sender]]
        got[new[receiver]].update(elems)
        # The nearest level: the two meet there, and nobody nearer has the piece.
        assert level == topology.level_of(old[sender], new[receiver])
        near = [r for r in old if elems <= before[r]]
        assert level == min(topology.level_of(r, new[receiver]) for r in near)
    for rank, need in after.items():
        own = before.get(rank, set()) & need
        assert got[rank] + Counter(own) == Counter(need)
    # One piece for each receiver and source tile.
    tiles = Counter((receiver, frozenset(before[old[sender]])) for sender, receiver, _, _ in moves)
    assert all(count == 1 for count in tiles.values())
    assert sum(volumes) == oracle.lower_bound(source, target)
    return schedule


@settings(max_examples=sample(100, of=400), deadline=None, derandomize=True)
@given(seeded(lambda rng: (random_pair(rng, pending=False, max_elems=120), rng)))
def test_every_element_arrives_once_from_the_nearest_holder(case: tuple[Pair, Random]) -> None:
    (source, target), rng = case
    check(source, target, rng.choice(TOPOLOGIES))


@settings(max_examples=sample(75, of=300), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, pending=False, max_elems=120)))
def test_requests_for_a_tile_are_spread_over_its_holders(pair: Pair) -> None:
    source, target = pair
    schedule = make_schedule(grid(source), grid(target), FLAT)
    boxes = oracle.boxes(source)
    asked = Counter(schedule.sender.tolist())
    for box in set(boxes):
        counts = [asked[device] for device, other in enumerate(boxes) if other == box]
        if oracle.elements(box):
            assert max(counts) - min(counts) <= 1
        else:
            assert not any(counts)


@settings(max_examples=sample(75, of=300), deadline=None, derandomize=True)
@given(seeded(lambda rng: (random_pair(rng, pending=False, max_elems=120), rng)))
def test_requests_are_spread_within_every_block(case: tuple[Pair, Random]) -> None:
    """Those of one block for one tile at one level go to the holders in that block in turn."""
    (source, target), rng = case
    topology = rng.choice(TOPOLOGIES)
    schedule = make_schedule(grid(source), grid(target), topology)
    boxes = oracle.boxes(source)
    ranks = list(source.mesh.ranks)

    def block(level: int, rank: int) -> int:
        size = topology.levels[level].size
        return 0 if size is None else rank // size

    asked: Counter[tuple[int, int]] = Counter()
    for sender, _, level, _ in pieces(schedule):
        asked[level, sender] += 1
    for level in range(len(topology.levels)):
        groups: dict[tuple[Box, int], list[int]] = {}
        for device, box in enumerate(boxes):
            groups.setdefault((box, block(level, ranks[device])), []).append(asked[level, device])
        for counts in groups.values():
            assert max(counts) - min(counts) <= 1


def still_pending(rng: Random, before: ArrayType, to: ArrayType) -> ArrayType:
    """``to`` with some of the axes that are pending before, taken out of its dims."""
    kept = rng.sample(before.pending_axes, rng.randint(1, len(before.pending_axes)))
    dims = [[p for p in dim if all(p.name != q.name for q in kept)] for dim in to.dims]
    return to.with_pending(None, ()).with_dims(dims).with_pending(before.pending_op, kept)


def random_action(rng: Random) -> tuple[Action, ArrayType]:
    """A step with a receive, most of them legal."""
    before, to = random_pair(rng, one_mesh=rng.random() < 0.7, max_elems=60, max_devices=16)
    if before.pending_op is not None and before.mesh == to.mesh and rng.random() < 0.6:
        to = still_pending(rng, before, to)
    ends = [i for i, dim in enumerate(before.dims) if dim]
    kind = rng.random()
    if ends and kind < 0.4:
        old = rng.choice(ends)
        last = before.dims[old][-1]
        pre = last.pre * rng.choice(divisors(last.size)[:-1])
        part = SubAxis(last.name, pre, last.end // pre)
        if kind < 0.2:
            return AllGather(((part, old),)), before
        return AllToAll((((part,), old, rng.randrange(before.ndim)),)), before
    if kind < 0.5:
        return AllPermute(to), before
    resolves = bool(resolved_axes(before, to))
    return (ReduceScatter(to) if resolves else Exchange(to)), before


@settings(max_examples=sample(200, of=800), deadline=None, derandomize=True)
@given(seeded(random_action))
def test_steps_deliver_what_their_types_promise(case: tuple[Action, ArrayType]) -> None:
    """Each device gets every partial value of every element of its new tile exactly once.

    Resolved axes: one value for each coordinate. Kept axes: only the value of its own coordinate.
    Added axes: devices off coordinate 0 get nothing. A named collective stays in its groups.
    """
    action, before = case
    try:
        after = type_after(action, before)
    except StepError:
        return
    have, need = flow(action, before, after)
    schedule = make_schedule(have, need, FLAT)
    held, wanted = oracle.holdings(before), oracle.holdings(after)
    old, new = list(before.mesh.ranks), list(after.mesh.ranks)
    resolved = oracle.labels(before, resolved_axes(before, after))
    kept = kept_axes(before, after)
    mine, yours = oracle.labels(before, kept), oracle.labels(after, kept)
    away = oracle.labels(after, added_axes(before, after))
    got: dict[int, Counter[tuple[oracle.Index, oracle.Label]]] = {rank: Counter() for rank in new}
    partners = None
    match action:
        case AllGather(moves):
            partners = oracle.groups(before, [part for part, _ in moves])
        case AllToAll(triples):
            partners = oracle.groups(before, [part for block, _, _ in triples for part in block])
        case _:
            pass
    for sender, receiver, _, box in pieces(schedule):
        elems = oracle.elements(box[: before.ndim])
        a, b = old[sender], new[receiver]
        assert a != b
        assert elems and elems <= held[a]
        assert mine[a] == yours[b]
        assert partners is None or sender in partners[receiver]
        got[b].update((index, resolved[a]) for index in elems)
    for rank in new:
        need_here = wanted[rank] if not any(away[rank]) else set()
        every = Counter(itertools.product(need_here, set(resolved.values())))
        if rank in held and mine[rank] == yours[rank]:
            got[rank].update((index, resolved[rank]) for index in held[rank] & need_here)
        assert got[rank] == every


def test_pieces_of_a_small_exchange() -> None:
    mesh = Mesh(x=2)
    source = ArrayType.parse("f32[5{x}]", mesh)
    target = ArrayType.parse("f32[5]", mesh)
    assert pieces(make_schedule(grid(source), grid(target), FLAT)) == [
        (1, 0, 0, (range(3, 5),)),
        (0, 1, 0, (range(3),)),
    ]


def test_the_nearest_replica_is_asked() -> None:
    """Two nodes of two ranks, each node with a copy: nothing crosses."""
    mesh = Mesh(node=2, local=2)
    source = ArrayType.parse("f32[8{local}]", mesh)
    target = ArrayType.parse("f32[8]", mesh)
    schedule = make_schedule(grid(source), grid(target), tiered(2))
    assert schedule.level.tolist() == [0] * 4
    assert (schedule.sender // 2 == schedule.receiver // 2).all()


def test_the_nearest_goes_by_rank() -> None:
    """The same mesh on ranks that lie otherwise: the copies are on the other node."""
    mesh = Mesh({"node": 2, "local": 2}, ranks=[0, 2, 1, 3])
    source = ArrayType.parse("f32[8{local}]", mesh)
    target = ArrayType.parse("f32[8]", mesh)
    schedule = make_schedule(grid(source), grid(target), tiered(2))
    assert schedule.level.tolist() == [1] * 4


def test_to_ranks_that_hold_nothing_yet() -> None:
    source = ArrayType.parse("f32[12{x}]", Mesh(x=3))
    target = ArrayType.parse("f32[12{z}]", Mesh({"z": 2}, ranks=[9, 2]))
    schedule = check(source, target, FLAT)
    assert pieces(schedule) == [
        (0, 0, 0, (range(4),)),
        (1, 0, 0, (range(4, 6),)),
        (1, 1, 0, (range(6, 8),)),
    ]


@pytest.mark.parametrize("text", ["f32[0{x}]", "f32[4{x}, 0]", "f32[0]"])
def test_nothing_moves_of_an_empty_array(text: str) -> None:
    mesh = Mesh(x=2, y=2)
    source = ArrayType.parse(text, mesh)
    target = ArrayType.of(mesh, "f32", source.shape)
    assert len(make_schedule(grid(source), grid(target), FLAT).sender) == 0


def test_a_scalar_moves_to_another_mesh() -> None:
    source = ArrayType.parse("f32[]", Mesh(x=2))
    target = ArrayType.parse("f32[]", Mesh({"z": 4}, ranks=range(1, 5)))
    schedule = check(source, target, FLAT)
    assert schedule.receiver.tolist() == [1, 2, 3]
    assert sorted(Counter(schedule.sender.tolist()).values()) == [1, 2]


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, pending=False, max_elems=120)))
def test_source_ranges_and_own_rows(pair: Pair) -> None:
    a, b = map(grid, pair)
    first, count = source_ranges(a, b)
    for row, box in enumerate(oracle.boxes(pair[1])):
        for i, indices in enumerate(box):
            n, cuts = pair[0].shape[i], pair[0].cuts[i]
            meets = [k for k in range(cuts) if set(oracle.tile(n, cuts, k)) & set(indices)]
            assert count[row, i] == len(meets)
            assert not meets or first[row, i] == meets[0]
    own = own_rows(a, b).tolist()
    ranks = list(pair[0].mesh.ranks)
    expected = [ranks.index(r) if r in ranks else -1 for r in pair[1].mesh.ranks]
    assert own == expected


def test_devices_that_hold_nothing_send_nothing() -> None:
    g = grid(ArrayType.parse("f32[4]", Mesh(x=3)))
    some = Grid(g.dims, g.ranks, g.index, np.array([False, True, False]))
    schedule = make_schedule(some, g, FLAT)
    assert schedule.sender.tolist() == [1, 1]
    assert schedule.receiver.tolist() == [0, 2]
    assert own_rows(some, g).tolist() == [-1, 1, -1]
