"""Rules that are wrong are refused at their character; sizes, names and missing parts with one error."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from redist.errors import ArgumentError, ParseError, ShapeError
from redist.names import Names, Part, part_view, whole

WRONG = [
    ("*.qkv[q|k = *.q, *.k", 10, "expected '|', '*', ',' or ']'"),
    ("w[q|, :] = a, b", 4, "expected a number, a letter, ':', '_' or '('"),
    ("w[(q|k, :] = a, b", 6, "expected '|', '*' or ')'"),
    ("w[q] a", 5, "expected '='"),
    ("w a", 2, "expected '[' or '='"),
    ("w[q|k] =", 8, "expected a name"),
    ("w[q|k] = a", 10, "expected a part for each of 2 segments, got 1"),
    ("w[q|k] = a, b, c", 15, "one part too many: the stored dims have 2 segments"),
    ("w = a, b", 7, "one part too many: the stored dims have 1 segment"),
    ("*.w[q] = a", 9, "expected as many * as in the stored name, 1"),
    ("w.{e}[q] = a.{f}", 11, "expected {e}, as in the stored name"),
    ("w.{e}[q|e] = a.{e}, b.{e}", 8, "this letter stands in the stored name; take another"),
    ("w[q] = a.{e}", 9, "e is not in the stored dims of this part"),
    ("w[e, e] = a.{e}", 12, "e is twice in the stored dims of this part"),
    ("w[e] = a.{e", 9, "expected an index such as {e}"),
    ("w[q|:] = a, b", 2, "':' is a dim as it is and stands alone; write a letter"),
    ("w[8*:] = a", 2, "':' is a dim as it is and stands alone; write a letter"),
    ("w[_] = a", 0, "the stored dims have nothing but padding"),
    ("w[a, b] = v[b|a]", 13, "dims of a part have no segments; they stand in the stored dims"),
    ("w[a, b] = v[b, _]", 15, "padding stands in the stored dims only"),
    ("w[a, b] = v[b]", 10, "the dims of this part lack a of the stored dims"),
    ("w[a, b] = v[b, c]", 15, "c is not left in the stored dims of this part"),
    ("w[a, b] = v[b, b*a]", 15, "b is not left in the stored dims of this part"),
    ("w = v[a]", 4, "the stored name has no dims that this could refer to"),
    ("w[q] = a b", 9, "expected ',' or the end"),
    ("w[" + "*".join(["(a|b)"] * 13) + "] = a", None, "a dim has 8192 segments; at most 4096"),
    ("w[12345678901234567890] = a", 2, "expected a number of at most 18 digits"),
]


@pytest.mark.parametrize(("text", "position", "reason"), WRONG)
def test_wrong_rules(text: str, position: int | None, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        Names(["a = b", text])
    assert caught.value.text == text and caught.value.reason == reason
    assert position is None or caught.value.position == position


SIZES = [
    ("w[4096|1024|1088, :] = q, k, v", (6144, 4), {}, "the rule makes 6208 of a dim of 6144"),
    ("w[q|k|v, :] = q, k, v", (6144, 4), {}, "the size of q is not known; write it as a number"),
    ("w[a*b, :] = q", (6144, 4), {}, "the size of a is not known; write it as a number"),
    ("w[a*a, :] = q", (16, 4), {}, "the size of a is not known; write it as a number"),
    ("w[v|_, :] = q", (8, 4), {"q": (9, 4)}, "the rule makes at least 9 of a dim of 8"),
    (
        "w[v|_|_, :] = q",
        (8, 4),
        {"q": (7, 4)},
        "the size of _ is not known; write it as a number, as in _96",
    ),
    ("w[8*(q|64), :] = q, k", (6145, 4), {}, "cannot make a dim of 6145: 5633 is no multiple of 8"),
    ("w[q|k] = q, k", (8, 4), {}, "the rule has 1 dims, the stored tensor has 2"),
    ("w[q|k, :] = q, k", (8, 4), {"q": (5,)}, "the rule makes 2 dims of q, which has shape (5,)"),
    ("w[q|k, :] = q, k", (8, 4), {"q": (5, 3)}, "the rule makes 4 of dim 1 of q, which has 3"),
    ("w[e, f] = q.{e}", (2, 4), {"q.1": (5,)}, "'q.1' would have shape (4,), but has (5,)"),
    ("v = q", (2, 4), {"w": (5,)}, "'w' would have shape (2, 4), but has (5,)"),
]


@pytest.mark.parametrize(("rule", "shape", "known", "reason"), SIZES)
def test_sizes_that_do_not_come_out(
    rule: str, shape: tuple[int, ...], known: dict[str, tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        Names(rule).parts_of("w", shape, known)
    assert reason in str(caught.value) and str(caught.value).startswith("cannot read 'w'")


def test_a_stored_name_that_two_rules_match() -> None:
    names = Names("*.qkv[q|q] = *.q, *.k\nlast.*[a|a] = last.*a, last.*b")
    assert [part.name for part in names.parts_of("first.qkv", (4,))] == ["first.q", "first.k"]
    with pytest.raises(ArgumentError, match=r"cannot read 'last.qkv': .* both match it"):
        names.parts_of("last.qkv", (4,))
    with pytest.raises(ArgumentError, match=r"cannot read 'w': .* both match it"):
        Names("w[a|a] = b, c\nw = d").stored_from({"b": (2,), "c": (2,), "d": (4,)})


def test_stars_that_cannot_be_told_apart() -> None:
    names = Names("w**[a|a] = v*.*, u*.*")
    with pytest.raises(ArgumentError, match=r"cannot make 'w12' .* what each \* stands for"):
        names.stored_from({"v1.2": (4,), "u1.2": (4,)})


def test_parts_that_are_missing() -> None:
    names = Names("*.qkv[q|k|v] = *.q, *.k, *.v\n*.w[e, :] = *.{e}.w")
    with pytest.raises(ArgumentError, match=r"cannot make 'a.qkv' by .*: 'a.k' is missing$"):
        names.stored_from({"a.q": (4,), "a.v": (4,)})
    with pytest.raises(ArgumentError, match=r"cannot make 'a.w' by .*: 'a.1.w' is missing$"):
        names.stored_from({"a.0.w": (4,), "a.3.w": (4,)})
    with pytest.raises(ArgumentError, match=r"cannot keep 'a.qkv': .* but 'a.q' is missing$"):
        names.stored_from({"a.qkv": (4,)})
    with pytest.raises(ShapeError, match=r"'a.1.w' would have shape \(4,\), but has \(5,\)"):
        names.stored_from({"a.0.w": (4,), "a.1.w": (5,)})


def test_names_that_no_rule_takes_stay() -> None:
    names = Names.of(["*.qkv[q|k] = *.q, *.k"])
    known = {"n": (3,), "1.k": [2], "2.q": (5,), "1.q": (4,), "2.k": (1,)}
    assert list(names.stored_from(known).items()) == [("n", (3,)), ("1.qkv", (6,)), ("2.qkv", (6,))]
    assert Names.of(None).stored_from(known) == {
        name: tuple(shape) for name, shape in known.items()
    }
    assert Names.of(names) is names and Names.of(None) == Names() != names
    assert names.parts_of("norm", [4, 5]) == (whole("norm", (4, 5)),)


def test_several_stars_and_indices() -> None:
    names = Names("layers.*.experts.w*[i, j, :] = l.*.{j}.{i}.w*")
    found = names.parts_of("layers.3.experts.w12", (2, 3, 4))
    assert [part.name for part in found[:2]] == ["l.3.0.0.w12", "l.3.0.1.w12"]
    assert [part.starts for part in found[:2]] == [(0, 0, 0), (1, 0, 0)]
    known = {part.name: part.shape for part in found}
    assert names.stored_from(known) == {"layers.3.experts.w12": (2, 3, 4)}


def test_numbers_in_both_names() -> None:
    names = Names(
        "dec.{l}.norm = layers.{l}.norm\n*.{l}.fc{n}[e, f|f] = *.{n}.{l}.a{e}, *.{n}.{l}.b{e}"
    )
    assert names.parts_of("dec.12.norm", (4,)) == (whole("layers.12.norm", (4,)),)
    assert names.parts_of("dec.1.x.norm", (4,)) == (whole("dec.1.x.norm", (4,)),)
    found = names.parts_of("x.3.fc7", (2, 6))
    assert [part.name for part in found] == ["x.7.3.a0", "x.7.3.a1", "x.7.3.b0", "x.7.3.b1"]
    known = {part.name: part.shape for part in found} | {
        "layers.5.norm": (4,),
        "layers.mix.norm": (4,),
    }
    stored = {"x.3.fc7": (2, 6), "dec.5.norm": (4,), "layers.mix.norm": (4,)}
    assert names.stored_from(known) == stored


def test_digits_in_names_are_told_apart() -> None:
    names = Names("w1*2[a|a] = v1*, v2*")
    assert [part.name for part in names.parts_of("w12", (4,))] == ["v1", "v2"]
    assert [part.name for part in names.parts_of("w1.32", (4,))] == ["v1.3", "v2.3"]
    assert names.parts_of("w22", (4,)) == (whole("w22", (4,)),)
    assert list(Names("w[e] = a.{e}").stored_from({"a.01": (3,)})) == ["a.01"]


def test_dims_of_size_one_may_come_and_go() -> None:
    (part,) = Names("conv[c, d] = conv.weight[c, 1, d]").parts_of("conv", (6, 4))
    assert part == Part("conv.weight", (6, 1, 4), (6, 4), (0, 1), (1, 1), (0, 0))
    (part,) = Names("conv[c, 1, d] = conv.weight[d, c]").parts_of("conv", (6, 1, 4))
    assert part.shape == (4, 6) and part.dims == (2, 0)


def test_digits_are_joined_within_a_dim() -> None:
    (part,) = Names("w[8*3*d, m] = v").parts_of("w", (96, 5))
    assert part == Part("v", (96, 5), (96, 5), (0, 1), (1, 1), (0, 0))


def test_views_are_within_the_array() -> None:
    with pytest.raises(ShapeError, match="cannot view 'w' in an array of"):
        part_view(whole("w", (4, 5)), np.zeros((4, 4)))
    with pytest.raises(ShapeError, match="cannot view 'w' in an array of"):
        part_view(whole("w", (4,)), np.zeros((4, 4)))
    assert part_view(whole("w", (0, 5)), np.zeros((0, 5))).shape == (0, 5)
    assert part_view(whole("w", ()), np.full((), 7)) == 7


def test_rules_travel() -> None:
    names = Names("# comment\n\n  *.qkv[q|k] = *.q, *.k  ")
    assert str(names) == "*.qkv[q|k] = *.q, *.k"
    assert pickle.loads(pickle.dumps(names)) == names and hash(Names(str(names))) == hash(names)


def test_many_names_are_read_once_a_kind() -> None:
    """Work grows with the number of names, not with names times rules."""
    rules = [
        f"*.w{chr(97 + n)}[e, a|a, :] = *.{{e}}.u{chr(97 + n)}, *.{{e}}.v{chr(97 + n)}"
        for n in range(26)
    ]
    names = Names(rules)
    known = {f"layers.{n}.{e}.{x}c": (6, 4) for n in range(300) for e in range(16) for x in "uv"}
    stored = names.stored_from(known)
    assert stored == {f"layers.{n}.wc": (16, 12, 4) for n in range(300)}
    parts = [part for name, shape in stored.items() for part in names.parts_of(name, shape, known)]
    assert {part.name: part.shape for part in parts} == known
    assert len(names._frames) == 1 and len(names._of_parts._likely) == 2
