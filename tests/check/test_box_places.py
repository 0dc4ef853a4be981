"""Boxes that share bytes are refused, whatever way they interleave; compared with sets of bytes."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from redist.check import box_places
from redist.check.box_places import Places
from redist.check.boxes import Boxes, BoxRow
from redist.errors import ArgumentError
from tests.tiers import sample

Side = tuple[dict[str, tuple[int, ...]], list[tuple[int, str, int]], list[BoxRow]]
SIZE = 60


def random_side(rng: random.Random) -> Side:
    """Two to four boxes in one buffer: rows beside each other, or any strides."""
    item, pitch = rng.choice([1, 1, 2]), rng.choice([0, 8, 12])
    shapes: dict[str, tuple[int, ...]] = {}
    boxes: list[BoxRow] = []
    while len(boxes) < rng.randint(2, 4):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        steps, step = [0] * len(shape), item * rng.choice([1, 1, 2])
        for dim in reversed(range(len(shape))):
            steps[dim] = step
            step = step * shape[dim] + rng.choice([0, 0, 0, item])
        if pitch and len(shape) > 1:
            steps[0] = pitch
        offset = rng.randrange(0, SIZE)
        if offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + item <= SIZE:
            name = f"t{len(boxes)}"
            shapes[name] = shape
            boxes.append((0, name, (0,) * len(shape), shape, offset, steps, item))
    return shapes, [(0, "m", SIZE)], boxes


def times_of(side: Side) -> tuple[Counter[int], bool]:
    """How many boxes have each byte, and whether one has a byte twice."""
    times: Counter[int] = Counter()
    nests = True
    for _, _, _, shape, offset, steps, item in side[2]:
        own: list[int] = []
        for index in itertools.product(*map(range, shape)):
            at = offset + sum(i * s for i, s in zip(index, steps or (), strict=True))
            own += range(at, at + item)
        nests &= len(set(own)) == len(own)
        times.update(set(own))
    return times, nests


def test_boxes_that_share_bytes_are_refused() -> None:
    found: Counter[str] = Counter()
    for seed in range(sample(1500, of=100_000)):
        side = random_side(random.Random(seed))
        times, nests = times_of(side)
        try:
            Places(Boxes.of(*side), 3)
            said = ""
        except ArgumentError as problem:
            said = str(problem).rpartition(": ")[2]
        found[said] += 1
        if "do not nest" in said:
            continue
        assert nests
        assert ("give each name a buffer" in said) == (max(times.values()) > 1), (side, said)
    assert min(found.values()) > 20, found


def test_boxes_that_interleave_too_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_places, "MOST_STRETCHES", 5)
    rows: list[BoxRow] = [(0, "a", (0,), (4,), 0, (4,), 1), (0, "b", (0,), (4,), 1, (5,), 1)]
    with pytest.raises(ArgumentError, match="in too many rows"):
        Places(Boxes.of({"a": (4,), "b": (4,)}, [(0, "m", 20)], rows), 1)
