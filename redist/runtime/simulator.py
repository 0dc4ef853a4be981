"""Run a plan on all ranks in one process with NumPy: the reference for every other run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates, whole
from redist.layout.tiles import Ints, box_of, grid, indices_of, tile_shapes
from redist.plan.pieces import Piece, list_pieces
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import make_schedule, own_rows
from redist.plan.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
    Step,
)
from redist.plan.topology import Topology
from redist.plan.traffic import flow
from redist.runtime.copies.reduce import combine, identity

AnyArray = NDArray[Any]
Tiles = Mapping[int, AnyArray]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What every rank holds in the end, received on the way, and held at most."""

    tiles: dict[int, AnyArray]
    received_bytes: dict[int, int]
    held_bytes: dict[int, int]


def simulate(plan: Plan, tiles: Tiles, topology: Topology = FLAT) -> Simulation:
    """Run ``plan`` on the tiles of its source, given by rank.

    >>> import redist
    >>> plan = redist.synthesize("i32[4{x}]", "i32[4]", mesh=redist.Mesh(x=2))
    >>> done = simulate(plan, {0: np.array([1, 2], "i4"), 1: np.array([3, 4], "i4")})
    >>> done.tiles[0], done.received_bytes
    (array([1, 2, 3, 4], dtype=int32), {0: 8, 1: 8})
    """
    _check_tiles(plan.source, tiles)
    ranks = sorted({*plan.source.mesh.ranks, *plan.target.mesh.ranks})
    received = dict.fromkeys(ranks, 0)
    held = {rank: _nbytes(tiles, rank) for rank in ranks}
    source = here = dict(tiles)
    before = plan.source
    for number, step in enumerate(plan.steps):
        after, moved = _run_step(step, before, here, topology)
        for rank in ranks:
            received[rank] += moved.get(rank, 0)
            kept = not plan.donate and number > 0
            live = _nbytes(here, rank) + _nbytes(after, rank) + step.staging_bytes
            held[rank] = max(held[rank], live + (_nbytes(source, rank) if kept else 0))
        before, here = step.after, after
    if not plan.steps and not plan.donate:
        here = {rank: tile.copy() for rank, tile in here.items()}
        held = {rank: 2 * n for rank, n in held.items()}
    return Simulation(here, received, held)


def random_tiles(t: ArrayType, seed: int = 0) -> dict[int, AnyArray]:
    """Tiles of a random array, replicas alike; small whole numbers, so that any sum is exact."""
    rng = np.random.default_rng(seed)
    dtype = t.dtype.to_numpy()
    classes = coordinates(t.mesh, t.pending_axes)
    parts = [_random(rng, t, dtype) for _ in range(int(classes.max()) + 1)]
    return {
        rank: parts[classes[row]][_tile(t, rank)].copy() for row, rank in enumerate(t.mesh.ranks)
    }


def global_value(t: ArrayType, tiles: Tiles) -> AnyArray:
    """The global array that tiles of type t stand for; an error where replicas disagree."""
    classes = coordinates(t.mesh, t.pending_axes)
    parts = [np.zeros(t.shape, t.dtype.to_numpy()) for _ in range(int(classes.max()) + 1)]
    seen = [np.zeros(t.shape, np.bool_) for _ in parts]
    for row, rank in enumerate(t.mesh.ranks):
        box = _tile(t, rank)
        part, known = parts[classes[row]], seen[classes[row]]
        tile = tiles[int(rank)]
        overlap = known[box]
        if _bytes_of(part[box][overlap]) != _bytes_of(tile[overlap]):
            raise RedistError(f"rank {rank} holds other values than its replicas under {t}")
        part[box] = tile
        known[box] = True
    if not all(bool(np.all(known)) for known in seen):
        raise RedistError(f"tiles of {t} leave indices without a holder")
    out = parts[0]
    for part in parts[1:]:
        assert t.pending_op is not None
        out = combine(t.pending_op, t.dtype, out, part)
    return out


def is_correct(plan: Plan, before: Tiles, after: Tiles) -> bool:
    """Whether tiles after stand for the same global array as tiles before, bit for bit."""
    a = global_value(plan.source, before)
    return _bytes_of(a) == _bytes_of(global_value(plan.target, after))


def _run_step(
    step: Step, before: ArrayType, tiles: Tiles, topology: Topology
) -> tuple[dict[int, AnyArray], dict[int, int]]:
    if before.segments or step.after.segments:
        return _move_pieces(step, before, tiles, topology)
    match step.action:
        case Slice():
            return _slice(step.action, before, step.after, tiles), {}
        case AllReduce(axes):
            return _all_reduce(axes, before, tiles)
        case AllGather() | AllToAll() | AllPermute() | Exchange() | ReduceScatter():
            return _fetch(step, before, tiles, topology)


def _slice(action: Slice, before: ArrayType, after: ArrayType, tiles: Tiles) -> dict[int, AnyArray]:
    idle = difference(action.pending, (p for dim in before.dims for p in dim))
    idle = difference(idle, (part for part, _ in action.moves))
    keeps = coordinates(before.mesh, idle) == 0
    old_lo, old_hi = grid(before).boxes()
    new_lo, new_hi = grid(after).boxes()
    out = {}
    for row, rank in enumerate(int(r) for r in before.mesh.rank_array()):
        tile = _blank(after, new_hi[row] - new_lo[row])
        lo, hi = np.maximum(old_lo[row], new_lo[row]), np.minimum(old_hi[row], new_hi[row])
        if keeps[row] and bool(np.all(hi > lo)):
            part = tiles[rank][_box(lo - old_lo[row], hi - old_lo[row])]
            tile[_box(lo - new_lo[row], hi - new_lo[row])] = part
        out[rank] = tile
    return out


def _all_reduce(
    axes: Any, before: ArrayType, tiles: Tiles
) -> tuple[dict[int, AnyArray], dict[int, int]]:
    mesh = before.mesh
    assert before.pending_op is not None
    group = coordinates(mesh, difference((whole(mesh, name) for name, _ in mesh.axes), axes))
    place = coordinates(mesh, axes)
    ranks = mesh.rank_array()
    out: dict[int, AnyArray] = {}
    received: dict[int, int] = {}
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        rows = rows[np.argsort(place[rows])]
        total = tiles[int(ranks[rows[0]])]
        for row in rows[1:]:
            total = combine(before.pending_op, before.dtype, total, tiles[int(ranks[row])])
        chunks = [len(chunk) for chunk in np.array_split(np.arange(total.size), len(rows))]
        for i, row in enumerate(rows):
            out[int(ranks[row])] = total.copy()
            lacking = 2 * total.size - chunks[i] - chunks[(i + 1) % len(chunks)]
            received[int(ranks[row])] = lacking * before.dtype.itemsize
    return out, received


def _fetch(
    step: Step, before: ArrayType, tiles: Tiles, topology: Topology
) -> tuple[dict[int, AnyArray], dict[int, int]]:
    """Every rank's new tile from its own part and the pieces that the schedule sends it."""
    have, need = flow(step.action, before, step.after)
    schedule = make_schedule(have, need, topology)
    n_dims = before.ndim
    partial = bool(resolved_axes(before, step.after))
    have_lo, have_hi = have.boxes()
    need_lo, need_hi = need.boxes()
    pieces: list[list[tuple[int, int, Ints, Ints]]] = [[] for _ in need.ranks]
    for row, own in enumerate(own_rows(have, need)):
        lo = np.maximum(have_lo[own], need_lo[row])
        hi = np.minimum(have_hi[own], need_hi[row])
        if own >= 0 and need.holds[row] and bool(np.all(hi > lo)):
            pieces[row].append((int(lo[n_dims]) if partial else 0, int(own), lo, hi))
    received: dict[int, int] = {}
    for sender, row, lo, hi in zip(
        schedule.sender, schedule.receiver, schedule.lo, schedule.hi, strict=True
    ):
        pieces[row].append((int(lo[n_dims]) if partial else 0, int(sender), lo, hi))
        rank = int(need.ranks[row])
        n_bytes = int(np.prod(hi - lo)) * before.dtype.itemsize
        received[rank] = received.get(rank, 0) + n_bytes
    out = {}
    after_lo, after_hi = grid(step.after).boxes()
    shapes = after_hi - after_lo
    for row, rank in enumerate(int(r) for r in need.ranks):
        at = need_lo[row, :n_dims]
        tile = _blank(step.after, shapes[row])
        for number, sender, lo, hi in sorted(pieces[row], key=lambda piece: piece[0]):
            base = have_lo[sender, :n_dims]
            data = tiles[int(have.ranks[sender])][_box(lo[:n_dims] - base, hi[:n_dims] - base)]
            box = _box(lo[:n_dims] - at, hi[:n_dims] - at)
            if number == 0:
                tile[box] = data
            else:
                assert before.pending_op is not None
                tile[box] = combine(before.pending_op, before.dtype, tile[box].copy(), data.copy())
        out[rank] = tile
    return out, received


def _move_pieces(
    step: Step, before: ArrayType, tiles: Tiles, topology: Topology
) -> tuple[dict[int, AnyArray], dict[int, int]]:
    """Every rank's new tile from the pieces of the step, where tiles have segments."""
    shapes = tile_shapes(step.after)
    out = {rank: _blank(step.after, np.array(shape)) for rank, shape in shapes.items()}
    received: dict[int, int] = {}
    pieces, _ = list_pieces(step.action, before, step.after, topology)
    for piece in pieces:
        taken, put = _indices(piece, sending=True), _indices(piece, sending=False)
        data, tile = tiles[piece.sender][taken], out[piece.receiver]
        if piece.sender != piece.receiver:
            received[piece.receiver] = received.get(piece.receiver, 0) + data.nbytes
        if piece.order == 0:
            tile[put] = data
        else:
            assert before.pending_op is not None
            tile[put] = combine(before.pending_op, before.dtype, tile[put], data)
    return out, received


def _indices(piece: Piece, sending: bool) -> tuple[Any, ...]:
    """The places of a piece in one of its tiles, for every dim of the tile a list."""
    lo, tile = (piece.src_lo, piece.src_shape) if sending else (piece.dst_lo, piece.dst_shape)
    steps = piece.steps or tuple((dim, 1, 1) for dim in range(len(tile)))
    every = [np.zeros(1, dtype=np.int64) for _ in tile]
    for start, n, (dim, src, dst) in zip(lo, piece.shape, steps, strict=True):
        places = (np.arange(n) + start) * (src if sending else dst)
        every[dim] = (every[dim][:, None] + places).ravel()
    return np.ix_(*every) or (...,)


def _blank(t: ArrayType, shape: Ints) -> AnyArray:
    """A tile of type t full of identities where t is pending, of zeros elsewhere."""
    tile = np.zeros(tuple(int(n) for n in shape), t.dtype.to_numpy())
    if t.pending_op is not None:
        tile[...] = identity(t.pending_op, t.dtype)
    return tile


def _tile(t: ArrayType, rank: int) -> tuple[Any, ...]:
    """What a rank holds of the global array."""
    if t.segments:
        return np.ix_(*indices_of(t, rank)) or (...,)
    box = box_of(t, rank)
    assert box is not None
    return tuple(slice(lo, hi) for lo, hi in box) or (...,)


def _box(lo: Ints, hi: Ints) -> tuple[Any, ...]:
    box = tuple(slice(int(a), int(b)) for a, b in zip(lo, hi, strict=True))
    return box or (...,)  # a box of an array without dims is an array too, not its element


def _bytes_of(a: AnyArray) -> bytes:
    """The values as bytes, without the padding that long doubles have."""
    if a.dtype.char in "gG":
        parts = a.view(np.longdouble)
        high = parts.astype(np.float64)
        return high.tobytes() + (parts - high).astype(np.float64).tobytes()
    return np.ascontiguousarray(a).tobytes()


def _nbytes(tiles: Tiles, rank: int) -> int:
    return tiles[rank].nbytes if rank in tiles else 0


def _check_tiles(t: ArrayType, tiles: Tiles) -> None:
    for rank, shape in tile_shapes(t).items():
        if rank not in tiles:
            raise RedistError(f"cannot simulate: rank {rank} has no tile")
        if tiles[rank].shape != shape or tiles[rank].dtype != t.dtype.to_numpy():
            raise RedistError(
                f"cannot simulate: rank {rank} has {tiles[rank].dtype}{list(tiles[rank].shape)}, "
                f"but {t} puts {t.dtype.to_numpy()}{list(shape)} there"
            )


def _random(rng: np.random.Generator, t: ArrayType, dtype: np.dtype[Any]) -> AnyArray:
    if t.pending_op is not None and t.dtype.extended_name is not None:
        small = rng.integers(0, 3, size=t.shape)
        import ml_dtypes

        return small.astype(np.dtype(getattr(ml_dtypes, t.dtype.extended_name))).view(dtype)
    if dtype.kind in "fc" or dtype.kind == "b":
        low, high = (0, 2) if dtype.kind == "b" else (-8, 9)
        values = rng.integers(low, high, size=t.shape)
        if t.pending_op == "prod":
            values = np.where(values < 1, -1, 1)
        return values.astype(dtype)
    raw = rng.integers(0, 256, size=(*t.shape, dtype.itemsize), dtype=np.uint8)
    return np.ascontiguousarray(raw).view(dtype).reshape(t.shape)
