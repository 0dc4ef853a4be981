"""Lines of a text by ranges of bytes: which are a rank's, and how many fields each has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ReadError

PIECE_BYTES = 2**22
"""This much of a file is looked at at a time; a longer line makes a longer piece."""
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


def too_short(lines: int, filled: int, skipped: int) -> str:
    """Why a text has no line to begin with.

    >>> too_short(0, 0, 9), too_short(3, 3, 9)
    ('it is empty', 'it has 3 lines, and header=9 skips 9; give a smaller number')
    """
    if not filled:
        return "it is empty" if not lines else "it has blank lines and comments alone"
    n = f"{filled} line{'s' * (filled != 1)}"
    n += "" if filled == lines else " beside blank ones and comments"
    return f"it has {n}, and header={skipped} skips {skipped}; give a smaller number"


def header_from(given: Any) -> bool | int | None:
    """**Local.** What was given for ``header``, as Python's, or an error."""
    if given is None:
        return None
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    if not isinstance(given, (int, np.integer)) or given < 0:
        raise ArgumentError(f"cannot use header={given!r}: need True, False or a number of lines")
    return int(given)


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


def after_quote(file: BinaryIO, at: int, end: int, quote: bytes) -> int:
    """**Local.** Where the first line starts behind a quote that is open at byte ``at``.

    >>> import io
    >>> after_quote(io.BytesIO(b'b\\n c",1\\n2,3'), 0, 11, b'"')
    8
    """
    file.seek(at)
    inside = 1
    while at < end:
        found = file.read(SEARCH_BYTES)
        if not found:
            break
        ends = _line_ends(found, quote, inside)
        if len(ends):
            return min(end, at + int(ends[0]) + 1)
        inside ^= found.count(quote) & 1
        at += len(found)
    return end


def count_in(file: BinaryIO, lo: int, hi: int, letter: bytes) -> int:
    """**Local.** How often a letter stands between two bytes."""
    file.seek(lo)
    n = 0
    while lo < hi:
        found = file.read(min(PIECE_BYTES, hi - lo))
        if not found:
            break
        n += found.count(letter)
        lo += len(found)
    return n


_IS_SEEN = ~np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
"""By letter, whether it is something to be seen."""


def _line_ends(text: bytes, quote: bytes | None, inside: int = 0) -> NDArray[np.int64]:
    """Where lines end that do not end within quotes."""
    letters = np.frombuffer(text, np.uint8)
    ends = letters == ord("\n")
    if quote is not None and quote in text:
        ends = ends & ~_quoted(letters, quote, inside)
    return np.flatnonzero(ends)


def _quoted(letters: NDArray[np.uint8], quote: bytes, inside: int = 0) -> NDArray[np.bool_]:
    return (np.cumsum(letters == ord(quote)) + inside) % 2 == 1


def pieces(
    file: BinaryIO,
    lo: int,
    hi: int | None,
    most_bytes: int = PIECE_BYTES,
    quote: bytes | None = None,
) -> Iterator[bytes]:
    """**Local.** The bytes between two starts of lines, in pieces of whole lines; None is the end."""
    file.seek(lo)
    rest = b""
    while hi is None or lo < hi:
        got = file.read(most_bytes if hi is None else min(most_bytes, hi - lo))
        if not got and hi is not None:
            raise ReadError(f"cannot read {file.name!r}: it became shorter")
        lo += len(got)
        text = rest + got
        if not got or (hi is not None and lo >= hi):
            if text:
                yield text
            return
        if quote is not None and quote in text:
            ends = _line_ends(text, quote)
            cut = int(ends[-1]) + 1 if len(ends) else 0
        else:
            cut = text.rfind(b"\n") + 1
        if cut:
            yield text[:cut]
        rest = text[cut:]


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """Of each line of a piece, where it starts, how many fields it has, and whether it is to be left out."""

    starts: NDArray[np.int64]
    fields: NDArray[np.int64]
    is_blank: NDArray[np.bool_]

    @staticmethod
    def of(
        piece: bytes, delimiter: str, quote: str | None = None, comments: str | None = None
    ) -> FieldCounts:
        """**Local.** Count them; line ends and delimiters within quotes are letters, comments are blank.

        >>> counts = FieldCounts.of(b"1,2,3\\r\\n\\r\\n4,5\\n#\\n", ",", '"', "#")
        >>> counts.fields.tolist(), counts.is_blank.tolist()
        ([3, 1, 2, 1], [False, True, False, True])
        >>> FieldCounts.of(b'1,"a,\\nb"\\n', ",", '"').fields.tolist()
        [2]
        """
        text = np.frombuffer(piece, np.uint8)
        if not len(text):
            return FieldCounts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))
        marks, ends = text == ord(delimiter), text == ord("\n")
        if quote is not None and quote.encode() in piece:
            free = ~_quoted(text, quote.encode())
            marks, ends = marks & free, ends & free
        starts = np.append(0, np.flatnonzero(ends) + 1)
        starts = starts[starts < len(text)]
        there = np.add.reduceat(_IS_SEEN[text], starts, dtype=np.int64)
        blank = there == 0
        if comments is not None and comments.encode() in piece:
            blank = blank | (text[starts] == ord(comments))
        return FieldCounts(starts, np.add.reduceat(marks, starts, dtype=np.int64) + 1, blank)

    def filled(self, piece: bytes) -> tuple[bytes, NDArray[np.int64]]:
        """**Local.** The lines of a piece that are not left out, and the number of each among all."""
        if not self.is_blank.any():
            return piece, np.arange(len(self.starts))
        ends = np.append(self.starts[1:], len(piece)).tolist()
        kept = np.flatnonzero(~self.is_blank)
        starts = self.starts.tolist()
        return b"".join(piece[starts[i] : ends[i]] for i in kept.tolist()), kept
