"""The adjoint of a plan: products of arrays and gradients are the same on both sides of a move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist import LayoutError, Mesh, adjoint
from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates
from redist.layout.tiles import grid
from redist.plan.request import Request
from redist.planner import dual_type
from redist.runtime.simulator import simulate
from redist.synth.find import find_plan
from tests.problems.problems import problems
from tests.tiers import sample


def integers(t: ArrayType, seed: int) -> dict[int, Any]:
    """Tiles of whole numbers: replicas agree, partial values are any."""
    whole = np.random.default_rng(seed).integers(-9, 9, t.shape).astype("f8")
    out = {}
    lo, hi = grid(t).boxes()
    place = coordinates(t.mesh, t.pending_axes)
    for row, rank in enumerate(t.mesh.rank_array().tolist()):
        box = whole[tuple(slice(a, b) for a, b in zip(lo[row], hi[row], strict=True))]
        out[rank] = box * (1 + int(place[row])) if t.pending_op else box.copy()
    return out


def product(a: dict[int, Any], b: dict[int, Any]) -> float:
    return float(sum((a[rank] * b[rank]).sum() for rank in a))


def test_products_are_kept() -> None:
    checked = 0
    for number, problem in enumerate(problems(sample(30, of=600), seed=11)):
        ends = [t.with_dtype("f64") for t in (problem.source, problem.target)]
        if any(t.pending_op not in (None, "sum") for t in ends) or ends[0].global_elems > 3000:
            continue
        plan = find_plan(Request(ends[0], ends[1]))
        back = adjoint(plan)
        x, y = integers(plan.source, number), integers(back.source, number + 1)
        there, home = simulate(plan, x).tiles, simulate(back, y).tiles
        assert product(there, y) == product(x, home), str(problem)
        checked += 1
    assert checked > sample(6, of=150)


def test_the_dual_of_the_dual_is_the_type_itself() -> None:
    for text in ("f32[8{x}, 8]", "f32[8] sum{x}", "f32[8{x,y}]", "f32[8{y:(2)2}] sum{x}"):
        t = ArrayType.parse(text, Mesh(x=2, y=4))
        assert dual_type(dual_type(t)) == t


def test_only_sums_are_linear() -> None:
    with pytest.raises(LayoutError, match="a pending max is not linear"):
        dual_type(ArrayType.parse("f32[8] max{x}", Mesh(x=2)))
