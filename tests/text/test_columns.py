"""Columns: cells stand below each other, whatever their side, gap and indent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redist.text.columns import one_line, table, table_line, widths

CELLS = st.text("ab ", max_size=5).map(str.strip)
ROWS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(
    ROWS, st.sets(st.integers(0, 3)), st.sampled_from(["", "  "]), st.sampled_from(["  ", "   "])
)
def test_every_cell_stands_in_its_column(
    rows: list[list[str]], left: set[int], indent: str, gap: str
) -> None:
    lines = table(rows, left, indent, gap)
    start = len(indent)
    for k, size in enumerate(widths(rows)):
        for row, line in zip(rows, lines, strict=True):
            cell = line.ljust(200)[start : start + size]
            assert cell == (row[k].ljust(size) if k in left else row[k].rjust(size))
        start += size + len(gap)
    assert all(line == line.rstrip() for line in lines)


def test_a_short_row_ends_early() -> None:
    assert table_line(("a", "not installed"), (4, 2, 9), left=(0, 1)) == "a      not installed"


def test_one_line_has_no_breaks() -> None:
    assert one_line(ValueError("a\n\n b\tc ")) == "a b c"
