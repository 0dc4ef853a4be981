"""Dims with segments: what types say, what ranks hold, how arrays move; against owners listed one by one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import redist
from redist.check.replay import check_plan
from redist.errors import CheckError, LayoutError, ParseError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import indices_of, same_layout, tile_shapes
from redist.plan.plan import Plan
from redist.plan.steps import Exchange
from redist.runtime.simulator import global_value, simulate
from tests.problems.segments import KINDS, Layout, random_pair
from tests.tiers import sample

Array = NDArray[Any]
PROBLEMS = [(kind, n) for kind in (*KINDS, "pending") for n in (2, 3, 4, 6)]


def types_of(source: Layout, target: Layout) -> tuple[ArrayType, ArrayType]:
    return (
        ArrayType.parse(source.text("i64"), Mesh(source.mesh)),
        ArrayType.parse(target.text("i64"), Mesh(target.mesh)),
    )


def tiles_of(layout: Layout, parts: list[Array]) -> dict[int, Array]:
    n = math.prod(size for _, size in layout.mesh)
    return {
        rank: parts[layout.partial(rank)][np.ix_(*layout.indices(rank))].copy() for rank in range(n)
    }


@pytest.mark.parametrize(("kind", "n"), PROBLEMS)
def test_random_problems_against_the_oracle(kind: str, n: int) -> None:
    """Tiles, text, lower bound, plan, JSON, checker and simulator of random pairs of layouts."""
    for seed in range(sample(4, of=300)):
        source, target = random_pair(seed, n, kind)
        a, b = types_of(source, target)
        for layout, t in ((source, a), (target, b)):
            assert ArrayType.parse(str(t), t.mesh) == t
            for rank in range(n):
                assert [found.tolist() for found in indices_of(t, rank)] == layout.indices(rank)
        plan = redist.synthesize(a, b)
        check_plan(plan)
        assert Plan.from_json(plan.to_json()) == plan
        n_parts = math.prod(size for _, _, size in source.pending[1]) if source.pending else 1
        rng = np.random.default_rng(seed)
        parts = [rng.integers(-9, 9, size=source.shape) for _ in range(n_parts)]
        done = simulate(plan, tiles_of(source, parts))
        value = parts[0]
        for part in parts[1:]:
            assert source.pending is not None
            value = value + part if source.pending[0] == "sum" else np.maximum(value, part)
        assert np.array_equal(global_value(b, done.tiles), value), (str(a), str(b))
        assert sum(done.received_bytes.values()) == plan.received_bytes
        if source.pending is None and target.pending is None:
            for rank in range(n):
                assert np.array_equal(done.tiles[rank], value[np.ix_(*target.indices(rank))])
            lack = sum(lacking(source, target, rank) for rank in range(n))
            assert plan.lower_bound_bytes == lack * 8
            assert plan.received_bytes == lack * 8 or (a.is_plain and b.is_plain)


def lacking(source: Layout, target: Layout, rank: int) -> int:
    """Elements that a rank needs and does not have."""
    need, have = target.indices(rank), source.indices(rank)
    both = math.prod(len(set(a) & set(b)) for a, b in zip(need, have, strict=True))
    return math.prod(map(len, need)) - both


@pytest.mark.parametrize(
    ("text", "mesh", "found"),
    [
        (
            "bf16[4096{tp}+1024{tp:(1)8}+1024{tp:(1)8}, 4096]",
            "tp=16",
            "4096{tp}+2*1024{tp:(1)8}, 4096",
        ),
        ("bf16[12288{tp}+12288{tp}, 4096]", "tp=4", "2*12288{tp}, 4096"),
        ("bf16[2*F+F]".replace("F", "8{tp}"), "tp=2", "3*8{tp}"),
        ("bf16[128, 2*1536{tp}, 64]", "tp=8", "128, 2*1536{tp}, 64"),
        ("bf16[2*8192{tp}+2*1024{tp}+128{tp}, 64]", "tp=8", "2*8192{tp}+2*1024{tp}+128{tp}, 64"),
        ("bf16[2*8192{tp}+128+128+128{tp}, 64]", "tp=8", "2*8192{tp}+256+128{tp}, 64"),
        ("bf16[8{tp}*768+64{tp}, 64]", "tp=8", "6144{tp}+64{tp}, 64"),
        ("bf16[8{tp}*(4+1+1)*128, 64]", "tp=8", "6144{tp}, 64"),
        ("bf16[33{tp}*128, 64]", "tp=4", "33{tp}*128, 64"),
        ("f32[12288{tp,dp}+12288{tp,dp}]", "tp=2,dp=2", "2*12288{tp,dp}"),
        ("f32[256{x/16}]", "x=4", "4*64{x}"),
        ("f32[32*2{x}*64]", "x=2", "32*128{x}"),
        ("f32[2{x}*2048]", "x=2", "4096{x}"),
        ("f32[1024*4]", "x=2", "4096"),
        ("f32[2{x}*8{y}]", "x=2,y=4", "16{x,y}"),
        ("f32[100{x/50}]", "x=2", "100{x}"),
        ("f32[100{x/60}]", "x=2", "100{x=60;40}"),
        ("f32[9{x=3;3;3}]", "x=3", "9{x}"),
        ("f32[8{x=2;6}*4]", "x=2", "32{x=8;24}"),
        ("f32[10{x/3}*4]", "x=2", "40{x/12}"),
        ("f32[10{x/3@14}]", "x=2", "10{x/3@2}"),
        ("f32[0{x}+8{x}+0*4]", "x=2", "8{x}"),
        ("f32[8{x}+8{x}]", "x=1", "16"),
        ("f32[(8{x}+4)*2*3]", "x=2", "48{x}+24"),
        ("f32[3*(8{x}+4)]", "x=2", "3*(8{x}+4)"),
        ("f32[1*(8{x}+4)+2]", "x=2", "8{x}+6"),
    ],
)
def test_one_spelling_of_many(text: str, mesh: str, found: str) -> None:
    where = Mesh.of(mesh)
    assert where is not None
    t = ArrayType.parse(text, where)
    assert str(t).partition("[")[2].removesuffix("]") == found
    assert ArrayType.parse(str(t), where) == t


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("f32[8{x}+8, 4{x}]", 15, "cannot use axis x twice"),
        ("f32[8{x}*(4{x}+2)]", 13, "cannot use axis x twice"),
        (
            "f32[(4+2)*(3+1)]",
            11,
            "a sum can be multiplied by numbers behind it, not by another sum",
        ),
        ("f32[4{x}+2{x}8]", 14, "a tile written out stands alone; write the size first"),
        ("f32[10{x=3;3;3;2}]", 9, "need 4 lengths that add up to 10, got 4 that add up to 11"),
        ("f32[10{x=3;7}]", 9, "need 4 lengths that add up to 10, got 2 that add up to 10"),
        ("f32[10{x/0}]", 10, "a block has at least one index"),
        ("f32[10{x/}]", 10, "expected the size of a block"),
        ("f32[10{x/3@}]", 12, "expected an index"),
        ("f32[(4+2]", 9, "expected '+', '*' or ')'"),
        ("f32[4{x}+]", 10, "expected the size of a dim"),
        ("f32[4**2]", 7, "expected the size of a dim"),
        ("f32[4{y:(1)2}+4{y:(1)3}]", 5, "they come from different cuts of the axis"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_character(text: str, at: int, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        ArrayType.parse(text, Mesh(x=4, y=6))
    assert words in str(caught.value)
    assert f"at character {at} " in str(caught.value) or f"at character {at}" in str(caught.value)


def test_too_many_segments_are_refused() -> None:
    text = "+".join(f"{n}{{x}}" for n in range(1, 4200))
    with pytest.raises(ParseError, match="4199 segments; at most 4096"):
        ArrayType.parse(f"f32[{text}]", Mesh(x=2))


# Fused weights of the field, by name: literal NumPy has the tiles


def chunks(whole: Array, k: int) -> list[Array]:
    return np.array_split(whole, k)


def cat(*parts: Array) -> Array:
    return np.concatenate(parts)


Q, K, V = (np.arange(n * 3).reshape(n, 3) + 10_000 * i for i, n in enumerate((64, 16, 16)))
GATE, UP = (np.arange(24 * 3).reshape(24, 3) + 10_000 * i for i in range(2))
ODD = tuple(np.arange(6 * 3).reshape(6, 3)[lo : lo + 3] for lo in (0, 3))
MAMBA = [np.arange(n * 2).reshape(n, 2) + 1000 * i for i, n in enumerate((32, 32, 8, 8, 4))]

FIELD: dict[str, tuple[Array, str, str, list[Array]]] = {
    "grouped queries, more ranks than KV heads": (
        cat(Q, K, V),
        "i64[64{tp}+16{tp:(1)4}+16{tp:(1)4}, 3]",
        "tp=8",
        [cat(chunks(Q, 8)[r], chunks(K, 4)[r // 2], chunks(V, 4)[r // 2]) for r in range(8)],
    ),
    "gate and up": (
        cat(GATE, UP),
        "i64[2*24{tp}, 3]",
        "tp=4",
        [cat(chunks(GATE, 4)[r], chunks(UP, 4)[r]) for r in range(4)],
    ),
    "gate and up that do not divide": (
        cat(*ODD),
        "i64[2*3{tp}, 3]",
        "tp=2",
        [cat(ODD[0][:2], ODD[1][:2]), cat(ODD[0][2:], ODD[1][2:])],
    ),
    "interleaved by groups, a plain dim": (
        cat(
            *(
                cat(q, k, v)
                for q, k, v in zip(chunks(Q, 4), chunks(K, 4), chunks(V, 4), strict=True)
            )
        ),
        "i64[4{tp}*(16+4+4), 3]",
        "tp=4",
        [cat(chunks(Q, 4)[r], chunks(K, 4)[r], chunks(V, 4)[r]) for r in range(4)],
    ),
    "gate rows behind the groups": (
        cat(Q, GATE),
        "i64[4{tp}*16+24{tp}, 3]",
        "tp=4",
        [cat(chunks(Q, 4)[r], chunks(GATE, 4)[r]) for r in range(4)],
    ),
    "Mamba": (
        cat(*MAMBA),
        "i64[2*32{tp}+2*8{tp}+4{tp}, 2]",
        "tp=2",
        [cat(*(chunks(part, 2)[r] for part in MAMBA)) for r in range(2)],
    ),
    "Mamba with one group: B and C on every rank": (
        cat(*MAMBA),
        "i64[2*32{tp}+16+4{tp}, 2]",
        "tp=2",
        [
            cat(chunks(MAMBA[0], 2)[r], chunks(MAMBA[1], 2)[r], *MAMBA[2:4], chunks(MAMBA[4], 2)[r])
            for r in range(2)
        ],
    ),
    "stacked experts, gate and up, by tensor": (
        np.stack([cat(GATE + 100 * e, UP + 100 * e) for e in range(3)]),
        "i64[3, 2*24{tp}, 3]",
        "tp=2",
        [
            np.stack([cat(chunks(GATE, 2)[r], chunks(UP, 2)[r]) + 100 * e for e in range(3)])
            for r in range(2)
        ],
    ),
    "stacked experts, gate and up, by expert": (
        np.stack([cat(GATE + 100 * e, UP + 100 * e) for e in range(4)]),
        "i64[4{ep}, 48, 3]",
        "ep=2",
        [
            np.stack([cat(GATE + 100 * e, UP + 100 * e) for e in (2 * r, 2 * r + 1)])
            for r in range(2)
        ],
    ),
    "index queries, and one index key for all": (
        cat(Q, K, V, GATE, ODD[0]),
        "i64[64{tp}+2*16{tp}+24{tp}+3, 3]",
        "tp=4",
        [cat(*(chunks(part, 4)[r] for part in (Q, K, V, GATE)), ODD[0]) for r in range(4)],
    ),
    "raw rows, more ranks than groups": (
        cat(Q, K, V, GATE),
        "i64[120{tp}, 3]",
        "tp=8",
        [cat(Q, K, V, GATE)[15 * r : 15 * r + 15] for r in range(8)],
    ),
    "FSDP of tensor parallel, segment by segment": (
        cat(GATE, UP),
        "i64[2*24{tp,dp}, 3]",
        "dp=2,tp=2",
        [
            cat(chunks(GATE, 4)[2 * tp + dp], chunks(UP, 4)[2 * tp + dp])
            for dp in range(2)
            for tp in range(2)
        ],
    ),
    "blocks that must not be cut": (
        np.arange(9 * 4 * 2).reshape(36, 2),
        "i64[9{tp}*4, 2]",
        "tp=4",
        [np.arange(72).reshape(36, 2)[12 * r : 12 * r + 12] for r in range(4)],
    ),
}


def field_type(name: str) -> tuple[Array, ArrayType, list[Array]]:
    whole, text, axes, tiles = FIELD[name]
    mesh = Mesh.of(axes)
    assert mesh is not None
    return whole, ArrayType.parse(text, mesh), tiles


@pytest.mark.parametrize("name", FIELD)
def test_fused_weights_are_what_numpy_concatenates(name: str) -> None:
    whole, t, tiles = field_type(name)
    assert t.shape == whole.shape
    for rank, tile in enumerate(tiles):
        assert tile_shapes(t)[rank] == tile.shape
        assert np.array_equal(whole[np.ix_(*indices_of(t, rank))], tile)


@pytest.mark.parametrize("name", FIELD)
def test_fused_weights_move_to_any_other_layout_and_back(name: str) -> None:
    """To fewer ranks, to raw rows, to columns on another mesh, and back: bytes at the bound."""
    whole, t, tiles = field_type(name)
    n = t.mesh.n_devices
    other = Mesh({"y": n}, ranks=range(n - 1, -1, -1))
    uncut = ArrayType.of(other, "i64", whole.shape)
    dim = 1 if whole.ndim == 3 else 0
    rows = ArrayType.of(
        other, "i64", whole.shape, [["y"] if i == dim else [] for i in range(whole.ndim)]
    )
    dealt = ArrayType.parse(
        f"i64[{', '.join(f'{k}{{y/5}}' if i == dim else str(k) for i, k in enumerate(whole.shape))}]",
        other,
    )
    given = dict(enumerate(tiles))
    for there in (uncut, rows, dealt):
        out = redist.synthesize(t, there)
        back = redist.synthesize(there, t)
        for plan in (out, back):
            check_plan(plan)
            assert plan.received_bytes == plan.lower_bound_bytes
            assert plan.certificate is not None
            assert plan.certificate.verdict == "proved"
        moved = simulate(out, given).tiles
        assert np.array_equal(global_value(there, moved), whole)
        again = simulate(back, moved).tiles
        assert all(np.array_equal(again[rank], tile) for rank, tile in given.items())


# Plans that are wrong


def a_plan() -> Plan:
    return redist.synthesize("i64[12{x}+6{x:(1)2}+6{x:(1)2}, 3]", "i64[24{x/5}, 3]", mesh=Mesh(x=4))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("received_bytes", 8),
        ("received_bytes", -8),
        ("rounds", 1),
        ("peak_bytes", -8),
    ],
)
def test_figures_that_are_wrong_are_found(field: str, change: int) -> None:
    plan = a_plan()
    (step,) = plan.steps
    wrong = dataclasses.replace(step, **{field: getattr(step, field) + change})
    with pytest.raises(CheckError):
        check_plan(dataclasses.replace(plan, steps=(wrong,)))


def test_other_types_in_a_plan_are_found() -> None:
    """Another block, another order of segments, other lengths: bytes no longer agree."""
    plan = a_plan()
    (step,) = plan.steps
    found = 0
    for text in (
        "i64[24{x/4}, 3]",
        "i64[24{x/5@1}, 3]",
        "i64[24{x=6;6;6;6}, 3]",
        "i64[12+12{x}, 3]",
    ):
        after = ArrayType.parse(text, plan.source.mesh)
        wrong = dataclasses.replace(step, after=after, action=Exchange(after))
        with pytest.raises(CheckError):
            check_plan(dataclasses.replace(plan, steps=(wrong,), target=after))
        found += 1
    assert found == 4


def test_named_collectives_do_not_move_segments() -> None:
    ends = "i64[12{x}+6{x}]", "i64[18{x}]"
    for strategy in ("collectives", "no_permute"):
        with pytest.raises(redist.RequestError, match="named collectives move even ranges"):
            redist.synthesize(*ends, mesh=Mesh(x=2), strategy=strategy)


def test_duals_exist_where_no_segment_is_replicated() -> None:
    mesh = Mesh(x=4)
    plan = redist.synthesize("f64[8{x}+8{x}]", "f64[16{x/3}]", mesh=mesh)
    assert redist.adjoint(plan).source == plan.target
    with pytest.raises(LayoutError, match="is replicated along an axis that cuts another"):
        redist.adjoint(redist.synthesize("f64[8{x}+8]", "f64[16{x/3}]", mesh=mesh))


def test_spans_answer_for_every_type() -> None:
    mesh = Mesh(x=2)
    for text in ("f32[10{x}, 4]", "f32[10{x/3}, 4]", "f32[4{x}+2, 3]"):
        t = ArrayType.parse(text, mesh)
        for rank in range(2):
            spans = redist.spans_of(t, rank)
            assert spans is not None
            flat = [list(itertools.chain(*(range(*s) for s in dim))) for dim in spans]
            assert flat == [found.tolist() for found in indices_of(t, rank)]
        assert redist.spans_of(t, 2) is None
    with pytest.raises(LayoutError, match=r"redist\.spans_of has them"):
        redist.box_of(ArrayType.parse("f32[10{x/3}]", mesh), 0)


def test_layouts_are_compared_by_what_devices_hold() -> None:
    mesh = Mesh(x=2)
    a, b = (ArrayType.parse(t, mesh) for t in ("f32[3*(4{x}+2)]", "f32[4{x}+2+4{x}+2+4{x}+2]"))
    assert a != b
    assert same_layout(a, b)
    assert redist.synthesize(a, b).received_bytes == 0
    assert not same_layout(a, ArrayType.parse("f32[18{x}]", mesh))


@pytest.mark.parametrize(
    ("weight", "scales", "words"),
    [
        ("f8e4m3fn[16{tp}*128, 512]", "f32[16{tp}, 4]", None),
        ("f8e4m3fn[33{tp}*128, 100]", "f32[33{tp}, 1]", None),
        ("f8e4m3fn[2*8{tp}*128, 512]", "f32[2*8{tp}, 4]", None),
        ("f8e4m3fn[8{tp}*128+4{tp}*128, 512]", "f32[8{tp}+4{tp}, 4]", None),
        (
            "f8e4m3fn[2112{tp}, 512]",
            "f32[17{tp}, 4]",
            "rank 0 has indices 0 to 528 of dim 0, which cut",
        ),
        (
            "f8e4m3fn[768{tp}, 512]",
            "f32[6{tp}, 4]",
            "which cut a block of 128; write the dim as blocks",
        ),
        (
            "f8e4m3fn[2*8{tp}*128, 512]",
            "f32[16{tp}, 4]",
            "rank 0 has 4 blocks of dim 0 but scales of 4",
        ),
        (
            "f8e4m3fn[16{tp}*128, 512]",
            "f32[16, 4]",
            "rank 0 has 4 blocks of dim 0 but scales of 16",
        ),
        ("f8e4m3fn[16{tp}*128, 512]", "f32[15{tp}, 4]", "make scales of shape"),
    ],
)
def test_weights_and_their_scales_cover_the_same_blocks(
    weight: str, scales: str, words: str | None
) -> None:
    mesh = Mesh(tp=4)
    ends = ArrayType.parse(weight, mesh), ArrayType.parse(scales, mesh)
    if words is None:
        redist.check_blocks(*ends, (128, 128))
        return
    with pytest.raises(LayoutError, match=words):
        redist.check_blocks(*ends, (128, 128))


def test_a_sum_is_resolved_where_elements_have_one_holder() -> None:
    """Not on every replica by itself: 1,248 bytes and not 1,920 of at least 1,152."""
    ends = "f32[16, 4] sum{x}", "f32[8{x}+8, 4]"
    for objective in ("time", "bytes"):
        plan = redist.synthesize(*ends, mesh=Mesh(x=4), objective=objective)
        check_plan(plan)
        assert [step.op for step in plan.steps] == ["reduce_scatter", "exchange"]
        assert (plan.received_bytes, plan.lower_bound_bytes) == (1248, 1152)
    direct = redist.synthesize(*ends, mesh=Mesh(x=4), strategy="direct")
    assert (len(direct.steps), direct.received_bytes) == (1, 1920)
