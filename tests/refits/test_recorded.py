"""What loaders were seen to copy: boxes of views beside NumPy's own views, and as weights."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import redist
from redist import Weights
from redist.errors import ArgumentError, LayoutError
from redist.layout.dtype import DType
from redist.refits.recorded import Recorded, RecordedBox, View, boxes_of_view
from redist.refits.sources import read_all, united
from tests.problems.refits import Machine
from tests.tiers import sample

BF16 = DType.parse("bf16")


def random_view(rng: random.Random, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Dims cut, sliced, taken apart, put together and permuted, as loaders do it; always a view."""
    for _ in range(rng.randint(0, 5)):
        d = rng.randrange(a.ndim) if a.ndim else 0
        n = a.shape[d] if a.ndim else 1
        match rng.choice(("narrow", "slice", "index", "split", "merge", "permute", "add")):
            case "narrow" if n > 1:
                lo = rng.randrange(n)
                a = a[(slice(None),) * d + (slice(lo, rng.randint(lo + 1, n)),)]
            case "slice" if n > 1:
                a = a[(slice(None),) * d + (slice(rng.randrange(n), None, rng.randint(2, 3)),)]
            case "index" if a.ndim > 1:
                a = a[(slice(None),) * d + (rng.randrange(n),)]
            case "split" if a.ndim:
                k = rng.choice([k for k in range(1, n + 1) if n % k == 0])
                shape = (*a.shape[:d], k, n // k, *a.shape[d + 1 :])
                strides = (
                    *a.strides[:d],
                    a.strides[d] * (n // k),
                    a.strides[d],
                    *a.strides[d + 1 :],
                )
                a = as_strided(a, shape, strides)
            case "merge" if d + 1 < a.ndim and a.strides[d] == a.shape[d + 1] * a.strides[d + 1]:
                shape = (*a.shape[:d], n * a.shape[d + 1], *a.shape[d + 2 :])
                a = as_strided(a, shape, (*a.strides[:d], *a.strides[d + 1 :]))
            case "permute":
                a = a.transpose(rng.sample(range(a.ndim), a.ndim))
            case "add":
                a = a[(slice(None),) * d + (None,)]
    return a


def view_of(a: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> View:
    at = a.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return View(a.shape, tuple(s // a.itemsize for s in a.strides), at // a.itemsize)


@pytest.mark.parametrize("seed", range(sample(60, of=20_000)))
def test_boxes_are_the_elements_of_a_view(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(0, 3)))
    tensor = np.arange(math.prod(shape)).reshape(shape)
    view = random_view(rng, tensor)
    steps = rng.sample(range(view.ndim), view.ndim)
    room = np.full((3, *(view.shape[d] for d in steps)), -1)
    there = room[1, ...].transpose(np.argsort(steps))
    assert there.shape == view.shape
    there[...] = view
    wanted, room[...] = room.copy(), -1
    try:
        boxes = [*boxes_of_view(shape, view_of(view, tensor), view_of(there, room))]
    except LayoutError as problem:
        assert re.search("into the middle of the next|not along dims", str(problem))
        return
    for lo, size, at, strides in boxes:
        part = tensor[tuple(slice(a, a + n) for a, n in zip(lo, size, strict=True))]
        assert part.shape == size
        for index in np.ndindex(*size):
            place = at + sum(i * s for i, s in zip(index, strides, strict=True))
            assert room.reshape(-1)[place] == -1
            room.reshape(-1)[place] = part[index]
    assert np.array_equal(room, wanted)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (View((3, 3), (0, 1), 0), "an element twice"),
        (View((2, 2), (1, 1), 0), "an element twice"),
        (View((4,), (5,), 0), "not along dims"),
        (View((2, 3), (3, 1), 0), "into the middle of the next"),
    ],
)
def test_views_that_are_no_boxes(of: View, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        list(boxes_of_view((4, 4), of, View(of.shape, (100, 1)[-len(of.shape) :], 0)))


def one(rank: int, rows: int = 2) -> Recorded:
    """Rows of k behind those of q, on two ranks; the second has the same rows of k."""
    boxes = (
        RecordedBox("qk", "q", (rows * rank, 0), (rows, 3), 0, (6, 2)),
        RecordedBox("qk", "k", (0, 0), (2, 3), rows * 6, (6, 2)),
    )
    return Recorded({"qk": ((rows + 2, 3), BF16)}, {"q": (4, 3), "k": (2, 3)}, boxes)


def test_recorded_weights_are_weights() -> None:
    recorded = Weights.recorded({1: one(1), 0: one(0)})
    assert str(recorded.types["qk"]) == "bf16[8{rank}, 3]" and recorded.ranks == (0, 1)
    assert recorded.named() == {"q": ((4, 3), BF16), "k": ((2, 3), BF16)}
    assert Weights.from_json(recorded.to_json()) == recorded
    declared = Weights({"qk": "bf16[4{x}+2, 3]"}, "x=2", names="qk[4|2, :] = q, k")
    train = Weights({"q": "bf16[4, 3]", "k": "bf16[2{y}, 3]"}, "y=2@2")
    plans = [redist.refit(train, side) for side in (recorded, declared)]
    back = [redist.refit(side, train) for side in (recorded, declared)]
    for a, b in (plans, back):
        assert a.received_bytes == b.received_bytes == a.lower_bound_bytes
        for rank in a.ranks:
            for sends in (False, True):
                mine, other = (p.runs(rank, sends=sends) for p in (a, b))
                assert np.array_equal(np.sort(mine), np.sort(other))
    assert plans[0].digest != plans[1].digest
    assert plans[0].check().is_right and plans[0].certificate.verdict == "proved"
    assert redist.RefitPlan.from_json(plans[0].to_json()) == plans[0]


def test_a_declared_side_may_meet_a_recorded_one() -> None:
    recorded = Weights.recorded({0: one(0), 1: one(1)})
    train = Weights.declare({"*": "{y}, {}"}, "y=2@2")
    plan = redist.refit(train, recorded)
    assert plan.source.stored == ("k", "q") and plan.received_bytes == plan.lower_bound_bytes == 48


def test_copies_are_one() -> None:
    """What ranks recorded alike is one thing: planned once, and read once from their texts."""
    copies = [Weights.recorded({rank: one(0)}) for rank in (2, 5)] + [Weights.recorded({3: one(1)})]
    found = united(read_all([side.to_json() for side in copies]))
    assert found.recorded_by_rank is not None and [*found.recorded_by_rank] == [2, 3, 5]
    assert found.recorded_by_rank[2] is found.recorded_by_rank[5]
    assert found == Weights.recorded({2: one(0), 3: one(1), 5: one(0)})
    with pytest.raises(ArgumentError, match="some ranks recorded a loader, others did not"):
        united([found, Weights({"w": "f32[4]"}, "x=1")])


def test_ranks_that_are_told_apart() -> None:
    """Two processes that both call themselves rank 0 are not one."""
    with pytest.raises(ArgumentError, match="two loaders of rank 0 were recorded, and differ"):
        united([Weights.recorded({0: one(0)}), Weights.recorded({0: one(1)})])
    assert united([Weights.recorded({0: one(0)}), Weights.recorded({0: one(0)})]).ranks == (0,)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_rows_that_are_loaded_twice(first: int) -> None:
    """A parameter may have the same elements in two places, or some of them."""
    boxes = (
        RecordedBox("p", "k", (0, 0), (3, 2), 0, (4, 2)),
        RecordedBox("p", "k", (first, 0), (3, 2), 12, (4, 2)),
    )
    found = Weights.recorded({0: Recorded({"p": ((6, 2), BF16)}, {"k": (5, 2)}, boxes)})
    train = Weights({"k": "bf16[5{x}, 2]"}, "x=2@1")
    plan = redist.refit(train, found)
    assert plan.check().is_right and plan.certificate.verdict == "proved"
    whole = np.arange(1, 11, dtype="u2").reshape(5, 2)
    tile = np.concatenate([whole[:3], whole[first : first + 3]])
    machine = Machine({(1, "k"): whole[:3], (2, "k"): whole[3:]}, {(0, "p"): tile})
    machine.carry_out(plan, plan.ranks)
    assert np.array_equal(machine.tiles[0, "p"].view("u2").reshape(6, 2), tile)
    assert (machine.written[0, "p"] == 1).all()


def test_elements_that_are_loaded_over_others() -> None:
    boxes = (
        RecordedBox("p", "q", (0, 0), (4, 2), 0, (4, 2)),
        RecordedBox("p", "k", (0, 0), (2, 2), 8, (4, 2)),
    )
    both = Recorded({"p": ((4, 2), BF16)}, {"q": (4, 2), "k": (2, 2)}, boxes)
    with pytest.raises(
        LayoutError, match=r"what a loader stored: box 1, of 'k' in buffer 0 'p'.*bytes of it"
    ):
        Weights.recorded({0: both})


def test_tiles_that_differ() -> None:
    uneven = Weights.recorded({0: one(0, rows=1), 1: one(1)})
    assert str(uneven.types["qk"]) == "bf16[7{rank=3;4}, 3]"
    other = Recorded({"qk": ((4, 2), BF16)}, {}, ())
    with pytest.raises(LayoutError, match=r"'qk' is bf16\[4, 3\], bf16\[3, 2\]"):
        Weights.recorded({0: one(0), 1: Recorded({"qk": ((3, 2), BF16)}, {}, ())})
    assert str(Weights.recorded({0: other, 1: one(0)}).types["qk"]) == "bf16[4, 5{rank=2;3}]"
    renamed = Recorded({}, {"q": (5, 3)}, ())
    with pytest.raises(LayoutError, match=r"'q' has shape \(4, 3\) and \(5, 3\)"):
        redist.refit(Weights.recorded({0: one(0), 1: renamed}), Weights({"q": "bf16[4, 3]"}, "x=1"))


def test_what_is_no_weights() -> None:
    for text in ("{}", '{"meshes": 1}', '{"recorded": {"sides": ["{}"]}}'):
        with pytest.raises(ArgumentError, match="cannot read weights"):
            Weights.from_json(text)
