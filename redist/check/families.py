"""Families of arrays that a proof covers: every multiple of the dims, or one dim growing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.plan.steps import AllReduce


@dataclass(frozen=True, slots=True)
class Scale:
    """A family of arrays: a variable, what it ranges over, and the size of a tile in terms of it.

    ``here`` is the value that gives this very array.
    """

    name: str
    variable: Any
    range: tuple[Any, ...]
    here: int
    tile_bytes: Callable[[ArrayType], Any]
    received_bytes: Callable[[int], Any]
    sizes: Callable[[int], tuple[tuple[str, int], ...]]


def scales(plan: Plan) -> Iterator[Scale]:
    """The families to prove the bound for; a limit speaks of this array alone."""
    if _is_alone(plan):
        yield _fixed_scale(plan)
        return
    units = unit_dims(plan)
    if units is not None:
        yield _even_scale(plan, units)
        return
    for dim in range(plan.source.ndim):
        yield _growing_scale(plan, dim)


def scope(plan: Plan) -> str:
    """What they cover, in words."""
    if _is_alone(plan):
        return "this array"
    if unit_dims(plan) is not None:
        return "this array and every multiple of these dims"
    return "this array, and for any larger size of one dim for which the same steps still apply"


def unit_dims(plan: Plan) -> tuple[int, ...] | None:
    """The least dims for which all tiles are even, every multiple of which the proof covers.

    >>> import redist
    >>> mesh = redist.Mesh(x=2, y=4)
    >>> unit_dims(redist.synthesize("f32[64{x}, 64]", "f32[64{x}, 64{y}]", mesh=mesh))
    (2, 4)

    None where the proof is about this array alone, or tiles are not even.
    """
    if _is_alone(plan) or not all(t.is_even for t in plan.types):
        return None
    return tuple(math.lcm(*(t.cuts[i] for t in plan.types)) for i in range(plan.source.ndim))


def _is_alone(plan: Plan) -> bool:
    limited = plan.source.global_elems == 0 or plan.limit_bytes is not None
    return limited or not all(t.is_plain for t in plan.types)


def _even_scale(plan: Plan, units: tuple[int, ...]) -> Scale:
    here = math.prod(n // k for n, k in zip(plan.source.shape, units, strict=True))
    m = z3.Int("M")

    def tile(t: ArrayType) -> Any:
        cuts = zip(units, t.cuts, strict=True)
        return t.dtype.itemsize * math.prod(unit // k for unit, k in cuts) * m

    constraints: list[Any] = []
    received: list[Any] = []
    for number in range(len(plan.steps)):
        each, rest = divmod(received_worst(plan, number), here)
        if isinstance(plan.steps[number].action, AllReduce) or rest:
            # A ring rounds its shares, so it does not receive in proportion: let it be anything.
            unknown, known = _unknown_received(plan, number, m == here)
            received.append(unknown)
            constraints += known
        else:
            received.append(each * m)

    def sizes(value: int) -> tuple[tuple[str, int], ...]:
        return named_dims([k * (value if i == 0 else 1) for i, k in enumerate(units)])

    values = m, (m >= 1, *constraints), here
    return Scale("for all n_i = K_i t_i", *values, tile, lambda number: received[number], sizes)


def _fixed_scale(plan: Plan) -> Scale:
    one = z3.Int("one")
    return Scale(
        "for this array",
        one,
        (one == 1,),
        1,
        lambda t: t.tile_bytes * one,
        lambda number: z3.IntVal(received_worst(plan, number)),
        lambda value: named_dims(plan.source.shape),
    )


def _growing_scale(plan: Plan, dim: int) -> Scale:
    """Dim ``dim`` has any size from this one on; the others stay."""
    here = plan.source.shape[dim]
    n = z3.Int(f"n{dim}")
    constraints = [n >= here]
    tiles: dict[int, Any] = {}
    for k in sorted({t.cuts[dim] for t in plan.types}):
        tiles[k] = z3.Int(f"tile_{dim}_{k}")
        constraints += [k * tiles[k] >= n, k * (tiles[k] - 1) < n]
    received = []
    for number in range(len(plan.steps)):
        unknown, known = _unknown_received(plan, number, n == here)
        received.append(unknown)
        constraints += known

    def tile(t: ArrayType) -> Any:
        rest = math.prod(c for i, c in enumerate(t.tile_shape) if i != dim)
        return t.dtype.itemsize * rest * tiles[t.cuts[dim]]

    def sizes(value: int) -> tuple[tuple[str, int], ...]:
        return named_dims([value if i == dim else size for i, size in enumerate(plan.source.shape)])

    values = n, tuple(constraints), here
    return Scale(f"for all larger n{dim}", *values, tile, lambda number: received[number], sizes)


def _unknown_received(plan: Plan, number: int, here: Any) -> tuple[Any, list[Any]]:
    """Bytes received in a step: known for this array, anything for the others."""
    unknown = z3.Int(f"received_{number}")
    return unknown, [unknown >= 0, z3.Implies(here, unknown == received_worst(plan, number))]


def received_worst(plan: Plan, number: int) -> int:
    """Bytes that the busiest rank receives in a step."""
    return plan.steps[number].received_range_bytes[1]


def named_dims(shape: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """n0, n1, ... with their sizes."""
    return tuple((f"n{i}", int(n)) for i, n in enumerate(shape))
