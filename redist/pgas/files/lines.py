"""Lines of a text by ranges of bytes: which are a rank's, and how many fields each has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ReadError

PIECE_BYTES = 2**22
"""So much of a file is looked at at a time; a longer line makes a longer piece."""
SEARCH_BYTES = 2**14


def one_delimiter(delimiter: str | None, sep: str | None) -> str:
    """**Local.** What parts fields, by our name or by pandas'; a comma if neither is given.

    >>> one_delimiter(None, None), one_delimiter(None, ";")
    (',', ';')
    """
    if delimiter is not None and sep is not None and delimiter != sep:
        raise ArgumentError(
            f"cannot part fields by {delimiter!r} and by {sep!r}: delimiter= and sep= are the same; give one"
        )
    mark = delimiter if delimiter is not None else sep if sep is not None else ","
    if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '\r\n"+-.':
        raise ArgumentError(
            f"cannot part fields by {mark!r}: need one letter of ASCII that is in no number"
        )
    return mark


def line_start(file: BinaryIO, at: int, first: int, end: int) -> int:
    """**Local.** Where the first line starts that does not start before byte ``at``.

    Lines start at ``first`` and after every line end; ``end`` is the size of the file.

    >>> import io
    >>> [line_start(io.BytesIO(b"12\\n345\\n6"), at, 0, 8) for at in (0, 1, 3, 4, 8)]
    [0, 3, 3, 7, 8]
    """
    if at <= first:
        return first
    file.seek(at - 1)
    begin = at - 1
    while begin < end:
        found = file.read(SEARCH_BYTES)
        if not found:
            break
        place = found.find(b"\n")
        if place >= 0:
            return min(end, begin + place + 1)
        begin += len(found)
    return end


def pieces(file: BinaryIO, lo: int, hi: int, most_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """**Local.** The bytes between two starts of lines, in pieces of whole lines."""
    file.seek(lo)
    rest = b""
    while lo < hi:
        got = file.read(min(most_bytes, hi - lo))
        if not got:
            raise ReadError(f"cannot read {file.name!r}: it became shorter")
        lo += len(got)
        whole, mark, open_end = (rest + got).rpartition(b"\n")
        if lo >= hi:
            yield rest + got
        elif mark:
            yield whole + mark
        rest = open_end


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """Of each line of a piece, how many fields it has, and whether there is anything in it."""

    fields: NDArray[np.int64]
    is_blank: NDArray[np.bool_]

    @staticmethod
    def of(piece: bytes, delimiter: str) -> FieldCounts:
        """**Local.** Count them.

        >>> counts = FieldCounts.of(b"1,2,3\\r\\n\\r\\n4,5", ",")
        >>> counts.fields.tolist(), counts.is_blank.tolist()
        ([3, 1, 2], [False, True, False])
        """
        text = np.frombuffer(piece, np.uint8)
        if not len(text):
            return FieldCounts(np.empty(0, np.int64), np.empty(0, np.bool_))
        starts = np.append(0, np.flatnonzero(text == ord("\n")) + 1)
        starts = starts[starts < len(text)]
        marks = np.add.reduceat(text == ord(delimiter), starts, dtype=np.int64)
        there = np.add.reduceat(
            ~np.isin(text, np.frombuffer(b" \t\r\n", np.uint8)), starts, dtype=np.int64
        )
        return FieldCounts(marks + 1, there == 0)
