"""The named collective that turns one type into another, if there is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts, prime_parts, refined_parts
from redist.layout.cuts import cut_dim
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
"""Of every dim, the axes or pieces of axes that cut it, major to minor."""
MOST_STATES = 20_000
"""How many arrangements of axes are looked at for a sequence of moves."""


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
    most_states: int = MOST_STATES,
) -> Action | None:
    """slice, all_gather, all_permute or all_to_all, whichever does it alone; else None.

    An all_to_all of more than ``most_moves`` moves is not found, nor one that moves pieces of axes other
    than those that both types are made of, the ``finest`` or, if there are none, primes. Without
    ``permute``, each move is of one axis: blocks of several could turn any order into any other.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=2, y=2)
    >>> a, b = ArrayType.parse("f32[8{x}, 8{y}]", m), ArrayType.parse("f32[8{x}, 8]", m)
    >>> name_step(a, b)
    AllGather(moves=((SubAxis(name='y', pre=1, size=2), 1),))
    """
    for action in _proposals(before, after, most_moves, permute, finest, most_states):
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
    most_states: int,
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
                moves = _moves(before, *split, most_moves, most_states, permute)
                if moves is not None:
                    yield AllToAll(moves)
                    break
    if same_shape:
        yield AllPermute(after)


State = tuple[tuple[SubAxis, ...], ...]
BlockMove = tuple[tuple[SubAxis, ...], int, int]


def _moves(
    t: ArrayType, old: Dims, new: Dims, most: int, most_states: int, blocks: bool
) -> tuple[BlockMove, ...] | None:
    """A shortest sequence of minor-end moves between two arrangements, searched from both ends."""
    start, goal = tuple(map(tuple, old)), tuple(map(tuple, new))
    reached: list[dict[State, tuple[BlockMove, ...]]] = [{start: ()}, {goal: ()}]
    edge: list[list[State]] = [[start], [goal]]
    nests = Nesting(t.shape)
    for _ in range(most):
        end = int(len(edge[1]) < len(edge[0]))
        if len(reached[0]) + len(reached[1]) > most_states:
            break
        fringe: list[State] = []
        for state in edge[end]:
            done = reached[end][state]
            for move, following in minor_end_moves(nests, state, blocks):
                if following in reached[end]:
                    continue
                block, i, j = move
                path = (*done, move) if end == 0 else ((block, j, i), *done)
                reached[end][following] = path
                if following in reached[1 - end]:
                    moves = reached[0][following] + reached[1][following]
                    return tuple((merge_parts(block), i, j) for block, i, j in moves)
                fringe.append(following)
        edge[end] = fringe
    return None


class Nesting:
    """Whether the tiles of a dim that some axes cut nest in those of the first of them; each asked once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._known: dict[tuple[int, tuple[SubAxis, ...], int], bool] = {}

    def __call__(self, dim: int, parts: tuple[SubAxis, ...], n_first: int) -> bool:
        """Whether the dim cut by all parts nests in the dim cut by the first of them."""
        key = dim, parts, n_first
        if key not in self._known:
            fine, coarse = (math.prod(p.size for p in some) for some in (parts, parts[:n_first]))
            n = self._shape[dim]
            self._known[key] = cut_dim(n, fine).nests_in(cut_dim(n, coarse))
        return self._known[key]


def minor_end_moves(
    nests: Nesting, state: State, blocks: bool = True
) -> Iterator[tuple[BlockMove, State]]:
    """Every move of a block of minor-most axes to another dim that keeps tiles nested.

    Unless ``blocks``, only pieces that continue each other move together: they are one axis.
    """
    for i, dim in enumerate(state):
        for start in range(len(dim) - 1, -1, -1):
            rest, block = dim[:start], dim[start:]
            if not blocks and len(merge_parts(block)) > 1:
                break
            if not nests(i, dim, start):
                continue
            for j, other in enumerate(state):
                longer = (*other, *block)
                if j != i and nests(j, longer, len(other)):
                    dims = list(state)
                    dims[i], dims[j] = rest, longer
                    yield (block, i, j), tuple(dims)


def general_step(before: ArrayType, after: ArrayType) -> Action:
    """The action that reaches any type: reduce_scatter where something pending ends, else exchange."""
    return ReduceScatter(after) if resolved_axes(before, after) else Exchange(after)
