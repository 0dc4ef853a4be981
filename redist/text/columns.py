"""Text as lines: rows whose columns stand below each other, paragraphs on one line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "   "


def table(
    rows: Sequence[Sequence[str]], left: Collection[int] = (0,), indent: str = "", gap: str = GAP
) -> list[str]:
    """Align rows; the columns in ``left`` begin at their left edge, the others end at their right.

    >>> print("\\n".join(table([("name", "n"), ("a", "10")])))
    name   n
    a     10
    """
    sizes = widths(rows)
    return [table_line(row, sizes, left, indent, gap) for row in rows]


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of every column, which is that of its longest cell.

    >>> widths([("name", "n"), ("a", "10")])
    [4, 2]
    """
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def table_line(
    cells: Sequence[str],
    sizes: Sequence[int],
    left: Collection[int] = (0,),
    indent: str = "",
    gap: str = GAP,
) -> str:
    """Align the cells of one row; a row may have fewer cells than there are columns.

    >>> table_line(("a", "10", ""), (4, 3, 2))
    'a       10'
    """
    aligned = [
        cell.ljust(size) if k in left else cell.rjust(size)
        for k, (cell, size) in enumerate(zip(cells, sizes, strict=False))
    ]
    return (indent + gap.join(aligned)).rstrip()


def one_line(text: object) -> str:
    """Join the lines of a text, as every error and every fact is printed.

    >>> one_line("a\\n  b")
    'a b'
    """
    return " ".join(str(text).split())
