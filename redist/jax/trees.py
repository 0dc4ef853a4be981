"""Trees of arrays: what happens to every leaf, and the order of the moves that needs the least memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from redist.errors import NoPlanError, RequestError
from redist.jax.arguments import check_end, is_end
from redist.jax.choose import least_parts, no_plan
from redist.jax.moves import LeafMove, is_on_devices, move_of
from redist.jax.types import has_plans
from redist.text.columns import one_line


def moves_of(tree: Any, shardings: Any, sources: Any = None) -> tuple[list[LeafMove], Any]:
    """A move for every leaf of a tree, and the tree's structure."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    wanted = _spread(shardings, tree, "shardings")
    known = _spread(sources, tree, "sources")
    named = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    return [
        move_of(name, leaf, sharding, source)
        for (name, leaf), sharding, source in zip(named, wanted, known, strict=True)
    ], structure


def _spread(given: Any, tree: Any, what: str) -> list[Any]:
    """What is given for every leaf: one for all, or a tree that has one for each or for a branch."""
    spread: list[Any] = []

    def spread_over(path: Any, one: Any, branch: Any) -> None:
        leaves, inside = jax.tree.flatten(branch)
        is_branch = not jax.tree_util.treedef_is_leaf(inside)
        check_end(one, jax.tree_util.keystr(path), leaf=leaves[0] if leaves else None)
        spread.extend(_replicated(one) if is_branch and _is_scalar(a) else one for a in leaves)

    if is_end(given):
        spread_over((), given, tree)
        return spread

    try:
        jax.tree_util.tree_map_with_path(spread_over, given, tree, is_leaf=is_end)
    except ValueError as problem:
        why = one_line(problem)
        with suppress(ValueError):  # keys that JAX cannot sort
            why = _difference(given, tree, what[:-1]) or why
        raise RequestError(
            f"cannot match the tree of {what} with the tree of arrays: {why}; give one for all, or "
            "a tree with the same keys, with None for an array that stays"
        ) from problem
    return spread


def _difference(given: Any, tree: Any, what: str, name: str = "") -> str:
    """The first difference between a tree of shardings and one of arrays, with its path; or nothing."""
    if is_end(given):
        return ""
    ours, theirs = _children(given, name), _children(tree, name)
    if type(given) is not type(tree):
        check_end(given, name, is_leaf=name in theirs)
        kinds = (
            f"the {what}s are in a {type(given).__name__}, the arrays in a {type(tree).__name__}"
        )
        return f"{name}{': ' if name else ''}{kinds}"
    missing, more = (
        [key for key in a if key not in b] for a, b in ((theirs, ours), (ours, theirs))
    )
    if missing:
        return f"no {what} is given for {_some(missing)}"
    if more:
        return f"a {what} is given for {_some(more)}, and there is no such array"
    found = (_difference(ours[key], theirs[key], what, key) for key in ours if key != name)
    return next(filter(None, found), "")


def _children(node: Any, name: str) -> dict[str, Any]:
    """What is one level below a node of a tree, by path; a leaf has its own path alone."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda one: one is not node)
    return {name + jax.tree_util.keystr(path): child for path, child in pairs}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _is_scalar(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray)) and leaf.ndim == 0


def _replicated(sharding: Any) -> Any:
    """What a sharding of a whole branch means for an array of 0 dims: it cannot be cut."""
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)
    return PartitionSpec() if isinstance(sharding, PartitionSpec) else sharding


def steps_of(
    moves: Sequence[LeafMove], limit_bytes: int | None, donate: bool
) -> Iterator[tuple[int, int | None, bool]]:
    """The moves in order: number, what each may hold on a device, and whether it gives its array away.

    Errors are raised before the first move. An array that occurs in the tree twice is given away by neither
    move.
    """
    gives = given_away(moves, donate)
    if limit_bytes is None and not donate:
        return ((k, None, False) for k in range(len(moves)))
    order = order_of(moves, gives)
    if limit_bytes is None:
        return ((k, None, gives[k]) for k in order)
    others = others_bytes(moves, order, gives)
    _check_limit(moves)
    if _fullest(moves, gives)[0] > limit_bytes:
        raise _over_limit(moves, limit_bytes, gives)
    return ((k, limit_bytes - others[k], gives[k]) for k in order)


def others_bytes(
    moves: Sequence[LeafMove], order: Sequence[int], gives: Sequence[bool]
) -> dict[int, int]:
    """By number of the move, what a device holds of all other arrays of the tree during it."""
    held = sum(move.before_bytes for move in moves)
    others = {}
    for k in order:
        move = moves[k]
        others[k] = held - move.before_bytes
        if move.is_moved:
            held += move.after_bytes - (move.before_bytes if gives[k] else 0)
    return others


def order_of(moves: Sequence[LeafMove], gives: Sequence[bool]) -> list[int]:
    """The order of moves with the smallest peak.

    First come the moves that leave no more memory in use than before, starting with the one that needs
    least; then those that leave more, starting with the one that gives the most back.
    """

    def key(k: int) -> tuple[int, int]:
        move = moves[k]
        if not move.is_moved:
            return 0, 0
        more = move.least_bytes(gives[k]) - move.before_bytes
        left = move.after_bytes - (move.before_bytes if gives[k] else 0)
        return (0, more) if left <= 0 else (1, left - more)

    return sorted(range(len(moves)), key=key)


def _fullest(moves: Sequence[LeafMove], gives: Sequence[bool]) -> tuple[int, int | None]:
    """What a device holds at the fullest moment of all moves, and the number of the one that moves then."""
    order = order_of(moves, gives)
    others = others_bytes(moves, order, gives)
    needs = [(others[k] + moves[k].least_bytes(gives[k]), k) for k in order if moves[k].is_moved]
    return max(needs, default=(0, None))


def _over_limit(moves: Sequence[LeafMove], limit_bytes: int, gives: Sequence[bool]) -> NoPlanError:
    """The error that names the least limit, what it consists of, and what donating saves."""
    least, most = _fullest(moves, gives)
    assert most is not None
    ends = moves[most].ends
    parts = ""
    if ends is not None:
        others = least - moves[most].least_bytes(gives[most])
        parts = least_parts(*ends, gives[most], moves[most].platform, others)
    donated, _ = _fullest(moves, given_away(moves))
    if isinstance(moves[most].value, jax.core.Tracer):
        donated = least  # inside jit there is nothing to give away
    moved = [move for move in moves if move.is_moved]
    what = f"a tree of {len(moves)} leaves, {len(moved)} of which move,"
    if len(moved) == 1:
        what = moved[0].name or "the array"
        what = what if ends is None else f"{ends[0]} to {ends[1]}"
    return no_plan(what, limit_bytes, least, parts, donated)


def given_away(moves: Sequence[LeafMove], donate: bool = True) -> list[bool]:
    """Which moves give their array away: if all are donated, those of arrays that occur only once."""
    times = Counter(id(move.value) for move in moves)
    return [donate and times[id(move.value)] == 1 for move in moves]


def _check_limit(moves: Sequence[LeafMove]) -> None:
    """Refuse a limit where redist does not know what is held."""
    moved = [move for move in moves if move.is_moved]
    for move in moved:
        if move.is_kind_alone:
            continue
        if move.ends is None and is_on_devices(move.value) and move.value.ndim and move.after_bytes:
            why = (
                "it moves between different devices"
                if has_plans(move.value.dtype)
                else f"it has dtype {move.value.dtype}, for which there are no plans, and it moves"
            )
            raise RequestError(
                f"cannot keep a limit for {move.name or 'the array'}: {why} with jax.device_put, and "
                "redist does not know what that holds; move it without a limit"
            )
    if len(moved) > 1 and any(isinstance(move.value, jax.core.Tracer) for move in moved):
        raise RequestError(
            f"cannot keep a limit for {len(moved)} arrays inside jit: XLA orders their moves; "
            "move the tree outside of jit, or give each array a limit of its own"
        )
