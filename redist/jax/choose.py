"""Choose the plan that JAX runs fastest: around collectives, XLA makes copies that plans do not know of.

XLA packs and unpacks blocks around a collective with loops over elements, so besides bytes it matters how
long the runs are that stay together. The figures are for XLA's CPU backend, in picoseconds; only their
ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.lower.calls import (
    Arrange,
    Call,
    Collect,
    CombineAll,
    Permute,
    Scatter,
    Select,
    Swap,
    peak_bytes,
    sizes_of,
)
from redist.lower.lowering import lower_plan
from redist.plan.pieces import Piece
from redist.plan.plan import Plan
from redist.plan.rates import XLA, XLA_BYTE_PS, XLA_CALL_PS, XLA_LOOSE_PS
from redist.planner import synthesize
from redist.text.units import format_bytes, least_limit

Way: TypeAlias = tuple[Plan, int]
"""A plan, and the bytes that a device holds at most while JAX runs it."""
LONG_RUN = 32
"""An element in a run of this many and more costs nothing beside its bytes."""
WAYS = (("collectives", "time"), ("collectives", "bytes"), ("direct", "time"))
"""Strategies and objectives whose plans are compared."""
NEAR = 1.1
"""Of plans that should take about as long, the one that moves least is taken."""


@lru_cache(maxsize=2**12)
def plans_between(
    source: ArrayType, target: ArrayType, donate: bool, platform: str
) -> tuple[Way, ...]:
    """The plans between two types of one mesh that JAX can run, with what each holds on a device.

    A donated array whose tile differs in size from the result's is held to the end: XLA cannot reuse it.
    """
    plans = [
        synthesize(
            source, target, strategy=strategy, objective=objective, topology=XLA, donate=donate
        )
        for strategy, objective in WAYS
    ]
    fit = [plan for plan in plans if all(t.is_even for t in plan.types)]
    gone = donate and is_reused(source, target)
    bits = goes_as_bits(source.dtype, platform)
    return tuple((plan, peak_bytes(lower_plan(plan, XLA), gone, bits)) for plan in fit)


def goes_as_bits(dtype: DType, platform: str) -> bool:
    """Whether elements travel as integers of their size, because XLA for CPUs would widen bf16 and float8.

    >>> [goes_as_bits(DType.parse(name), "cpu") for name in ("bf16", "f16", "f32")]
    [True, False, False]
    """
    return platform == "cpu" and dtype.extended_name is not None


def is_reused(source: ArrayType, target: ArrayType) -> bool:
    """Whether XLA can put the result into the memory of a donated array."""
    return source.tile_bytes == target.tile_bytes


def least_bytes(source: ArrayType, target: ArrayType, donate: bool, platform: str) -> int:
    """The least memory that any of the plans holds on a device: source, result, and copies."""
    return min(need for _, need in plans_between(source, target, donate, platform))


def same_limit(
    source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool, platform: str
) -> int | None:
    """One limit for all limits that allow the same plans, so that these share a compiled program."""
    if limit_bytes is None:
        return None
    needs = [need for _, need in plans_between(source, target, donate, platform)]
    if limit_bytes >= max(needs):
        return None
    return max((need for need in needs if need <= limit_bytes), default=limit_bytes)


def choose_plan(
    source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool, platform: str
) -> Plan:
    """The plan between two types of one mesh that should be fastest.

    A limit applies to everything that the compiled program holds on a device: source, result, and copies.
    """
    fit = [
        plan
        for plan, need in plans_between(source, target, donate, platform)
        if limit_bytes is None or need <= limit_bytes
    ]
    if not fit:
        least = least_bytes(source, target, donate, platform)
        parts = least_parts(source, target, donate, platform)
        raise no_plan(f"{source} to {target}", limit_bytes or 0, least, parts, least)
    times = {id(plan): plan_ps(plan) for plan in fit}
    quick = [plan for plan in fit if times[id(plan)] <= NEAR * min(times.values())]
    return min(quick, key=lambda plan: (plan.received_bytes, times[id(plan)]))


def least_parts(
    source: ArrayType, target: ArrayType, donate: bool, platform: str, others_bytes: int = 0
) -> str:
    """What the least limit consists of, in words."""
    ways = plans_between(source, target, donate, platform)
    plan, need = min(ways, key=lambda way: way[1])
    return parts_of(others_bytes, plan.peak_bytes, need)


def parts_of(others_bytes: int, proved_bytes: int, need_bytes: int) -> str:
    """What a device holds while one array moves, in words: for other arrays, and for this one.

    >>> parts_of(0, 2**20, 3 * 2**20)
    "1 MiB of tiles and staging, 2 MiB for XLA's copies"
    """
    proved = min(need_bytes, proved_bytes)
    parts = [
        (others_bytes, "of the tree's other arrays"),
        (proved, "of tiles and staging"),
        (need_bytes - proved, "for XLA's copies"),
    ]
    return ", ".join(f"{format_bytes(n)} {what}" for n, what in parts if n)


def no_plan(what: str, limit_bytes: int, least: int, parts: str, donated: int) -> NoPlanError:
    """The error that says which limit would be enough, and which if the arrays were donated."""
    also = f"; with donate=True {least_limit(donated)} does" if donated < least else ""
    made_of = f", which is {parts}" if parts else ""
    return NoPlanError(
        f"cannot move {what} within limit_bytes={limit_bytes} ({format_bytes(limit_bytes)}) on a device when "
        f"JAX runs it; the least that redist can guarantee is {least_limit(least)}{made_of}{also}",
        least,
    )


def plan_ps(plan: Plan) -> int:
    """The time that a plan should take when XLA runs it."""
    item = plan.source.dtype.itemsize
    sizes = sizes_of(lower_plan(plan, XLA))
    return sum(_call_ps(call, elems, item) for call, elems, _ in sizes)


def _call_ps(call: Call, elems: int, item: int) -> int:
    n_bytes = elems * item
    match call:
        case Arrange(shape, order):
            return n_bytes * XLA_BYTE_PS + _loose_ps(elems, _run(shape, order))
        case Swap():
            return XLA_CALL_PS + 2 * n_bytes * XLA_BYTE_PS
        case Collect(axes):
            return XLA_CALL_PS + n_bytes * math.prod(axis.size for axis in axes) * XLA_BYTE_PS
        case Scatter() | CombineAll():
            return XLA_CALL_PS + 3 * n_bytes * XLA_BYTE_PS
        case Permute(rows=rows):
            return sum(_row_ps(row, item) for row in rows)
        case Select(_, shape, at):
            run = math.prod(shape[max(at) + 1 :])
            left = elems // math.prod(shape[k] for k in at)
            return left * item * XLA_BYTE_PS + _loose_ps(left, run)
        case _:
            return n_bytes * XLA_BYTE_PS


def _row_ps(row: Sequence[Piece], item: int) -> int:
    """A box is cut out, sent, and put in place."""
    return XLA_CALL_PS + 4 * math.prod(row[0].shape) * item * XLA_BYTE_PS


def _loose_ps(elems: int, run: int) -> int:
    return 0 if run >= LONG_RUN else elems * XLA_LOOSE_PS * (LONG_RUN - run) // LONG_RUN


def _run(shape: tuple[int, ...], order: tuple[int, ...]) -> int:
    """Elements that lie together before and after."""
    run = 1
    for k in range(len(order) - 1, -1, -1):
        if order[k] != k:
            break
        run *= shape[k]
    return run
