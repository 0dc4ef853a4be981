"""Text files of numbers on all ranks: each reads a range of bytes, from one start of a line to another."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ReadError
from redist.layout.mesh import Mesh
from redist.pgas.creation import Type
from redist.pgas.files.lines import FieldCounts, line_start, pieces
from redist.pgas.files.shares import File, Wanted, even_out, look, must_have_data, readable
from redist.pgas.global_array import Array
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world

Values = NDArray[Any]


def read_csv(
    file: File, *, dtype: Any = np.float64, delimiter: str = ",", header: bool | None = None,
    usecols: Sequence[int | str] | None = None, type: Type | None = None,
    mesh: Mesh | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read a text file of numbers into a global array of rows and columns.

    ``x = pgas.read_csv("points.csv", usecols=["height", "weight"], type="{x}, {}")``. Each rank reads its
    range of bytes; then rows are evened out over ranks. ``header`` says whether the first line has
    names; by default it does if a field of it is no number. Blank lines are left out; quotes are not
    understood. A line with more or fewer fields, or with what is no number, is one error on all ranks,
    with its number.
    """
    must_have_data(file)
    kind = np.dtype(dtype)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in "\r\n":
        raise ArgumentError(f"cannot part fields by {delimiter!r}: need one letter of ASCII")
    if kind.kind not in "iuf":
        raise ArgumentError(f"cannot read numbers as {kind}: need integers or floats")
    comm = comm_or_world(comm)
    wanted = Wanted(comm, type, mesh, device)
    head = look(comm, file, lambda: _head_of(Path(file), delimiter, header))
    columns = _columns(os.fspath(file), head, usecols)
    share = CsvShare.read(Path(file), head, columns, delimiter, kind, comm)
    said = gather(comm, share.told, TIMEOUT_S)
    _must_be_whole(os.fspath(file), head, said)
    counts = [rows for _, rows, _, _ in said]
    target = wanted.check((sum(counts), len(columns)), kind)
    return wanted.bring(even_out(share.rows, counts, comm), target)


@dataclass(frozen=True, slots=True)
class CsvHead:
    """The names of columns, where there are any, how many there are, and where the data begin and end."""

    names: tuple[str, ...] | None
    width: int
    lines: int
    first: int
    end: int


def _head_of(path: Path, delimiter: str, header: bool | None) -> CsvHead:
    """**Local.** Look at the first line that is not blank."""
    lines = 0
    with path.open("rb") as file:
        for line in file:
            text = line.decode("utf-8-sig" if not lines else "utf-8", "replace").strip()
            start, lines = file.tell() - len(line), lines + 1
            if text:
                break
        else:
            raise ReadError(f"cannot read {str(path)!r}: it is empty")
        after, end = file.tell(), os.fstat(file.fileno()).st_size
    fields = [field.strip().strip('"') for field in text.split(delimiter)]
    if header is None:
        header = not all(map(_is_number, fields))
    if not header:
        return CsvHead(None, len(fields), lines - 1, start, end)
    return CsvHead(tuple(fields), len(fields), lines, after, end)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _columns(file: str, head: CsvHead, usecols: Sequence[int | str] | None) -> list[int]:
    """**Local.** The numbers of the columns asked for, or an error that says which there are."""
    if usecols is None:
        return list(range(head.width))
    found = []
    for one in usecols:
        if isinstance(one, str):
            if head.names is None or one not in head.names:
                have = "its columns have no names" if head.names is None else f"it has {head.names}"
                raise ArgumentError(f"cannot read column {one!r} of {file!r}: {have}")
            found.append(head.names.index(one))
        elif not -head.width <= one < head.width:
            raise ArgumentError(f"cannot read column {one} of {file!r}: it has {head.width}")
        else:
            found.append(int(one) % head.width)
    return found


@dataclass(frozen=True, slots=True)
class CsvShare:
    """The rows of one rank, how many lines it saw, and what was wrong with the last, if it was."""

    rows: Values
    lines: int
    problem: str | None = None
    is_line: bool = True

    @property
    def told(self) -> tuple[int, int, str | None, bool]:
        """What other ranks must know."""
        return self.lines, len(self.rows), self.problem, self.is_line

    @staticmethod
    def read(
        path: Path,
        head: CsvHead,
        columns: list[int],
        delimiter: str,
        kind: np.dtype[Any],
        comm: Comm,
    ) -> CsvShare:
        """**Local.** Read the own lines, as far as they can be read."""
        got, lines = [np.empty((0, len(columns)), kind)], 0
        span = head.end - head.first
        begin, stop = (head.first + span * i // comm.size for i in (comm.rank, comm.rank + 1))
        try:
            with readable(path), path.open("rb") as file:
                lo, hi = (line_start(file, at, head.first, head.end) for at in (begin, stop))
                for piece in pieces(file, lo, hi):
                    counts = FieldCounts.of(piece, delimiter)
                    wrong = np.flatnonzero((counts.fields != head.width) & ~counts.is_blank)
                    if len(wrong):
                        has = f"has {counts.fields[wrong[0]]} fields, and not {head.width}"
                        return CsvShare(got[0], lines + int(wrong[0]) + 1, has)
                    if not counts.is_blank.all():
                        try:
                            text = _filled(piece) if counts.is_blank.any() else piece
                            got.append(_parse(text, columns, delimiter, kind))
                        except ValueError:
                            at, why = _first_wrong(piece, columns, delimiter, kind)
                            return CsvShare(got[0], lines + at + 1, why)
                    lines += len(counts.fields)
        except ReadError as problem:
            return CsvShare(got[0], lines, str(problem), is_line=False)
        return CsvShare(np.concatenate(got), lines)


def _filled(piece: bytes) -> bytes:
    """**Local.** The lines of a piece in which there is something."""
    return b"\n".join(line for line in piece.split(b"\n") if line.strip())


def _parse(piece: bytes, columns: list[int], delimiter: str, kind: np.dtype[Any]) -> Values:
    text = io.BytesIO(piece)
    options: dict[str, Any] = {"comments": None, "encoding": "utf-8", "ndmin": 2}
    return np.loadtxt(text, kind, delimiter=delimiter, usecols=columns, **options)


def _first_wrong(
    piece: bytes, columns: list[int], delimiter: str, kind: np.dtype[Any]
) -> tuple[int, str]:
    """**Local.** The number of the first line of a piece that cannot be read, and why."""
    for number, line in enumerate(piece.split(b"\n")):
        if line.strip():
            try:
                _parse(line, columns, delimiter, kind)
            except ValueError as problem:
                why = str(problem).partition(" at row")[0]
                return number, f"cannot be read: {why}"
    return 0, "cannot be read together with those that follow"


def _must_be_whole(
    file: str, head: CsvHead, said: Sequence[tuple[int, int, str | None, bool]]
) -> None:
    """**Local.** Raise for the first line that could not be read, if there is one, with its number."""
    before = head.lines
    for rank, (lines, _, problem, is_line) in enumerate(said):
        if problem is not None:
            if not is_line:
                raise ReadError(f"{problem} (rank {rank})")
            raise ReadError(f"cannot read {file!r}: line {before + lines} {problem}")
        before += lines
