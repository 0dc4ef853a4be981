"""Text files of numbers on all ranks: each rank reads a range of bytes that begins and ends at lines."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError, ReadError
from redist.layout.mesh import Mesh
from redist.pgas.creation import Type
from redist.pgas.files.csv_fields import Dialect
from redist.pgas.files.lines import (
    FieldCounts,
    after_quote,
    count_in,
    header_from,
    line_start,
    pieces,
    too_short,
)
from redist.pgas.files.same_call import READING, same_call, says_ours
from redist.pgas.files.shares import (
    File,
    Tell,
    Wanted,
    in_order,
    look,
    must_have_data,
    other_reader,
    readable,
    teller,
)  # fmt: skip
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world

Values = NDArray[Any]


@says_ours(READING)
@same_call
def read_csv(
    file: File | Sequence[File], *, dtype: Any = np.float64, delimiter: str | None = None,
    sep: str | None = None, header: bool | int | None = None,
    usecols: int | str | Sequence[int | str] | Callable[[str], Any] | None = None,
    missing: str | Iterable[str] = (),
    comments: str | None = "#", quote: str | None = '"', decimal: str = ".",
    type: Type | None = None, mesh: Mesh | None = None, comm: Comm | None = None,
    device: Any = None, progress: bool | None = None,
) -> Array:  # fmt: skip
    """**Collective.** Read text files of numbers into a global array of rows and columns.

    ``x = pgas.read_csv("points.csv", usecols=["height", "weight"], type="{x}, {}")``. Each rank reads its
    range of bytes; then the rows are distributed evenly over the ranks. Several files are read one after
    another: a list in its order, a pattern such as ``"points-*.csv"`` sorted by name.

    ``sep`` is pandas' word for ``delimiter``; the default is a comma. ``header`` says whether the first
    line has names; by default it does if any of its fields is not a number. An integer is the number of
    lines before the header. ``usecols`` chooses one or several columns by name or number, or by a function
    of the name, such as ``lambda name: name != "city"``; :func:`~redist.pgas.column_names` lists the names.
    Empty fields, NA, null and the like become nan in floats; ``missing`` adds more such texts. Fields may be
    in quotes, and may then contain delimiters and line ends. Blank lines and lines that begin with
    ``comments`` are left out. ``decimal=","`` reads decimal commas. Files compressed by gzip, bzip2 or xz are
    decompressed by every rank, which keeps only its part. If something cannot be read, all ranks raise the
    same error with line, column and text.
    """
    kind = np.dtype(dtype)
    dialect = Dialect.of(delimiter, sep, quote, comments, decimal, missing)
    if file_kind(kind) not in "iuf":
        raise ArgumentError(f"cannot read numbers as {kind}: need integers or floats")
    comm = comm_or_world(comm)
    wanted = Wanted(comm, type, mesh, device)
    must_have_data(file if isinstance(file, (str, os.PathLike)) else "a list")
    paths = paths_of(comm, file)
    heads = look(comm, paths[0], lambda: heads_of(paths, dialect, header))
    columns = _columns(paths[0], heads[0], usecols, dialect.delimiter)
    reader = Reader(comm, dialect, columns, kind)
    tells = partial(teller, comm, "read", paths[0], progress)
    local, runs = [np.empty((0, len(columns)), kind)], []
    for path, head in zip(paths, heads, strict=True):
        rows, own_runs = reader.read(Path(path), head, tells)
        local.append(rows)
        runs += own_runs
    target = wanted.check((sum(n for _, n in runs), len(columns)), kind)
    mine = local[-1] if len(paths) == 1 else np.concatenate(local)
    return wanted.bring(in_order(mine, runs, comm), target)


def paths_of(comm: Comm, file: File | Sequence[File]) -> list[str]:
    """**Collective** for a pattern. The names of all files."""
    if not isinstance(file, (str, os.PathLike)):
        if not file:
            raise ArgumentError("cannot read no file: the list is empty")
        return [os.fspath(one) for one in file]
    name = os.fspath(file)
    if not glob.has_magic(name):
        return [name]

    def find() -> list[str]:
        found = [name] if Path(name).exists() else sorted(glob.glob(name))  # noqa: PTH207
        if not found:
            raise ReadError(f"cannot read {name!r}: no file has such a name")
        return found

    return look(comm, name, find)


@dataclass(frozen=True, slots=True)
class CsvHead:
    """The names of columns, where there are any, how many there are, and where the data begin and end."""

    names: tuple[str, ...] | None
    width: int
    lines: int
    first: int
    end: int | None
    """None if it is compressed: nobody knows."""
    text: str = ""
    """The first line."""


def _open(path: Path) -> tuple[BinaryIO, bool]:
    """**Local.** A file to be read, and whether it is compressed."""
    file = path.open("rb")
    begin = file.read(6)
    file.seek(0)
    opened: Any = None
    if begin[:2] == b"\x1f\x8b":
        opened = gzip.GzipFile(fileobj=file)
    elif begin[:3] == b"BZh":
        opened = bz2.BZ2File(file)
    elif begin == b"\xfd7zXZ\x00":
        opened = lzma.LZMAFile(file)  # noqa: SIM115
    if (other := other_reader(begin)) is not None:
        raise ReadError(f"cannot read {str(path)!r} as text: {other}")
    return (file, False) if opened is None else (opened, True)


def heads_of(paths: Sequence[str], dialect: Dialect, header: bool | int | None) -> list[CsvHead]:
    """**Local.** Look at all files, which must have the same columns."""
    header = header_from(header)
    heads = []
    for path in paths:
        with readable(path):
            heads.append(_head_of(Path(path), dialect, header))
        if (heads[-1].width, heads[-1].names) != (heads[0].width, heads[0].names):
            said = [str(one.names or f"{one.width} columns") for one in (heads[0], heads[-1])]
            raise ReadError(
                f"cannot read {path!r} behind {paths[0]!r}: that has {said[0]}, and this {said[1]}"
            )
    return heads


def _head_of(path: Path, dialect: Dialect, header: bool | int | None) -> CsvHead:
    """**Local.** Look at the first line that is not blank."""
    skip = skipped = 0 if header is None or isinstance(header, bool) else header
    lines, after = 0, 0
    file, packed = _open(path)
    with file:
        for line in file:
            text = line.decode("utf-8-sig" if not lines else "utf-8", "replace").strip()
            start, after, lines = after, after + len(line), lines + 1
            if lines == 1 and line.startswith(b"\xef\xbb\xbf"):
                start += 3
            if text and not (dialect.comments and text.startswith(dialect.comments)):
                if not skip:
                    break
                skip -= 1
        else:
            raise ReadError(
                f"cannot read {str(path)!r}: {too_short(lines, skipped - skip, skipped)}"
            )
        end = None if packed else os.fstat(file.fileno()).st_size
    fields = dialect.split(text)
    if header is None:
        header = not all(map(dialect.is_number, fields))
    if header is False:
        return CsvHead(None, len(fields), lines - 1, start, end, text)
    return CsvHead(tuple(fields), len(fields), lines, after, end, text)


def _columns(file: str, head: CsvHead, usecols: Any, delimiter: str) -> list[int]:
    """**Local.** The numbers of the columns asked for, or an error that says which there are."""
    if usecols is None:
        return list(range(head.width))
    if callable(usecols):
        return _chosen(file, head, usecols)
    found = []
    other = _other_mark(head.text.encode(), delimiter)
    for one in _listed(usecols):
        if isinstance(one, str):
            if head.names is None or one not in head.names:
                have = "its columns have no names" if head.names is None else f"it has {head.names}"
                raise ArgumentError(f"cannot read column {one!r} of {file!r}: {have}{other}")
            if head.names.count(one) > 1:
                raise ArgumentError(
                    f"cannot read column {one!r} of {file!r}: several have that name; give its number"
                )
            found.append(head.names.index(one))
        elif not -head.width <= one < head.width:
            raise ArgumentError(
                f"cannot read column {one} of {file!r}: it has {head.width}, from 0 on{other}"
            )
        else:
            found.append(int(one) % head.width)
    return found


def _chosen(file: str, head: CsvHead, wants: Callable[[str], Any]) -> list[int]:
    """**Local.** The numbers of the columns whose names a function wants."""
    if head.names is None:
        raise ArgumentError(
            f"cannot choose columns of {file!r} by a function: they have no names; give their numbers"
        )
    found = [i for i, name in enumerate(head.names) if wants(name)]
    if not found:
        raise ArgumentError(f"cannot read {file!r}: usecols wants none of {head.names}")
    return found


def _listed(usecols: Any) -> list[Any]:
    """**Local.** Columns asked for, one or several, each as a name or a number."""
    given = [usecols] if isinstance(usecols, (str, int, np.integer)) else usecols
    if isinstance(given, (Sequence, np.ndarray)):
        listed = [one if isinstance(one, str) else _number(one) for one in given]
        if None not in listed:
            return listed
    raise ArgumentTypeError(
        f"cannot read columns {usecols!r}: need a name, a number, or a list of them, or a function of a "
        "name; range(1, 5) has numbers 1 to 4"
    )


def _number(one: Any) -> int | None:
    """**Local.** An integer that is not a bool, or None."""
    return None if isinstance(one, (bool, np.bool_)) or not hasattr(one, "__index__") else int(one)


class Told(NamedTuple):
    """What other ranks must know of a share: lines and quotes in it, rows of each part, what is wrong."""

    lines: int
    quotes: int
    rows: tuple[int, ...]
    problem: str | None = None
    is_line: bool = True


Tells = Callable[[int | None], Tell]
"""What says how far a rank has come with its range of a file, once the bytes of that are known."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads files on all ranks, all in the same way."""

    comm: Comm
    dialect: Dialect
    columns: list[int]
    kind: np.dtype[Any]

    def read(self, path: Path, head: CsvHead, tells: Tells) -> tuple[Values, list[tuple[int, int]]]:
        """**Collective.** The own rows of a file; of all rows, in order, which rank has how many.

        If it cannot be read, one error on all ranks.
        """
        comm, whole = self.comm, head.end is not None
        rows, told = self._share(path, head, self._range(path, head), tells)
        said: list[Told] = gather(comm, told, TIMEOUT_S)
        opened = [n % 2 for n in accumulate((one.quotes for one in said), initial=0)]
        if whole and any(opened[1:-1]):  # a range begins within quotes: from where those end, again
            begin = self._range(path, head, opened[comm.rank] == 1)[0]
            begins = [*gather(comm, begin, TIMEOUT_S), head.end]
            rows, told = self._share(path, head, (begin, begins[comm.rank + 1]), tells)
            said = gather(comm, told, TIMEOUT_S)
        well = all(one.problem is None for one in said)
        if (opened[-1] if whole else well and opened[1]) and self.dialect.quote is not None:
            raise ReadError(
                f"cannot read {str(path)!r}: a quote {self.dialect.quote!r} has no end; quote=None takes "
                "quotes as letters"
            )
        _must_be_whole(str(path), head, said)
        turns = max(len(one.rows) for one in said)
        runs = [
            (rank, one.rows[i])
            for i in range(turns)
            for rank, one in enumerate(said)
            if i < len(one.rows)
        ]
        return rows, runs

    def _range(self, path: Path, head: CsvHead, inside: bool = False) -> tuple[int, int | None]:
        """**Local.** The own bytes, from one start of a line to another; not from within a quote."""
        if head.end is None:
            return head.first, None
        span, comm = head.end - head.first, self.comm
        cuts = (head.first + span * i // comm.size for i in (comm.rank, comm.rank + 1))
        try:
            with path.open("rb") as file:
                lo, hi = (line_start(file, at, head.first, head.end) for at in cuts)
                if inside:
                    lo = after_quote(file, lo, head.end, (self.dialect.quote or "").encode())
        except OSError:
            return head.first, head.first  # which is told when it is read
        return lo, hi

    def _share(
        self, path: Path, head: CsvHead, span: tuple[int, int | None], tells: Tells
    ) -> tuple[Values, Told]:
        """**Local.** Read the own lines, as far as they can be read."""
        got, counts = [np.empty((0, len(self.columns)), self.kind)], list[int]()
        lines = quotes = 0
        quote = None if self.dialect.quote is None else self.dialect.quote.encode()
        lo, hi = span
        tell = tells(None if hi is None else hi - lo)
        try:
            with readable(path), _open(path)[0] as file:
                for number, piece in enumerate(pieces(file, lo, hi, quote=quote)):
                    if hi is not None or number % self.comm.size == self.comm.rank:
                        found = self._rows(piece, head)
                        if isinstance(found, tuple):
                            if quote is not None and hi is not None:
                                quotes = count_in(file, lo, hi, quote)
                            return got[0], Told(lines + found[0] + 1, quotes, (0,), found[1])
                        got.append(found)
                        counts.append(len(found))
                    lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
                    quotes += 0 if quote is None else piece.count(quote)
                    tell(len(piece))
        except ReadError as problem:
            return got[0], Told(lines, quotes, (0,), str(problem), is_line=False)
        rows = np.concatenate(got)
        return rows, Told(lines, quotes, (len(rows),) if hi is not None else tuple(counts))

    def _rows(self, piece: bytes, head: CsvHead) -> Values | tuple[int, str]:
        """**Local.** The rows of a piece, or the first line that is wrong, from 0, and why."""
        dialect = self.dialect
        counts = FieldCounts.of(piece, dialect.delimiter, dialect.quote, dialect.comments)
        wrong = np.flatnonzero((counts.fields != head.width) & ~counts.is_blank)
        if len(wrong):
            start = int(counts.starts[wrong[0]])
            n = int(counts.fields[wrong[0]])
            has = f" has {n} field{'s' * (n != 1)}, the first line has {head.width}"
            if wrong[0] > 0:  # what stands before it may be wrong, too
                before = self._rows(piece[:start], head)
                if isinstance(before, tuple):
                    return before
            return piece.count(b"\n", 0, start), has + _other_mark(
                piece[start:], dialect.delimiter, head.text
            )
        text, kept = counts.filled(piece)
        if not len(kept):
            return np.empty((0, len(self.columns)), self.kind)
        rows = dialect.parse(text, self.columns, self.kind)
        if rows is None:
            return dialect.first_wrong(piece, self.columns, self.kind, head.names)
        return rows


def _other_mark(text: bytes, delimiter: str, first: str | None = None) -> str:
    """What to say of a line that other letters seem to part."""
    line = text.partition(b"\n")[0]
    most = max(b";\t|,", key=lambda mark: line.count(mark))
    if chr(most) == delimiter or line.count(most) <= line.count(delimiter.encode()):
        return ""
    if first is not None and first.count(chr(most)) == line.count(most):
        return f"; with delimiter={chr(most)!r} they agree"
    return f"; delimiter={chr(most)!r} parts it otherwise"


def _must_be_whole(file: str, head: CsvHead, said: Sequence[Told]) -> None:
    """**Local.** Raise for the first line that could not be read, if there is one, with its number."""
    before = [head.lines]
    if head.end is not None:
        before += [head.lines + n for n in accumulate(one.lines for one in said)]
    else:
        before *= len(said)  # every rank has seen all lines
    bad = [rank for rank, one in enumerate(said) if one.problem is not None]
    for rank in bad:
        if not said[rank].is_line:
            raise ReadError(f"{said[rank].problem} (rank {rank})")
    if bad:
        first = min(bad, key=lambda rank: before[rank] + said[rank].lines)
        line = before[first] + said[first].lines
        raise ReadError(f"cannot read {file!r}: line {line}{said[first].problem}")
