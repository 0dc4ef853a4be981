"""A plan of one step passed on with NumPy as ranks pass it: in rounds, through slots, by messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import tile_shapes
from redist.plan.pieces import Piece
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.runtime.schedule.pieces import pieces_of_step
from redist.runtime.schedule.rounds import RoundPart, part_of
from redist.runtime.simulator import random_tiles

Tiles = dict[int, NDArray[Any]]
Cut = Callable[[Piece, RoundPart], "Piece | None"]
"""What of a piece passes in a round."""
Post = tuple[str, int]
"""A message under way: ``to`` or ``from`` a rank."""


def pieces_of(plan: Plan) -> list[Piece]:
    """All pieces of a plan of one step, each as its receiver lists it."""
    (step,) = plan.steps
    out = []
    for rank in tile_shapes(step.after):
        (phase,) = pieces_of_step(step, plan.source, rank, FLAT)
        out += [piece for piece in phase.pieces if piece.receiver == rank]
    return out


def blank_tiles(plan: Plan) -> Tiles:
    """Tiles of the target that hold nothing yet."""
    dtype = plan.target.dtype.to_numpy()
    return {rank: np.zeros(shape, dtype) for rank, shape in tile_shapes(plan.target).items()}


def passed(plan: Plan, parts: int, rounds: int, cut: Cut) -> tuple[Tiles, int]:
    """The tiles after so many rounds, and the elements that ranks had from others.

    >>> import redist
    >>> plan = redist.synthesize("i32[6{x}]", "i32[6]", mesh=redist.Mesh(x=2))
    >>> passed(plan, parts=3, rounds=3, cut=part_of)[1], passed(plan, 3, 2, part_of)[1]
    (6, 4)
    """
    before, after, moved = random_tiles(plan.source), blank_tiles(plan), 0
    for number in range(rounds):
        for piece in pieces_of(plan):
            part = cut(piece, RoundPart(0, parts, number))
            if part is not None:
                data = before[part.sender][_box(part.src_lo, part.shape)]
                after[part.receiver][_box(part.dst_lo, part.shape)] = data
                moved += data.size if part.sender != part.receiver else 0
    return after, moved


def pooled(plan: Plan, parts: int, slots: int) -> tuple[Tiles, int]:
    """The same through pools of so many slots, where every reader is as late as meetings let it be.

    For arrays of one dim; what is counted are elements that others' slots still held rightly.
    Each round is staged, then the ranks meet, then they read; a rank may stage its next round before
    a neighbour has read this one, but not the one after that.

    >>> import redist
    >>> plan = redist.synthesize("i32[6{x}]", "i32[6]", mesh=redist.Mesh(x=2))
    >>> right = passed(plan, 3, 3, part_of)[0]
    >>> [bool((pooled(plan, 3, slots)[0][0] == right[0]).all()) for slots in (1, 2)]
    [False, True]
    """
    before, after, intact = random_tiles(plan.source), blank_tiles(plan), 0
    pool: dict[tuple[int, Piece], NDArray[Any]] = {}
    round_parts = [RoundPart(0, parts, number) for number in range(parts)]
    pieces = pieces_of(plan)

    def stage(number: int) -> None:
        for piece in pieces:
            part = part_of(piece, round_parts[number])
            if part is not None:
                data = before[part.sender][_box(part.src_lo, part.shape)]
                pool[number % slots, piece] = data.copy()

    stage(0)
    for number in range(parts):
        if number + 1 < parts:
            stage(number + 1)
        for piece in pieces:
            part = part_of(piece, round_parts[number])
            if part is None:
                continue
            own = before[part.sender][_box(part.src_lo, part.shape)]
            far = piece.sender != piece.receiver
            data = pool[number % slots, piece][: own.size] if far else own
            tile = after[part.receiver][_box(part.dst_lo, part.shape)]
            tile[: data.size] = data
            intact += int(np.sum(tile == own)) if far else 0
    return after, intact


def brought(plan: Plan, ranks: Iterable[int]) -> tuple[Tiles, int]:
    """The tiles when these ranks have brought what they give, and the elements that others had from them.

    >>> import redist
    >>> plan = redist.synthesize("i32[6{x}]", "i32[6]", mesh=redist.Mesh(x=2))
    >>> [brought(plan, ranks)[1] for ranks in ((0,), (0, 1))]
    [3, 6]
    """
    before, after, moved = random_tiles(plan.source), blank_tiles(plan), 0
    senders = set(ranks)
    for piece in pieces_of(plan):
        if piece.sender in senders:
            data = before[piece.sender][_box(piece.src_lo, piece.shape)]
            after[piece.receiver][_box(piece.dst_lo, piece.shape)] = data
            moved += data.size if piece.sender != piece.receiver else 0
    return after, moved


def delivered(programs: Mapping[int, Sequence[Iterable[Post]]]) -> list[tuple[int, int]]:
    """Which messages (sender, receiver) arrive if ranks post them so, and sends are not buffered.

    A program is a list of groups; a rank posts a group together and waits until all of it is matched.

    >>> sorted(delivered({0: [[("from", 1), ("to", 1)]], 1: [[("from", 0), ("to", 0)]]}))
    [(0, 1), (1, 0)]
    >>> delivered({0: [[("to", 1)], [("from", 1)]], 1: [[("to", 0)], [("from", 0)]]})
    []
    """
    at = dict.fromkeys(programs, 0)
    waiting = {rank: set(program[0]) if program else set() for rank, program in programs.items()}
    arrived: list[tuple[int, int]] = []
    moves = True
    while moves:
        moves = False
        for rank, posts in waiting.items():
            for post in [post for post in posts if post[0] == "to"]:
                if ("from", rank) in waiting[post[1]]:
                    posts.remove(post)
                    waiting[post[1]].remove(("from", rank))
                    arrived.append((rank, post[1]))
                    moves = True
        for rank, program in programs.items():
            if not waiting[rank] and at[rank] + 1 < len(program):
                at[rank] += 1
                waiting[rank] |= set(program[at[rank]])
                moves = True
    return arrived


def _box(lo: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(lo, shape, strict=True))
