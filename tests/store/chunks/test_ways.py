"""The planner of rechunks: by brute force over elements, and in pairs at the limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import NoPlanError
from redist.layout.tiles import Box
from redist.store.chunks.grids import Grid, extent, inside, meetings, place_of_piece, shared
from redist.store.chunks.ways import (
    OVERHEAD_BYTES,
    ArrayRequest,
    every_way,
    least_bytes,
    plan_array,
    slab,
)
from tests.tiers import sample


@st.composite
def requests(draw: st.DrawFn) -> ArrayRequest:
    """A small array with chunks of any shape, and a limit from tight to wide."""
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=0, max_size=3)))
    parts = tuple(draw(st.integers(1, n)) for n in shape)
    units = tuple(draw(st.integers(1, n)) for n in shape)
    raw = draw(st.booleans())
    room = draw(st.integers(0, 2 * 8 * math.prod(shape)))
    tight = ArrayRequest(
        shape, 8, None if raw else parts, units, 2**40, draw(st.integers(1, 5)),
        draw(st.integers(1, 4)), draw(st.booleans()), draw(st.booleans()), raw and draw(st.booleans()),
    )  # fmt: skip
    return replace(tight, limit_bytes=least_bytes(tight) + room)


def counted(shape: tuple[int, ...], boxes: list[Box]) -> np.ndarray:
    """How many of the boxes each element is in."""
    times = np.zeros(shape, int)
    for box in boxes:
        times[inside(box, tuple((0, n) for n in shape))] += 1
    return times


@settings(max_examples=sample(80, of=600), deadline=None, derandomize=True)
@given(requests())
def test_a_plan_covers_every_element_once_within_the_limit(request: ArrayRequest) -> None:
    plan = plan_array(request)
    way, shape = plan.way, request.shape
    assert way.peak_bytes <= request.limit_bytes
    assert way.total_bytes >= request.lower_bound_bytes
    blocks, units = [*plan.blocks.boxes()], [*plan.units.boxes()]
    assert (counted(shape, blocks) == 1).all()
    assert (counted(shape, units) == 1).all()
    assert [plan.blocks.nth(i) for i in range(len(blocks))] == blocks
    if way.kind == "scratch":
        pieces = [
            (shared(block, unit), unit) for unit in units for block in blocks_met(plan.blocks, unit)
        ]
        runs = [
            (place_of_piece(piece, unit, shape), math.prod(extent(piece))) for piece, unit in pieces
        ]
        filled = np.concatenate([np.arange(at, at + n) for at, n in runs])
        assert (filled == np.arange(math.prod(shape))).all()  # in order, no gap: a unit is one run
        assert len(pieces) == math.prod(map(meetings, shape, way.block, request.units))
    else:  # a unit is in one block: one rank writes it whole
        for unit in units:
            (index,) = plan.blocks.met_by(unit)
            assert shared(plan.blocks.box(index), unit) == unit


def blocks_met(blocks: Grid, unit: Box) -> list[Box]:
    return [blocks.box(index) for index in blocks.met_by(unit)]


@settings(max_examples=sample(80, of=600), deadline=None, derandomize=True)
@given(requests())
def test_bytes_read_are_those_of_every_part_that_a_block_meets(request: ArrayRequest) -> None:
    for way in every_way(request):
        whole = request.bytes_of(request.units)
        assert way.target_bytes == len([*Grid(request.shape, request.units).boxes()]) * whole
        if way.part is None:
            assert way.source_bytes == request.array_bytes
            continue
        grid = Grid(request.shape, way.part)
        met = [sum(1 for _ in grid.met_by(box)) for box in Grid(request.shape, way.block).boxes()]
        assert way.source_bytes == sum(met) * request.bytes_of(way.part)


@settings(max_examples=sample(40, of=300), deadline=None, derandomize=True)
@given(requests())
def test_the_least_limit_does_and_one_byte_less_does_not(request: ArrayRequest) -> None:
    least = least_bytes(request)
    assert plan_array(replace(request, limit_bytes=least)).way.peak_bytes == least
    with pytest.raises(NoPlanError, match=f"give limit_bytes={least}, ") as caught:
        plan_array(replace(request, limit_bytes=least - 1))
    assert caught.value.least_bytes == least


@settings(max_examples=sample(40, of=300), deadline=None, derandomize=True)
@given(st.integers(0, 200), st.integers(1, 50), st.integers(1, 50))
def test_meetings_are_counted_right(n: int, part: int, other: int) -> None:
    parts = {(i // part, i // other) for i in range(n)}
    assert meetings(n, part, other) == len(parts)


WEATHER = ArrayRequest((96360, 721, 1440), 4, (1, 721, 1440), (8760, 72, 144), 0)


@pytest.mark.parametrize(("limit", "kind", "times"), [
    (40, "grouped", 1), (20, "grouped", 2), (10, "scratch", 1), (4, "scratch", 1),
])  # fmt: skip
def test_a_limit_decides_between_reading_again_and_a_scratch_file(
    limit: int, kind: str, times: int
) -> None:
    plan = plan_array(replace(WEATHER, limit_bytes=limit * 10**9))
    read = plan.way.source_bytes / plan.request.array_bytes
    assert (plan.way.kind, read) == (kind, times)
    assert {plan.way.kind, *(one.kind for one in plan.others)} == {"direct", "grouped", "scratch"}


def test_parts_that_line_up_reach_the_lower_bound_at_the_least_limit() -> None:
    request = ArrayRequest((1024, 512), 4, (64, 64), (1024, 64), 2**40)
    for limit in (least_bytes(request), 2**30):
        plan = plan_array(replace(request, limit_bytes=limit))
        assert plan.way.total_bytes == request.lower_bound_bytes, limit


def test_a_raw_file_is_read_once_in_boxes_with_long_runs() -> None:
    request = ArrayRequest((4096, 256, 256), 4, None, (4096, 16, 16), 2**28)
    way = plan_array(request).way
    assert (way.part, way.block[2], way.total_bytes) == (None, 256, request.lower_bound_bytes)


def test_a_raw_file_in_fortran_order_is_read_along_its_columns() -> None:
    assert slab((1000, 1000, 1000), 4, by_columns=True) == (1000, 1000, 1)
    request = ArrayRequest((256, 256, 4096), 4, None, (16, 16, 4096), 2**28, by_columns=True)
    way = plan_array(request).way
    assert way.part is not None or way.block[0] == 256


def test_more_ranks_get_more_blocks() -> None:
    request = ArrayRequest((1024, 1024), 8, (32, 1024), (32, 1024), 2**30)
    plans = [plan_array(replace(request, ranks=n)) for n in (1, 4, 7)]
    assert all(plan.blocks.n_boxes >= plan.request.ranks for plan in plans)
    assert plans[0].way.time_ps > 3 * plans[1].way.time_ps > plans[2].way.time_ps


def test_plans_are_equal_and_have_one_digest() -> None:
    request = replace(WEATHER, limit_bytes=10**10)
    one, two = plan_array(request), plan_array(replace(request))
    assert one == two
    assert one.digest == two.digest
    assert one.digest != plan_array(replace(request, limit_bytes=2 * 10**10)).digest


def test_memory_counts_a_block_and_what_codecs_need() -> None:
    request = ArrayRequest((64, 2**20), 4, (1, 2**20), (64, 2**14), 2**31)
    way = next(one for one in every_way(request) if one.kind == "direct")
    assert (
        way.peak_bytes == 4 * 2**20 + 3 * 4 * 2**20 + OVERHEAD_BYTES
    )  # a unit, a chunk in 3 stages
