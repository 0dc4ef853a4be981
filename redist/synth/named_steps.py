"""The named collective that turns one type into another, if there is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts, prime_parts, refined_parts
from redist.layout.cuts import Cut, cut_dim
from redist.plan.rules import kept_axes, resolved_axes, type_after
from redist.plan.steps import (
    Action,
    AllGather,
    AllPermute,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)

Dims = list[list[SubAxis]]


def split_dims(t: ArrayType, pieces: tuple[SubAxis, ...]) -> Dims:
    """The dims of a type in terms of finer pieces of its axes."""
    return [[piece for part in dim for piece in pieces if piece.inside(part)] for dim in t.dims]


def common_pieces(a: ArrayType, b: ArrayType) -> tuple[SubAxis, ...] | None:
    """The coarsest pieces of the axes that both types are made of; None if their cuts disagree."""
    if a.mesh != b.mesh:
        return None
    edges: dict[str, list[int]] = {}
    for part in (*a.used, *b.used):
        edges.setdefault(part.name, []).extend((part.pre, part.end))
    for points in edges.values():
        points.sort()
        if any(hi % lo for lo, hi in itertools.pairwise(points)):
            return None
    return refined_parts(a.mesh, (*a.used, *b.used))


def shared_prefix(old: list[SubAxis], new: list[SubAxis]) -> int:
    """How many pieces two dims have in common at the major end."""
    n = 0
    while n < min(len(old), len(new)) and old[n] == new[n]:
        n += 1
    return n


def name_step(
    before: ArrayType,
    after: ArrayType,
    most_moves: int = 4,
    permute: bool = True,
    finest: tuple[SubAxis, ...] = (),
) -> Action | None:
    """slice, all_gather, all_permute or all_to_all, whichever does it alone; else None.

    An all_to_all of more than ``most_moves`` moves is not found, nor one that moves pieces of axes other
    than those that both types are made of, the ``finest`` or, if there are none, primes.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=2, y=2)
    >>> a, b = ArrayType.parse("f32[8{x}, 8{y}]", m), ArrayType.parse("f32[8{x}, 8]", m)
    >>> name_step(a, b)
    AllGather(moves=((SubAxis(name='y', pre=1, size=2), 1),))
    """
    for action in _proposals(before, after, most_moves, permute, finest):
        try:
            if type_after(action, before) == after:
                return action
        except StepError:
            pass
    return None


def _proposals(
    before: ArrayType,
    after: ArrayType,
    most_moves: int,
    permute: bool,
    finest: tuple[SubAxis, ...],
) -> Iterator[Action]:
    if resolved_axes(before, after) or kept_axes(before, after) != after.pending_axes:
        return
    pieces = common_pieces(before, after)
    same_shape = permute and before.same_tiles(after)
    if pieces is not None:
        old, new = split_dims(before, pieces), split_dims(after, pieces)
        shared = [shared_prefix(o, n) for o, n in zip(old, new, strict=True)]
        gone = [(p, i) for i, o in enumerate(old) for p in o[shared[i] :]]
        come = [(p, i) for i, n in enumerate(new) for p in n[shared[i] :]]
        if not gone and come:
            yield Slice(tuple(come))
        if not come and gone:
            yield AllGather(tuple(gone))
        if not same_shape and {p for p, _ in gone} == {p for p, _ in come}:
            finest = finest or prime_parts(before.mesh, (*before.used, *after.used))
            for fine in dict.fromkeys((pieces, finest)):
                split = split_dims(before, fine), split_dims(after, fine)
                moves = _moves(before, *split, most_moves)
                if moves is not None:
                    yield AllToAll(moves)
                    break
    if same_shape:
        yield AllPermute(after)


MOST_STATES = 20_000
"""How many arrangements of axes are looked at for a sequence of moves."""

State = tuple[tuple[SubAxis, ...], ...]
AxisMove = tuple[SubAxis, int, int]


def _moves(t: ArrayType, old: Dims, new: Dims, most: int) -> tuple[AxisMove, ...] | None:
    """A shortest sequence of minor-end moves between two arrangements, searched from both ends."""
    start, goal = tuple(map(tuple, old)), tuple(map(tuple, new))
    reached: list[dict[State, tuple[AxisMove, ...]]] = [{start: ()}, {goal: ()}]
    edge: list[list[State]] = [[start], [goal]]
    for depth in range(most):
        end = depth % 2
        if len(reached[0]) + len(reached[1]) > MOST_STATES:
            break
        fringe: list[State] = []
        for state in edge[end]:
            done = reached[end][state]
            for move, following in minor_end_moves(t, state):
                if following in reached[end]:
                    continue
                part, i, j = move
                path = (*done, move) if end == 0 else ((part, j, i), *done)
                reached[end][following] = path
                if following in reached[1 - end]:
                    return reached[0][following] + reached[1][following]
                fringe.append(following)
        edge[end] = fringe
    return None


def minor_end_moves(t: ArrayType, state: State) -> Iterator[tuple[AxisMove, State]]:
    """Every move of a minor-most axis to another dim that keeps tiles nested.

    Pieces that continue each other are one axis and may move together.
    """
    for i, dim in enumerate(state):
        for rest, part in _minor_axes(dim):
            run = dim[len(rest) :]
            if not _cut(t, i, dim).nests_in(_cut(t, i, rest)):
                continue
            for j, other in enumerate(state):
                if j != i and _cut(t, j, (*other, part)).nests_in(_cut(t, j, other)):
                    dims = list(state)
                    dims[i], dims[j] = rest, (*other, *run)
                    yield (part, i, j), tuple(dims)


def _minor_axes(dim: tuple[SubAxis, ...]) -> Iterator[tuple[tuple[SubAxis, ...], SubAxis]]:
    """What can leave the minor end as one axis, and what stays."""
    for start in range(len(dim) - 1, -1, -1):
        joined = merge_parts(dim[start:])
        if len(joined) > 1:
            return
        yield dim[:start], joined[0]


def _cut(t: ArrayType, dim: int, parts: Iterable[SubAxis]) -> Cut:
    return cut_dim(t.shape[dim], math.prod(part.size for part in parts))


def general_step(before: ArrayType, after: ArrayType) -> Action:
    """The action that reaches any type: reduce_scatter where something pending ends, else exchange."""
    return ReduceScatter(after) if resolved_axes(before, after) else Exchange(after)
