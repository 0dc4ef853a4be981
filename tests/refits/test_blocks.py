"""Weights of FP8 blocks with scales: a side whose ranks lack a scale, or cut a block, is refused."""

from __future__ import annotations

import re

import pytest

import redist
from redist import Weights
from redist.errors import ArgumentError, LayoutError
from redist.layout.dtype import DType
from redist.refits.blocks import check_pairs
from redist.refits.recorded import Recorded, RecordedBox

PAIR = {"*.weight": ("*.weight_scale_inv", (128, 128))}
KINDS = ("weight", "weight_scale_inv")


def side(q: str, scales: str, mesh: str) -> Weights:
    of = {"weight": f"f8e4m3fn[{q}, 256]", "weight_scale_inv": f"f32[{scales}, 2]"}
    return Weights(
        {**{f"l.0.q.{kind}": of[kind] for kind in KINDS}, "norm.weight": "bf16[256{x}]"}, mesh
    )


def test_heads_of_192_rows_on_16_ranks() -> None:
    """Keys of 8 heads of 192 rows, each on two ranks: no block of 128 may be cut, and they cut one."""
    fused = "f8e4m3fn[24576{tp}+2*1536{tp:(1)8}, 512]"
    serve = Weights(
        {"a.weight": fused, "a.weight_scale_inv": "f32[192{tp}+2*12{tp:(1)8}, 4]"}, "tp=16"
    )
    words = "rank 0 has indices 24576 to 24768 of dim 0, which cut a block of 128"
    with pytest.raises(LayoutError, match=words):
        check_pairs(serve, PAIR)


def test_both_sides_are_checked_before_a_plan_is_made() -> None:
    good, bad = side("4{x}*128", "4{x}", "x=4"), side("512{x}", "4{x}", "x=3@4")
    plan = redist.refit(good, side("512{x}", "4{x}", "x=2@4"), pair=PAIR)
    assert plan.received_bytes == plan.lower_bound_bytes
    for source, target in ((good, bad), (bad, good)):
        with pytest.raises(
            LayoutError, match=r"cannot pair l.0.q.weight with .*: rank \d has indices"
        ):
            redist.refit(source, target, pair=PAIR)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ({"*.weigh": ("*.scale", (128, 128))}, "no two of the 3 stored tensors of the weights have"),
        ({"*.weight": ("weight.scale", (128, 128))}, "both need the same * and the same letters in braces"),
        ({"l.{i}.*": ("{e}.*", (128, 128))}, "both need the same *"),
        ({"*.weight": ("*.weight_scale_inv", (64, 128))}, "blocks of (64, 128) make scales of shape (8, 2)"),
    ],
)  # fmt: skip
def test_pairs_that_say_nothing(pair: dict[str, tuple[str, tuple[int, int]]], words: str) -> None:
    good = side("4{x}*128", "4{x}", "x=4")
    with pytest.raises((ArgumentError, LayoutError), match=re.escape(words)):
        check_pairs(good, pair)
    check_pairs(good, {"l.{i}.*.weight": ("l.{i}.*.weight_scale_inv", [128, 128])})


def recorded(rows: int, shift: int = 0, order: int = 1) -> Recorded:
    """Gate and up of one rank: so many rows of each, scales from another place or in another order."""
    f8, f32 = DType.parse("f8e4m3fn"), DType.parse("f32")
    n = -(-rows // 128)
    boxes = []
    for k, name in enumerate(("m.gate", "m.up")):
        boxes += [
            RecordedBox("m.w.weight", f"{name}.weight", (512, 0), (rows, 256), k * rows * 256, (256, 1)),
            RecordedBox(
                "m.w.weight_scale_inv", f"{name}.weight_scale_inv", (4 + shift, 0), (n, 2),
                (k if order == 1 else 1 - k) * n * 8, (8, 4),
            ),
        ]  # fmt: skip
    return Recorded(
        {"m.w.weight": ((2 * rows, 256), f8), "m.w.weight_scale_inv": ((2 * n, 2), f32)},
        {f"m.{x}.{kind}": s for x in ("gate", "up")
         for kind, s in zip(KINDS, ((2048, 256), (16, 2)), strict=True)},
        tuple(boxes),
    )  # fmt: skip


def test_recorded_sides() -> None:
    check_pairs(Weights.recorded({3: recorded(256)}), PAIR)
    for one, words in (
        (recorded(192), "rank 3 has indices 512 to 704 of dim 0 of m.gate.weight from index 0 of its tile"),
        (recorded(256, shift=1), "rank 3 has scales of other blocks than those that it has"),
        (recorded(256, order=-1), "rank 3 has scales of other blocks"),
    ):  # fmt: skip
        with pytest.raises(LayoutError, match=words):
            check_pairs(Weights.recorded({3: one}), PAIR)
    turned = recorded(256)
    boxes = tuple(box._replace(strides=box.strides[::-1]) for box in turned.boxes)
    with pytest.raises(LayoutError, match="in another order of dims"):
        check_pairs(Weights.recorded({3: Recorded(turned.stored, turned.tensors, boxes)}), PAIR)
