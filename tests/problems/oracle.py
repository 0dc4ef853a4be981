"""A slow second opinion on what types mean, written from the definitions alone.

It reads the fields of types and meshes and computes everything else by plain loops over devices
and elements. It shares no code with the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redist.layout.array_type import ArrayType
    from redist.layout.axes import SubAxis
    from redist.layout.mesh import Mesh

Index = tuple[int, ...]
Label = tuple[int, ...]


def devices(mesh: Mesh) -> list[dict[str, int]]:
    """The coordinates of every device, in row-major order."""
    names = [name for name, _ in mesh.axes]
    ranges = [range(size) for _, size in mesh.axes]
    return [dict(zip(names, at, strict=True)) for at in itertools.product(*ranges)]


@cache
def middle_digits(total: int, pre: int, size: int) -> tuple[int, ...]:
    """The middle digit of every coordinate on an axis split into [pre, size, rest]."""
    split = itertools.product(range(pre), range(size), range(total // (pre * size)))
    middle = tuple(digits[1] for digits in split)
    assert len(middle) == total
    return middle


def digits(mesh: Mesh, parts: Iterable[SubAxis], at: dict[str, int]) -> Label:
    """The digits of one device on several parts."""
    sizes = dict(mesh.axes)
    return tuple(
        middle_digits(sizes[part.name], part.pre, part.size)[at[part.name]] for part in parts
    )


def shard_index(mesh: Mesh, parts: Sequence[SubAxis], at: dict[str, int]) -> tuple[int, int]:
    """Number of a device's tile along a dim, counted with the major axis first, and how many."""
    order = list(itertools.product(*(range(part.size) for part in parts)))
    return order.index(digits(mesh, parts, at)), len(order)


@cache
def tile(n: int, cuts: int, index: int) -> range:
    """Indices of tile ``index``: the least full tile that is enough, cut off at the end."""
    full = 0
    while full * cuts < n:
        full += 1
    held = [i for i in range(n) if index * full <= i < (index + 1) * full]
    return range(held[0], held[-1] + 1) if held else range(0)


def box(t: ArrayType, at: dict[str, int]) -> tuple[range, ...]:
    """Indices that the device at these coordinates holds, dim by dim."""
    out = []
    for n, parts in zip(t.shape, t.dims, strict=True):
        index, cuts = shard_index(t.mesh, parts, at)
        out.append(tile(n, cuts, index))
    return tuple(out)


def boxes(t: ArrayType) -> list[tuple[range, ...]]:
    """The box of every device."""
    return [box(t, at) for at in devices(t.mesh)]


def elements(ranges: Iterable[range]) -> set[Index]:
    """Every index of a box."""
    return set(itertools.product(*ranges))


def holdings(t: ArrayType) -> dict[int, set[Index]]:
    """The global indices that every rank holds."""
    return dict(zip(t.mesh.ranks, map(elements, boxes(t)), strict=True))


def labels(t: ArrayType, parts: Iterable[SubAxis] | None = None) -> dict[int, Label]:
    """Which partial value every rank holds: its digits on the pending axes (or other parts)."""
    chosen = list(t.pending_axes if parts is None else parts)
    at = [digits(t.mesh, chosen, where) for where in devices(t.mesh)]
    return dict(zip(t.mesh.ranks, at, strict=True))


def groups(t: ArrayType, parts: Iterable[SubAxis]) -> list[list[int]]:
    """For every device the devices that differ from it at most on ``parts``, in device order.

    Two devices belong together if all other digits agree; parts must come from one chain of cuts.
    """
    chosen = list(parts)
    where = devices(t.mesh)

    def others(at: dict[str, int]) -> tuple[tuple[int, ...], ...]:
        out = []
        for name, size in t.mesh.axes:
            inner = sorted((p.pre, p.size) for p in chosen if p.name == name)
            shape: list[int] = []
            moving: list[bool] = []
            done = 1
            for pre, length in inner:
                shape += [pre // done, length]
                moving += [False, True]
                done = pre * length
            shape.append(size // done)
            moving.append(False)
            split = list(itertools.product(*map(range, shape)))[at[name]]
            out.append(tuple(d for d, m in zip(split, moving, strict=True) if not m))
        return tuple(out)

    keys = [others(at) for at in where]
    return [[e for e, key in enumerate(keys) if key == mine] for mine in keys]


def lacking(source: ArrayType, target: ArrayType) -> dict[int, int]:
    """Elements that every rank of the target lacks, where nothing is pending."""
    before, after = holdings(source), holdings(target)
    return {rank: len(need - before.get(rank, set())) for rank, need in after.items()}


def lower_bound(source: ArrayType, target: ArrayType) -> int:
    """Elements that must be received, element by element."""
    if source.pending_op is None and target.pending_op is None:
        return sum(lacking(source, target).values())
    before, after = holdings(source), holdings(target)
    partial, place = labels(source), labels(target)
    known: dict[tuple[object, ...], int] = {}
    total = 0
    for index in itertools.product(*map(range, source.shape)):
        have = {rank: partial[rank] for rank, held in before.items() if index in held}
        want = {rank: place[rank] for rank, held in after.items() if index in held}
        key = (tuple(sorted(have.items())), tuple(sorted(want.items())))
        if key not in known:
            same_op = source.pending_op in (None, target.pending_op)
            if target.pending_op is None:
                known[key] = _resolve(have, want)
            else:
                known[key] = _leave_pending(have, want, same_op)
        total += known[key]
    return total


def _resolve(have: dict[int, Label], want: dict[int, Label]) -> int:
    """g + r - 1 receives, one less if some holder already has a partial value."""
    g, r = len(set(have.values())), len(want)
    return g + r - 1 - (1 if set(have) & set(want) else 0)


def _leave_pending(have: dict[int, Label], want: dict[int, Label], same_op: bool) -> int:
    """The cheapest way to share the partial values out over the coordinates of the target.

    Every partial value goes to exactly one coordinate; the holders of a coordinate all need the
    combination of what went there, and hold the identity if nothing did. Partial values of another
    operation must be combined into one first. Splits are tried one by one.
    """
    partials = sorted(set(have.values()))
    places = sorted(set(want.values()))
    holders = {q: [rank for rank in want if want[rank] == q] for q in places}

    def cost(q: Label, group: Sequence[Label]) -> int:
        at = holders[q]
        if not group:
            return 0
        if len(group) == 1:
            return sum(have.get(rank) != group[0] for rank in at)
        helps = any(have.get(rank) in group for rank in at)
        return len(group) + len(at) - 1 - (1 if helps else 0)

    if not same_op:
        return min(cost(q, partials) for q in places)
    return min(
        sum(cost(q, [p for p, to in zip(partials, split, strict=True) if to == q]) for q in places)
        for split in itertools.product(places, repeat=len(partials))
    )


def same_layout(a: ArrayType, b: ArrayType) -> bool:
    """Whether every rank holds the same elements, and ranks share a partial value alike."""
    if (a.dtype, a.shape, a.pending_op) != (b.dtype, b.shape, b.pending_op):
        return False
    in_a, in_b = holdings(a), holdings(b)
    for rank in in_a.keys() | in_b.keys():
        if in_a.get(rank, set()) != in_b.get(rank, set()):
            return False
    la, lb = labels(a), labels(b)
    for r, s in itertools.combinations(in_a.keys() & in_b.keys(), 2):
        if in_a[r] & in_a[s] and (la[r] == la[s]) != (lb[r] == lb[s]):
            return False
    return True
