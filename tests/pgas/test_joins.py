"""Joins in one process: what is found out about them, and the loop over blocks, against NumPy."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redist
from redist import pgas
from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.joins.ein import as_fixed
from redist.pgas.joins.ein_kernel import COMBINING, Aggregation, choose_block, run_blocks
from redist.pgas.joins.trace_join import Join, trace_join
from redist.pgas.reductions.in_blocks import prod_in_f32

F8 = np.dtype("f8")
FACTOR = 2.0


def traced(join: Any, *dtypes: Any) -> Join:
    return trace_join("join", join, tuple(map(np.dtype, dtypes)), False)[0]


def test_a_join_lets_go_of_its_operands() -> None:
    a, b = pgas.ones((4, 3)), pgas.ones((5, 3))
    seen = weakref.ref(a)
    gc.collect()
    gc.disable()  # a cycle would go later, and count under a limit until then
    try:
        pgas.ein("ik,jk->ij", a, b, join=lambda p, q: p - q * FACTOR)
        del a
        assert seen() is None
    finally:
        gc.enable()


@given(st.data())
def test_blocks_of_any_size_give_what_the_whole_gives(data: st.DataObject) -> None:
    reduce = data.draw(st.sampled_from(list(COMBINING)))
    in_f32 = (
        reduce is prod_in_f32
    )  # few values, all powers of two: their product is exact in any order
    ndim = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 3 if in_f32 else 6)) for _ in range(ndim))
    block = tuple(data.draw(st.integers(1, n)) for n in shape)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    least, most = (0, 2) if in_f32 else (-9, 9)
    tiles = [
        rng.integers(least, most, tuple(n if data.draw(st.booleans()) else 1 for n in shape))
        for _ in "ab"
    ]
    dims = tuple(dim for dim in range(ndim) if data.draw(st.booleans()))
    join = traced(lambda a, b: (a - b) * (a + 2 * b) + a, "i8", "i8")
    whole = np.broadcast_to((tiles[0] - tiles[1]) * (tiles[0] + 2 * tiles[1]) + tiles[0], shape)
    want = reduce(whole, axis=dims, keepdims=True) if dims else whole
    out = run_blocks(join, tiles, shape, block, Aggregation(reduce, dims))
    assert out.dtype == want.dtype and np.array_equal(out, want)
    again = out.copy()
    run_blocks(join, tiles, shape, block, Aggregation(reduce, dims), again, adds=bool(dims))
    assert np.array_equal(again, COMBINING[reduce](want, want) if dims else want)


@given(st.lists(st.integers(1, 10**6), max_size=5), st.integers(0, 10**6))
def test_a_block_has_no_more_elements_than_there_is_room_for(shape: list[int], most: int) -> None:
    block = choose_block(shape, most)
    assert math.prod(block) <= max(1, most)
    assert all(1 <= some <= n for some, n in zip(block, shape, strict=True))


def test_a_step_writes_where_an_operand_was_that_nothing_needs_any_more() -> None:
    join = traced(lambda a, b: (a - b) ** 2 + 1.0, "f8", "f8")
    assert (len(join.steps), join.width) == (3, 1)
    room: dict[int, Any] = {}
    x, y = np.arange(6.0).reshape(2, 3), np.ones(3)
    for _ in range(2):
        assert np.array_equal(join.on([x, y], room), (x - y) ** 2 + 1.0)
    assert len({memory.__array_interface__["data"][0] for memory in room.values()}) == 1
    both = traced(lambda a, b: (a - b) * (a + b), "f8", "f8")
    assert both.width == 2


@pytest.mark.parametrize(
    ("join", "is_product"),
    [
        (lambda a, b: a * b, True), (lambda a, b: b * a, True), (lambda a, b: a, False),
        (lambda a, b: a * a, False), (lambda a, b: 2.0 * a * b, False), (lambda a, b: a * b * b, False),
    ],
)  # fmt: skip
def test_a_product_is_known_whoever_wrote_it(join: Any, is_product: bool) -> None:
    assert traced(join, "f8", "f4").is_product is is_product


def test_what_depends_on_something_else_is_found_out_anew() -> None:
    factor = 3.0
    assert as_fixed(lambda a, b: abs(a - b) ** 2) is not None
    assert as_fixed(lambda a: pgas.exp(a) + np.float64(1.0)) is not None
    assert as_fixed(lambda a: a * factor) is None
    assert as_fixed(lambda a: a * FACTOR) is None
    assert as_fixed(lambda a, b=2.0: a * b) is None
    assert as_fixed(lambda a: [a * k for k in range(3)][-1]) is None
    assert as_fixed(np.exp) is None
    one, other = (lambda a: a * 2), (lambda a: a * 2.0)
    assert as_fixed(one) != as_fixed(other)


def test_joins_convert_and_choose() -> None:
    join, dtype = trace_join(
        "join", lambda a: pgas.where(pgas.astype(a, "i4") > 1, a // 2.0, -a), (F8,), False
    )
    x = np.array([0.5, 1.5, 2.5, 7.0])
    assert dtype == F8
    assert join.on([x], {}).tolist() == [-0.5, -1.5, 1.0, 3.0]


def test_what_is_no_join_of_elements_is_refused() -> None:
    for join in (
        lambda a: pgas.reshape(a, (1,)),
        lambda a: bool(a),
        lambda a: pgas.sum(a),
        lambda a: float(a) + a,
    ):
        with pytest.raises(ArgumentError, match=r"^cannot join: .*; write it with element-wise"):
            traced(join, "f8")
    with pytest.raises(ArgumentTypeError, match="gives int"):
        traced(lambda a: 1, "f8")


def test_layouts_are_those_of_products() -> None:
    mesh = redist.Mesh(x=4)

    def far(x: Any, c: Any) -> Any:
        return pgas.ein("ik,jk->ij", x, c, join=lambda a, b: (a - b) ** 2)

    near = redist.explain(far, "f64[4096{x}, 64]", "f64[8{x}, 64]", mesh=mesh)
    assert near.nodes[0].type == "f64[4096{x}, 8]", "the small operand moves"
    assert [move.source for move in near.nodes[0].moves] == ["f64[8{x}, 64]"]
