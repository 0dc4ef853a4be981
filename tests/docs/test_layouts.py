"""Pages about layouts: the types, spellings and errors in their tables are those of redist."""

from __future__ import annotations

import re

import pytest

from redist.errors import ParseError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import spans_of
from tests.docs.documents import ROOT

LAYOUTS = (ROOT / "docs/how-to/say-your-layout.md").read_text(encoding="utf-8")
NOTATION = (ROOT / "docs/reference/notation.md").read_text(encoding="utf-8")


def mesh_of(text: str) -> Mesh:
    mesh = Mesh.of(text)
    assert mesh is not None
    return mesh


def test_types_of_the_table_of_layouts_exist() -> None:
    rows = re.findall(r"^\|[^|]+\|[^|]+\| `([^`|]+)` \| `([^`|]+)` \|$", LAYOUTS, re.MULTILINE)
    assert len(rows) > 20
    for text, axes in rows:
        ArrayType.parse(text, mesh_of(axes))


def test_spellings_are_those_that_redist_prints() -> None:
    section = NOTATION.partition("## One spelling for each layout")[2].partition("## Errors")[0]
    rows = re.findall(r"^\| `([^`]+)`((?:, `\w=\d`)*) \| `([^`]+)` \|", section, re.MULTILINE)
    assert len(rows) >= 12
    for text, axes, printed in rows:
        mesh = mesh_of(",".join(re.findall(r"\w=\d", axes)) or "x=2")
        assert str(ArrayType.parse(f"f32[{text}]", mesh)) == f"f32[{printed}]"


def test_who_holds_which_row_is_what_types_say() -> None:
    """The pictures of ranks under rows, of 16 rows on 4 ranks."""
    shown = 0
    for line in LAYOUTS.splitlines():
        match = re.match(r"(16|\d\S*[+*]\S+|16\{\S+\})  +((?:[0-3]+ +){15}[0-3]+)\b", line)
        if match is None:
            continue
        t = ArrayType.parse(f"f32[{match[1]}]", mesh_of("tp=4" if "tp" in match[1] else "x=4"))
        holders = ["".join(str(r) for r in range(4) if holds(t, r, row)) for row in range(16)]
        assert holders == match[2].split(), line
        shown += 1
    assert shown == 11


def holds(t: ArrayType, rank: int, row: int) -> bool:
    spans = spans_of(t, rank)
    return spans is not None and any(low <= row < high for low, high in spans[0])


def test_errors_are_those_that_redist_raises() -> None:
    section = NOTATION.partition("## Errors")[2].partition("## Dtypes")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    assert len(rows) >= 10
    for text, words in rows:
        with pytest.raises(ParseError) as caught:
            ArrayType.parse(text, mesh_of("x=4,y=6"))
        assert caught.value.reason == words, text
