"""Text of types: it round-trips, and errors point at the character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import ParseError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from tests.problems.strategies import types
from tests.tiers import sample

MESH = Mesh(x=2, y=4, z=6, one=1)


@settings(max_examples=sample(37, of=150), deadline=None, derandomize=True)
@given(types())
def test_text_round_trips(t: ArrayType) -> None:
    assert ArrayType.parse(str(t), t.mesh) == t
    assert "\n" not in str(t)


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(types(), st.integers(0, 2))
def test_the_tile_may_be_written_out_and_spaces_do_not_matter(t: ArrayType, spaces: int) -> None:
    gap = " " * spaces
    dims = []
    for n, tile, parts in zip(t.shape, t.tile_shape, t.dims, strict=True):
        axes = f"{gap},{gap}".join(part.text(t.mesh) for part in parts)
        dims.append(f"{tile}{gap}{{{axes}}}{gap}{n}" if parts else f"{gap}{n}{gap}")
    text = f"{gap}{t.dtype}{gap}[{gap}{f'{gap},'.join(dims)}{gap}]{gap}"
    if t.pending_op is not None:
        axes = f"{gap},{gap}".join(part.text(t.mesh) for part in t.pending_axes)
        text += f"{t.pending_op}{gap}{{{gap}{axes}{gap}}}{gap}"
    assert ArrayType.parse(text, t.mesh) == t


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("f32[]", "f32[]"),
        ("float32[8]", "f32[8]"),
        ("f32[8{}]", "f32[8]"),
        ("f32[8{}8]", "f32[8]"),
        ("f32[4{x}8]", "f32[8{x}]"),
        ("f32[2{y}7]", "f32[7{y}]"),
        ("f32[0{x}0]", "f32[0{x}]"),
        ("f32[8{y,x}]", "f32[8{y,x}]"),
        ("f32[8{y:(1)2,y:(2)2}]", "f32[8{y}]"),
        ("f32[8{y:(2)2,y:(1)2}]", "f32[8{y:(2)2,y:(1)2}]"),
        ("f32[8{z:(2)3}]", "f32[8{z:(2)3}]"),
        ("f32[8{z:(1)6}]", "f32[8{z}]"),
        ("f32[8{z:(6)1}]", "f32[8]"),
        ("f32[8{one}] max{one}", "f32[8]"),
        ("bf16[8]prod{y,x}", "bf16[8] prod{x,y}"),
        ("f32[8] min{z:(2)3,z:(1)2}", "f32[8] min{z}"),
        ("datetime64[s][8{x}]", "datetime64[s][8{x}]"),
        ("S5[8{x}]", "S5[8{x}]"),
        ("f32\t[\n8 ]", "f32[8]"),
        ("f32[999999999999999999]", "f32[999999999999999999]"),
    ],
)
def test_spellings(text: str, canonical: str) -> None:
    t = ArrayType.parse(text, MESH)
    assert str(t) == canonical
    assert ArrayType.parse(canonical, MESH) == t


BAD = [
    ("", 0, "expected a dtype"),
    ("   ", 3, "expected a dtype"),
    ("[8]", 0, "expected a dtype"),
    ("32[8]", 0, "expected a dtype"),
    ("f33[8]", 0, "unknown dtype 'f33'"),
    (" f33[8]", 1, "unknown dtype 'f33'"),
    ("f8[8]", 0, "ambiguous"),
    ("f32", 3, "expected '[' after the dtype"),
    ("f32(8)", 3, "expected '[' after the dtype"),
    ("f32 8", 4, "expected '[' after the dtype"),
    ("f32[", 4, "expected the size of a dim"),
    ("f32[8", 5, "expected ',' or ']'"),
    ("f32[8,", 6, "expected the size of a dim"),
    ("f32[8,]", 6, "expected the size of a dim"),
    ("f32[,8]", 4, "expected the size of a dim"),
    ("f32[-8]", 4, "expected the size of a dim"),
    ("f32[{x}]", 4, "expected the size of a dim"),
    ("f32[n]", 4, "expected the size of a dim"),
    ("f32[8 8]", 6, "expected ',' or ']'"),
    ("f32[8.5]", 5, "expected ',' or ']'"),
    ("f32[8;8]", 5, "expected ',' or ']'"),
    ("f32[8x]", 5, "expected ',' or ']'"),
    ("f32[" + "9" * 19 + "]", 4, "at most 18 digits"),
    ("f32[" + "9" * 5000 + "]", 4, "at most 18 digits"),
    ("f32[8{x]", 7, "expected ',' or '}'"),
    ("f32[8{x", 7, "expected ',' or '}'"),
    ("f32[8{x y}]", 8, "expected ',' or '}'"),
    ("f32[8{x,}]", 8, "expected an axis name"),
    ("f32[8{,x}]", 6, "expected an axis name"),
    ("f32[8{3}]", 6, "expected an axis name"),
    ("f32[8{x}", 8, "expected ',' or ']'"),
    ("f32[8{x}}]", 8, "expected ',' or ']'"),
    ("f32[8{w}]", 6, "unknown axis 'w', the mesh has x, y, z, one"),
    ("f32[8{x,w}]", 8, "unknown axis 'w'"),
    ("f32[8{x,x}]", 8, "axis x twice"),
    ("f32[8{x}, 8{ x}]", 13, "axis x twice"),
    ("f32[8{x}] sum{x}", 14, "axis x twice"),
    ("f32[8{y:(1)2}, 8{y}]", 17, "axis y twice"),
    ("f32[8{x:2}]", 8, "expected '(' as in x:(2)3"),
    ("f32[8{y:(}]", 9, "expected the size before the sub-axis"),
    ("f32[8{y:(2}]", 10, "expected ')'"),
    ("f32[8{y:(2)}]", 11, "expected the size of the sub-axis"),
    ("f32[8{y:(" + "9" * 5000 + ")2}]", 9, "at most 18 digits"),
    ("f32[8{y:(3)2}]", 6, "3 x 2 does not divide axis y=4"),
    ("f32[8{x,y:(0)2}]", 8, "0 x 2 does not divide axis y=4"),
    ("f32[8{y:(1)0}]", 6, "1 x 0 does not divide axis y=4"),
    ("f32[8{z:(1)2,z:(1)3}]", 13, "overlap"),
    ("f32[8{z:(1)2,z:(3)2}]", 13, "different cuts"),
    ("f32[3{x}8]", 4, "the tile of 8 cut by 2 is 4, not 3"),
    ("f32[8, 2{y}9]", 7, "the tile of 9 cut by 4 is 3, not 2"),
    ("f32[8{x}16{y}]", 10, "expected ',' or ']'"),
    ("f32[8] sum", 10, "expected '{' and axes"),
    ("f32[8] sum[x]", 10, "expected '{' and axes"),
    ("f32[8] sum{}", 11, "expected an axis"),
    ("f32[8] sum{ }", 12, "expected an axis"),
    ("f32[8] mean{x}", 7, "unknown reduction 'mean', expected one of sum, prod, max, min"),
    ("f32[8] Sum{x}", 7, "unknown reduction 'Sum'"),
    ("f32[8] {x}", 7, "expected the end or a reduction (sum, prod, max, min)"),
    ("f32[8]]", 6, "expected the end or a reduction"),
    ("f32[8] sum{x} max{y}", 14, "expected the end"),
    ("f32[8] sum{x}]", 13, "expected the end"),
    ("f32[8{x}] sum{w}", 14, "unknown axis 'w'"),
]


@pytest.mark.parametrize(("text", "position", "reason"), BAD, ids=[bad[0][:24] for bad in BAD])
def test_errors_point_at_the_character(text: str, position: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        ArrayType.parse(text, MESH)
    error = caught.value
    assert (error.text, error.position) == (text, position)
    assert reason in error.reason
    found = repr(text[position]) if position < len(text) else "end of text"
    assert str(error) == (
        f"cannot parse {text!r}: {error.reason} at character {position + 1} ({found})"
    )
    assert "\n" not in str(error)
    assert error.pointer() == f"{text}\n{' ' * position}^"


def test_a_text_with_line_breaks_gives_one_line() -> None:
    with pytest.raises(ParseError) as caught:
        ArrayType.parse("f32[\n8\n{w}]", MESH)
    assert "\n" not in str(caught.value)
    assert caught.value.position == 8


PIECES = ["f32", "i64", *"[]{},xyzw", "one", ":(", ")", *"01238", "sum", "mean", "z:(2)3", "\n"]


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(
    st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=16).map("".join),
        st.text(max_size=20),
        st.text(max_size=12).map(lambda text: f"f32[{text}]"),
        st.text(max_size=12).map(lambda text: f"f32[8{{{text}}}]"),
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        t = ArrayType.parse(text, MESH)
    except RedistError as error:
        assert "\n" not in str(error)
    else:
        assert ArrayType.parse(str(t), MESH) == t


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(types(), st.data())
def test_a_damaged_text_is_read_or_refused(t: ArrayType, data: st.DataObject) -> None:
    text = str(t)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from("{}[](),:#x0 ")) + text[at + 1 :]
    try:
        again = ArrayType.parse(damaged, t.mesh)
    except ParseError as error:
        assert 0 <= error.position <= len(damaged)
        assert "\n" not in str(error)
    except RedistError as error:
        assert "\n" not in str(error)
    else:
        assert ArrayType.parse(str(again), t.mesh) == again


def test_a_comma_that_is_missing_is_asked_for() -> None:
    with pytest.raises(ParseError, match=r"is 8, not 16; or is a ',' missing before 16\?"):
        ArrayType.parse("f64[16{x} 16]", Mesh(x=2))
