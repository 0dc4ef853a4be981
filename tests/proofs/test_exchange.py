"""The formulas of theorem exchange are those of the schedule, and its bound is the program's."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from proofs.engine.symbols import end, start
from proofs.theorems.exchange import count, first, overlap, piece
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, common, grid, overlaps
from redist.plan.rates import FLAT
from redist.plan.schedule import make_schedule, own_rows, source_ranges
from redist.text.units import ceil_div
from tests.problems.oracle import lacking
from tests.problems.strategies import random_pair


def box(lo: Ints, hi: Ints) -> tuple[Any, ...]:
    """A box as an index, of an array without dims too."""
    return (*map(slice, lo, hi), ...)


def test_pieces_are_those_of_the_schedule() -> None:
    """One dim: tiles met, pieces and overlaps of every device."""
    rng = Random(1)
    points = 0
    while points < 5000:
        n, a, b = rng.randrange(rng.choice([12, 500])), rng.randint(1, 5), rng.randint(1, 5)
        mesh = Mesh(x=a, y=b)
        source, target = (ArrayType.of(mesh, "i32", (n,), [[axis]]) for axis in "xy")
        have, need = grid(source), grid(target)
        tile_first, tile_count = source_ranges(have, need)
        rows = np.arange(a * b)
        both = overlaps(have, rows, need, rows)
        schedule = make_schedule(have, need, FLAT)
        c, d = ceil_div(n, a), ceil_div(n, b)
        for device in range(a * b):
            x, y = divmod(device, b)
            lo, hi = start(n, d, y), end(n, d, y)
            assert (first(c, lo), count(c, lo, hi)) == (tile_first[device], tile_count[device])
            assert overlap(n, c, lo, hi, x) == both[device]
            tiles = range(first(c, lo), first(c, lo) + count(c, lo, hi))
            said = [piece(n, c, lo, hi, q) for q in tiles if q != x]
            mine = schedule.receiver == device
            pairs = zip(schedule.lo[mine, 0], schedule.hi[mine, 0], strict=True)
            assert said == [(int(low), int(high)) for low, high in pairs]
            points += 1


def test_pieces_are_what_each_device_lacks_once_and_nothing_else() -> None:
    """Any dims and any two meshes: the statement itself, element by element."""
    rng = Random(2)
    for _ in range(400):
        source, target = random_pair(rng, pending=False, max_devices=12, max_elems=60)
        have, need = grid(source), grid(target)
        schedule = make_schedule(have, need, FLAT)
        hits = np.zeros((len(need.ranks), *target.shape), np.int64)
        for row, lo, hi in zip(schedule.receiver, schedule.lo, schedule.hi, strict=True):
            hits[(row, *box(lo, hi))] += 1
        own = own_rows(have, need)
        for row in range(len(need.ranks)):
            want = np.zeros(target.shape, np.int64)
            lo, hi = (ends[row] for ends in need.boxes())
            want[box(lo, hi)] = 1
            if own[row] >= 0:
                lo, hi = (ends[own[row]] for ends in have.boxes())
                want[box(lo, hi)] = 0
            assert np.array_equal(hits[row], want)
        assert int(hits.sum()) * 4 == lower_bound_bytes(source, target)
        assert int(hits.sum()) == sum(lacking(source, target).values())
        assert len(common(have, need)[0]) == int(np.sum(own >= 0))
