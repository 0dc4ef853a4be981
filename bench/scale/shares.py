"""What a rank gives and gets in every stage of a plan, alike pieces counted together.

Small machines: the runtime's own lists of pieces, rank by rank. Large ones are alike everywhere, so one
rank of each class stands for all: ranks that are in the same meshes. Its pieces are found without those of
the others; what it gives mirrors what the others get.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bench.scale.machine import NODE, OWN, Machine
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates, whole
from redist.layout.tiles import Grid, Ints, tile_shapes
from redist.plan.pieces import Piece
from redist.plan.plan import Plan
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import make_schedule, own_rows
from redist.plan.steps import AllPermute, AllReduce, Exchange, Slice
from redist.plan.topology import Topology
from redist.plan.traffic import flow
from redist.runtime.schedule.pieces import box_at, is_brought, split_counts
from redist.runtime.schedule.stages import StagePart, TransferStages, homes_of, is_view

Shape = tuple[int, ...]
SOME, GOLDEN = 24, 0.6180339887498949
"""Of a class that permutes its tiles so many ranks are looked at, spread evenly and without a pattern."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Alike pieces between a rank and those of class ``peer``, in one direction.

    ``peers`` is how many ranks they come from, or go to. ``combined`` says that they are added to what
    is there, not written.
    """

    peer: int
    distance: int
    shape: Shape
    src_shape: Shape
    dst_shape: Shape
    combined: bool
    count: float
    peers: float

    @property
    def elems(self) -> int:
        """Elements of one piece."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class StageShare:
    """One rank's part in a stage: what it gets (its own pieces too), what it gives.

    ``exports`` has the shapes of the distinct boxes that its neighbours read, and how many there are.
    """

    got: tuple[Kind, ...]
    given: tuple[Kind, ...]
    exports: tuple[tuple[Shape, int], ...]
    itemsize: int
    source_bytes: int
    target_bytes: int
    is_local: bool
    is_brought: bool
    step_number: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks that do the same: one of them, and how many they are."""

    rank: int
    size: int
    stages: tuple[StageShare, ...]


def rank_by_rank(plan: Plan, topology: Topology, machine: Machine, n_ranks: int) -> list[RankClass]:
    """A class of its own for every rank, from the lists that the runtime makes."""
    classes = []
    for rank in range(n_ranks):
        stages = TransferStages.of((plan,), rank, topology).stages
        shares = [_share_of_part(plan, part, rank, machine, n_ranks) for (part,) in stages]
        classes.append(RankClass(rank, 1, tuple(shares)))
    return classes


def _share_of_part(
    plan: Plan, part: StagePart, rank: int, machine: Machine, n_ranks: int
) -> StageShare:
    pieces, step = part.step.pieces, part.step
    boxes = {
        (p.src_lo, p.shape)
        for p in pieces
        if p.sender == rank != p.receiver and machine.distance(rank, p.receiver) == NODE
    }
    got = _count(((p.sender, p) for p in pieces if p.receiver == rank), rank, machine)
    given = _count(
        ((p.receiver, p) for p in pieces if p.sender == rank != p.receiver), rank, machine
    )
    return StageShare(
        got,
        given,
        tuple(Counter(shape for _, shape in boxes).items()),
        part.itemsize,
        _tile_bytes(plan, part.source, rank),
        _tile_bytes(plan, part.target, rank),
        step.is_local,
        step.is_brought,
        part.step_number,
        part.source,
        part.target,
    )


def _tile_bytes(plan: Plan, buffer: int, rank: int) -> int:
    t = plan.types[min(buffer, len(plan.types) - 1)]
    shape = tile_shapes(t).get(rank)
    return 0 if shape is None else math.prod(shape) * t.dtype.itemsize


def _count(pieces: Iterable[tuple[int, Piece]], rank: int, machine: Machine) -> tuple[Kind, ...]:
    """Pieces with the rank at their other end, alike ones of one peer together."""
    found: Counter[Kind] = Counter()
    for peer, p in pieces:
        distance = machine.distance(rank, peer)
        kind = Kind(peer, distance, p.shape, p.src_shape, p.dst_shape, p.order > 0, 1.0, 1.0)
        found[kind] += 1
    return tuple(replace(kind, count=float(count)) for kind, count in found.items())


# Classes


def class_by_class(
    plan: Plan, topology: Topology, machine: Machine, n_ranks: int
) -> list[RankClass]:
    """One class for the ranks of one mesh, or two if source and target have meshes of their own."""
    member = np.zeros(n_ranks, dtype=np.int64)
    for number, mesh in enumerate(dict.fromkeys(t.mesh for t in plan.types)):
        member[mesh.rank_array()] += 2**number
    _, firsts, class_of, counts = np.unique(
        member, return_index=True, return_inverse=True, return_counts=True
    )
    ranks, sizes = firsts.tolist(), counts.tolist()
    stages: list[list[StageShare]] = []
    homes = homes_of(plan)
    for number, step in enumerate(plan.steps):
        if not (is_view(step.action) and homes[number] == homes[number + 1]):
            found = (
                _step_shares(plan, number, rank, topology, machine, class_of) for rank in ranks
            )
            stages += map(list, zip(*found, strict=True))
    for shares in stages:
        is_local = all(share.is_local for share in shares)
        shares[:] = [
            replace(share, given=_mirrored(which, shares, sizes), is_local=is_local)
            for which, share in enumerate(shares)
        ]
    by_class = zip(*stages, strict=True) if stages else [()] * len(ranks)
    return [RankClass(*one) for one in zip(ranks, sizes, by_class, strict=True)]


def _mirrored(which: int, shares: Sequence[StageShare], sizes: Sequence[int]) -> tuple[Kind, ...]:
    """What a class gives: what the others get from it, shared evenly among its ranks."""
    given = []
    for other, share in enumerate(shares):
        scale = sizes[other] / sizes[which]
        for kind in share.got:
            if kind.peer == which and kind.distance != OWN:
                count, peers = kind.count * scale, kind.peers * scale
                given.append(replace(kind, peer=other, count=count, peers=peers))
    return tuple(given)


def _step_shares(
    plan: Plan,
    number: int,
    rank: int,
    topology: Topology,
    machine: Machine,
    class_of: Ints,
) -> list[StageShare]:
    step, before, itemsize = plan.steps[number], plan.types[number], plan.source.dtype.itemsize
    after, (first, last) = step.after, homes_of(plan)[number : number + 2]
    outer = plan.types[first], plan.types[last]
    src, dst = (t.tile_shape if rank in _ranks(t) else () for t in outer)
    given, got_bytes = (
        math.prod(t.tile_shape) * itemsize if rank in _ranks(t) else 0 for t in outer
    )
    share = partial(
        StageShare, given=(), itemsize=itemsize, source_bytes=given, target_bytes=got_bytes,
        step_number=number, source=first, target=last,
    )  # fmt: skip
    match step.action:
        case Slice():
            kind = Kind(int(class_of[rank]), OWN, dst, src, dst, False, 1.0, 1.0)
            return [share(got=(kind,), exports=(), is_local=True, is_brought=False)]
        case AllReduce(axes):
            return _all_reduce(axes, before, number, rank, machine, class_of, share)
        case _:
            pass
    have, need = flow(step.action, before, after)
    partly = bool(resolved_axes(before, after))
    if isinstance(step.action, AllPermute | Exchange):
        rank = _busiest(have, need, rank, topology, machine, class_of)
    got, exports, is_local = _got(
        have, _of_node(need, machine, [rank]), rank, topology, machine, class_of, partly,
        (src or before.tile_shape, dst),
    )  # fmt: skip
    if first == last:  # its own part lies in its place already
        got = tuple(kind for kind in got if kind.distance != OWN)
    brought = not partly and not is_local and first != last and is_brought(*outer)
    return [share(got=got, exports=exports, is_local=is_local, is_brought=brought)]


def _of_node(need: Grid, machine: Machine, ranks: Sequence[int]) -> Grid:
    """What the nodes of these ranks need."""
    near = np.isin(need.ranks // machine.ranks_per_node, [machine.node(rank) for rank in ranks])
    return Grid(need.dims, need.ranks[near], need.index[near], need.holds[near])


def _busiest(
    have: Grid, need: Grid, rank: int, topology: Topology, machine: Machine, class_of: Ints
) -> int:
    """Of some ranks of a class the one that gets most from afar: some keep what they have."""
    members = np.flatnonzero(class_of == class_of[rank])
    some = members[np.unique(np.arange(SOME) * GOLDEN % 1.0 * len(members)).astype(np.int64)]
    need = _of_node(need, machine, some.tolist())
    schedule = make_schedule(have, need, topology)
    senders, receivers = have.ranks[schedule.sender], need.ranks[schedule.receiver]
    elems = schedule.elems()
    best, most = rank, -1.0
    for one in some.tolist():
        mine = receivers == one
        weight = 4.0 ** machine.distances(one, senders[mine])
        total = float(np.sum(weight * elems[mine]))
        best, most = (one, total) if total > most else (best, most)
    return best


def _ranks(t: ArrayType) -> frozenset[int] | range:
    ranks = t.mesh.ranks
    return ranks if isinstance(ranks, range) else frozenset(ranks)


def _got(
    have: Grid,
    need: Grid,
    rank: int,
    topology: Topology,
    machine: Machine,
    class_of: Ints,
    partly: bool,
    tiles: tuple[Shape, Shape],
) -> tuple[tuple[Kind, ...], tuple[tuple[Shape, int], ...], bool]:
    """What a rank gets, the boxes that its neighbours read from it, and whether nothing moves."""
    src, dst = tiles
    n = len(src)
    schedule = make_schedule(have, need, topology)
    filled = np.all(schedule.hi > schedule.lo, axis=1)
    senders, receivers = have.ranks[schedule.sender], need.ranks[schedule.receiver]
    mine = filled & (receivers == rank)
    order = schedule.lo[:, n] if partly else np.zeros(len(senders), dtype=np.int64)
    rows = np.column_stack(
        [
            class_of[senders[mine]],
            machine.distances(rank, senders[mine]),
            order[mine] > 0,
            (schedule.hi - schedule.lo)[mine, :n],
        ]
    )
    kinds, place, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    place = place.ravel()
    got = []
    for k, row in enumerate(kinds.tolist()):
        peers = len(np.unique(senders[mine][place == k]))
        shape = tuple(row[3:])
        got.append(
            Kind(row[0], row[1], shape, src, dst, bool(row[2]), float(counts[k]), float(peers))
        )
    own = own_rows(have, need)
    have_lo, have_hi = have.boxes()
    need_lo, need_hi = need.boxes()
    for row in np.flatnonzero((need.ranks == rank) & (own >= 0) & need.holds):
        lo = np.maximum(have_lo[own[row]], need_lo[row])
        hi = np.minimum(have_hi[own[row]], need_hi[row])
        if bool(np.all(hi > lo)):
            shape = tuple((hi - lo)[:n].tolist())
            combined = partly and int(lo[n]) > 0
            got.append(Kind(int(class_of[rank]), OWN, shape, src, dst, combined, 1.0, 1.0))
    asked = filled & (senders == rank) & (receivers != rank)
    boxes = np.unique(
        np.column_stack([schedule.lo[asked, :n], (schedule.hi - schedule.lo)[asked, :n]]), axis=0
    )
    shapes = Counter(tuple(row[n:]) for row in boxes.tolist())
    return tuple(got), tuple(shapes.items()), not len(schedule.sender)


def _all_reduce(
    axes: Sequence[SubAxis],
    before: ArrayType,
    number: int,
    rank: int,
    machine: Machine,
    class_of: Ints,
    share: partial[StageShare],
) -> list[StageShare]:
    """Scatter the sums, then gather them: a box of the tile for every rank of the group."""
    mesh = before.mesh
    rest = difference((whole(mesh, name) for name, _ in mesh.axes), axes)
    group, ranks = coordinates(mesh, rest), mesh.rank_array()
    members = ranks[group == group[int(np.flatnonzero(ranks == rank)[0])]]
    tile, g = before.tile_shape, len(members)
    counts = split_counts(tile, g)
    box = box_at(tile, counts, (0,) * len(tile))[1]
    each = math.prod(counts) / g
    far = np.bincount(machine.distances(rank, members), minlength=4)
    which = int(class_of[rank])
    added, written = [], []
    for distance in range(4):
        n = int(far[distance])
        if n:
            # of the pieces that are added up the first is written; whose it is differs from rank to rank
            kind = Kind(which, distance, box, tile, tile, distance != OWN, n * each, float(n))
            added.append(kind)
            if distance != OWN:
                written.append(replace(kind, combined=False))
    near = int(far[NODE])
    read = ((box, near),) if near else (), ((box, 1),) if near else ()
    share = partial(
        share, target_bytes=share.keywords["source_bytes"], is_local=False, is_brought=False
    )
    return [
        share(got=tuple(added), exports=read[0]),
        share(got=tuple(written), exports=read[1], source=number + 1),
    ]
