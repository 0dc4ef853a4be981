"""Rows of text as lines whose columns stand below each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lines of a table; the named columns begin at their left edge, the others end at the right.

    >>> print("\\n".join(table([("name", "n"), ("a", "10")])))
    name   n
    a     10
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "   ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
