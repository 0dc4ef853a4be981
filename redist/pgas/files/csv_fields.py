"""Fields of a text as numbers: quotes, missing values, comments, and what is wrong with the first bad one."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.pgas.files.lines import one_delimiter
from redist.pgas.kinds import file_kind

Values = NDArray[Any]

MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a",
    "nan", "null",
)  # fmt: skip
"""Texts that stand for no value, as pandas has them."""


class Wrong(NamedTuple):
    """What cannot be read: the number of its line, from 0, and what to say after it."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """How numbers are written in a text."""

    delimiter: str = ","
    quote: str | None = '"'
    comments: str | None = "#"
    decimal: str = "."
    missing: frozenset[str] = frozenset(MISSING)

    @staticmethod
    def of(
        delimiter: str | None, sep: str | None, quote: str | None, comments: str | None,
        decimal: str, missing: str | Iterable[str],
    ) -> Dialect:  # fmt: skip
        """**Local.** What a user asks for, or why it makes no sense."""
        mark = one_delimiter(delimiter, sep)
        for name, letter in (("quote", quote), ("comments", comments)):
            if letter is not None and (len(letter) != 1 or not letter.isascii() or letter == mark):
                raise ArgumentError(
                    f"cannot use {name}={letter!r}: need one letter of ASCII, or None"
                )
        if decimal not in (".", ","):
            raise ArgumentError(f"cannot use decimal={decimal!r}: need '.' or ','")
        if decimal == mark:
            raise ArgumentError(
                f"cannot use decimal={decimal!r}: it needs another delimiter: sep=';', for example"
            )
        more = (missing,) if isinstance(missing, str) else tuple(missing)
        return Dialect(mark, quote, comments, decimal, frozenset((*MISSING, *more)))

    def split(self, line: str) -> list[str]:
        """The fields of one line.

        >>> Dialect().split('1, "a, b" ,NA')
        ['1', 'a, b', 'NA']
        """
        return [field.strip() for field in next(self._reader([line]), [""])]

    def _reader(self, lines: Iterable[str]) -> Any:
        how: Any = csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL
        return csv.reader(
            lines, delimiter=self.delimiter, quotechar=self.quote or '"', quoting=how, skipinitialspace=True
        )  # fmt: skip

    def is_number(self, text: str) -> bool:
        """Whether a field is a number, or stands for none.

        >>> Dialect().is_number("1e3"), Dialect().is_number("NA"), Dialect().is_number("x")
        (True, True, False)
        """
        return text in self.missing or _fits(self._plain(text), np.dtype(float))

    def _plain(self, text: str) -> str:
        return text if self.decimal == "." else text.replace(",", ".")

    def parse(self, piece: bytes, columns: Sequence[int], kind: np.dtype[Any]) -> Values | None:
        """**Local.** Numbers of whole lines, all with the same number of fields, none of them blank."""
        try:
            filled = self._filled(piece) if file_kind(kind) == "f" else piece
            plain = filled if self.decimal == "." else filled.replace(b",", b".")
            return _load(plain, columns, self.delimiter, self.quote, kind)
        except ValueError:
            pass
        rows = self._chosen(piece, columns)
        if file_kind(kind) == "f":
            rows = (["nan" if text in self.missing else text for text in row] for row in rows)
        text = "\n".join(_MARK.join(map(self._plain, row)) for row in rows)
        try:
            if len(text.split("\n")) == sum(1 for _ in self._chosen(piece, columns)):
                return _load(text.encode("latin-1"), range(len(columns)), _MARK, None, kind)
        except ValueError:
            pass
        return None

    def _filled(self, piece: bytes) -> bytes:
        """**Local.** Lines with nan in every empty field; as they are if quotes or odd line ends are there.

        >>> Dialect()._filled(b",1,,\\r\\n2,3,4,\\n")
        b'nan,1,nan,nan\\r\\n2,3,4,nan\\n'
        """
        mark = self.delimiter.encode()
        if not piece or mark == b" " or (self.quote is not None and self.quote.encode() in piece):
            return piece
        if piece.count(b"\r") != piece.count(b"\r\n"):
            return piece
        letters = np.frombuffer(b"\n" + piece + b"\n", np.uint8)
        is_mark = letters == ord(mark)
        is_end = (letters == ord("\n")) | (letters == ord("\r"))
        gaps = (is_mark[:-1] & (is_mark | is_end)[1:]) | (is_end[:-1] & is_mark[1:])
        cuts = np.flatnonzero(gaps).tolist()
        if not cuts:
            return piece
        return b"nan".join(piece[lo:hi] for lo, hi in pairwise((0, *cuts, len(piece))))

    def _records(self, piece: bytes) -> Iterator[tuple[int, list[str]]]:
        """The line at which each record begins, and its fields."""
        reader = self._reader(io.StringIO(piece.decode("latin-1"), newline=""))
        before = 0
        for row in reader:
            yield before, row
            before = reader.line_num

    def _chosen(self, piece: bytes, columns: Sequence[int]) -> Iterator[list[str]]:
        for _, row in self._records(piece):
            if row:
                yield [row[i].strip() for i in columns]

    def first_wrong(
        self, piece: bytes, columns: Sequence[int], kind: np.dtype[Any], names: Sequence[str] | None
    ) -> Wrong:
        """**Local.** The first field that is none of a dtype, in whole lines that may be blank."""
        for line, row in self._records(piece):
            if not "".join(row).strip() and len(row) < 2:
                continue
            if self.comments is not None and row[0].startswith(self.comments):
                continue
            for i in columns:
                text = row[i].strip()
                gap = text in self.missing
                if (gap and file_kind(kind) == "f") or (not gap and _fits(self._plain(text), kind)):
                    continue
                shown = text.encode("latin-1").decode("utf-8", "replace")
                name = "" if names is None else f" ({names[i]!r})"
                why = self._why(shown, gap, kind, self._text_columns(piece, columns, i, names))
                return Wrong(line, f", column {i + 1}{name}: {why}")
        return Wrong(0, " cannot be read together with those that follow")

    def _text_columns(
        self, piece: bytes, columns: Sequence[int], at: int, names: Sequence[str] | None
    ) -> str:
        """**Local.** How to leave out columns of text, if that at ``at`` is one; else nothing."""
        rows = islice((row for _, row in self._records(piece) if len(row) > max(columns)), SAMPLE)
        texts = [[row[i].strip() for i in columns] for row in rows]
        is_text = [
            2 * sum(not self.is_number(one) for one in column) > len(column)
            for column in zip(*texts, strict=True)
        ]
        if not is_text or not is_text[columns.index(at)]:
            return ""
        unique = names is not None and len(set(names)) == len(names)
        shown: list[Any] = [names[i] if names is not None and unique else i for i in columns]
        left = [one for one, text in zip(shown, is_text, strict=True) if not text]
        out = [repr(one) for one, text in zip(shown, is_text, strict=True) if text]
        more = f" and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
        what = "the column" if len(out) == 1 else f"the {len(out)} columns"
        of_text = f"{what} of text: {', '.join(out[:SHOWN])}{more}"
        if not left:
            return f"usecols= can leave out {of_text}"
        width = len(next(self._records(piece))[1]) if names is None else len(names)
        all_read = set(columns) == set(range(width))
        return f"{usecols_without(left, out, unique, width if all_read else None)} leaves out {of_text}"

    def _why(self, text: str, gap: bool, kind: np.dtype[Any], of_text: str) -> str:
        if gap:
            return (
                f"{text!r} is missing, and {kind} has no nan; dtype=float reads it, and usecols= leaves the "
                "column out"
            )
        if file_kind(kind) != "f" and _fits(self._plain(text), np.dtype(float)):
            return f"{text!r} is no {kind}; dtype=float reads it"
        other = next((mark for mark in ";\t|," if mark in text and mark != self.delimiter), None)
        if re.fullmatch(r"[+-]?\d+,\d+", text) and self.decimal == ".":
            return f"{text!r} is not a number; decimal=',' reads it"
        if other is not None:
            return f"{text!r} is not a number; delimiter={other!r} parts it"
        if of_text:
            return f"{text!r} is not a number; {of_text}"
        return f"{text!r} is not a number; usecols= leaves the column out, missing=[{text!r}] reads it as nan"


def usecols_without(
    left: Sequence[Any], out: Sequence[str], by_name: bool, width: int | None
) -> str:
    """What to write to read some columns and not others, as printed; shorter if ``width`` columns are all.

    >>> usecols_without(["a", "b"], ["'city'"], True, 3)
    "usecols=['a', 'b']"
    >>> usecols_without(list("abcdefgh"), ["'city'"], True, 9)
    "usecols=lambda name: name != 'city'"
    >>> usecols_without(range(1, 9), ["0"], False, 9)
    'usecols=[i for i in range(9) if i not in (0,)]'
    """
    if len(left) <= SHOWN or width is None:
        return f"usecols={list(left)}"
    if not by_name:
        comma = "," if len(out) == 1 else ""
        return f"usecols=[i for i in range({width}) if i not in ({', '.join(out)}{comma})]"
    if len(out) == 1:
        return f"usecols=lambda name: name != {out[0]}"
    return f"usecols=lambda name: name not in [{', '.join(out)}]"


_MARK = "\x1f"
SAMPLE = 100
"""Lines that say whether a column is of text."""
SHOWN = 6
"""Columns that an error names."""


def _load(
    text: bytes, columns: Sequence[int], mark: str, quote: str | None, kind: np.dtype[Any]
) -> Values:
    options: dict[str, Any] = {"comments": None, "encoding": "latin-1", "ndmin": 2}
    return np.loadtxt(
        io.BytesIO(text), kind, delimiter=mark, quotechar=quote, usecols=[*columns], **options
    )


def _fits(text: str, kind: np.dtype[Any]) -> bool:
    """Whether a text is a number of a dtype, as ``loadtxt`` reads it."""
    try:
        if file_kind(kind) == "f":
            float(text)
        else:
            low, high = np.iinfo(kind).min, np.iinfo(kind).max
            return "_" not in text and low <= int(text) <= high
    except ValueError:
        return False
    return "_" not in text
