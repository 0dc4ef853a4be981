"""Text files of numbers from all ranks: each formats its rows of a block, and writes them at their place."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.files.blocks import Columns, Table, width_of, within
from redist.pgas.files.lines import one_delimiter
from redist.pgas.files.same_call import WRITING, same_call, says_ours
from redist.pgas.files.shares import File, teller
from redist.pgas.kinds import file_kind
from redist.pgas.tiles.layouts import line_mesh
from redist.runtime.files.new_file import new_file

Values = NDArray[Any]
Formats = str | Sequence[str] | Mapping[str, str] | None

FIELD_BYTES = 256
"""What a number takes while it becomes text: itself, Python's, the text, and texts joined."""


@says_ours(WRITING)
@same_call
def write_csv(
    file: File, a: Columns, *, columns: Sequence[str] | None = None,
    header: bool | str | None = None, delimiter: str | None = None, sep: str | None = None,
    fmt: Formats = None, comments: str = "",
    limit_bytes: int | str | None = None, progress: bool | None = None,
) -> None:  # fmt: skip
    """**Collective.** Write global arrays to a text file, as columns side by side.

    ``pgas.write_csv("points.csv", {"x": x, "y": y, "label": labels})``. Instead of a dict, pass one array of
    rows and columns, or a list of arrays, with their names, if any, as ``columns``. A matrix in a dict gives
    columns ``x_0``, ``x_1`` and so on. Names, if there are any, are written in the first line unless
    ``header=False``. ``header="x,y"`` names the columns as in ``numpy.savetxt``, but nothing is written
    before the first name: ``comments`` must be empty. Floats are written with the fewest digits that read
    back to the same bits, bools as 0 and 1; ``fmt`` is a format such as ``"%.3f"`` for all columns, a list of
    formats for each (or ``"%d,%.3f"``), or a dict by name. ``sep`` is pandas' word for ``delimiter``. If the
    file name ends in ``.gz``, the file is compressed.

    Rows are distributed over all ranks a block at a time; each rank formats and writes its own, within
    ``limit_bytes`` per rank, by default 64 MiB. Arrays on GPUs are copied to memory first. Errors are as in
    :func:`write_npy`.
    """
    mark = one_delimiter(delimiter, sep)
    if comments:
        raise ArgumentError(
            f"cannot write {os.fspath(file)!r} with comments={comments!r}: nothing stands before the "
            'names; write comments="", or leave it out'
        )
    named = _names_in(os.fspath(file), header, mark)
    table = Table.of(file, a, named if columns is None and not isinstance(a, Mapping) else columns)
    if named is not None and named != list(table.names or ()):
        raise ArgumentError(
            f"cannot write {os.fspath(file)!r} with header={header!r}: its columns are named "
            f"{list(table.names or ())}; leave header= out"
        )
    formats = _formats(os.fspath(file), table, fmt, mark)
    names = table.names if header is None or header else None
    if header and names is None:
        raise ArgumentError(
            f"cannot write a header to {os.fspath(file)!r}: columns have no names; give columns="
        )
    limit = within(table.arrays[0], limit_bytes)
    comm = table.comm
    tell = teller(comm, "write", file, progress, table.rows * table.row_bytes)
    packed = os.fspath(file).endswith(".gz")
    rows = max(1, limit // 2 // (FIELD_BYTES * max(1, table.width))) * comm.size
    with new_file(comm, file) as out:
        text = (
            b"" if names is None else (mark.join(_quoted(n, mark) for n in names) + "\n").encode()
        )
        text = text if comm.rank == 0 else b""
        end = 0
        blocks = table.blocks(rows, line_mesh(comm.size), limit) if table.rows else (None,)
        for block in blocks:
            with out.own_part():
                text += b"" if block is None else _lines(block, formats, mark)
                text = gzip.compress(text, 6, mtime=0) if packed and text else text
            sizes = out.gather(len(text))
            out.write(text, end + sum(sizes[: comm.rank]))
            end, text = end + sum(sizes), b""
            tell(rows * table.row_bytes)


def _names_in(path: str, header: Any, mark: str) -> list[str] | None:
    """The names that a header of text has; None if there is no such text.

    >>> _names_in("a.csv", "x, y", ","), _names_in("a.csv", True, ","), _names_in("a.csv", "", ",")
    (['x', 'y'], None, None)
    """
    if isinstance(header, str):
        if "\n" in header:
            raise ArgumentError(
                f"cannot write {path!r} with header={header!r}: the names stand in one line"
            )
        return [name.strip() for name in header.split(mark)] if header else None
    if header is not None and not isinstance(header, (bool, np.bool_)):
        raise ArgumentTypeError(
            f"cannot write {path!r} with header={header!r}: need True, False or text such as "
            f"'x{mark}y'; columns= takes a list of names"
        )
    return None


def _formats(
    path: str, table: Table, fmt: Formats, mark: str
) -> list[Callable[[Values], Iterable[str]]]:
    """How each column becomes text, or an error that says which format is wrong."""
    kinds = [one.dtype for one in table.arrays for _ in range(width_of(one))]
    if isinstance(fmt, Mapping):
        strange = [name for name in fmt if name not in (table.names or ())]
        if strange:
            raise ArgumentError(
                f"cannot format column {strange[0]!r} of {path!r}: it has {table.names or 'no names'}"
            )
        given = [fmt.get(name) for name in table.names or ()]
    elif isinstance(fmt, str) and len(kinds) > 1 and fmt.count(mark) == len(kinds) - 1:
        given = list(fmt.split(mark))
    elif isinstance(fmt, str) or fmt is None:
        given = [fmt] * len(kinds)
    else:
        given = list(fmt)
    if len(given) != len(kinds):
        raise ArgumentError(
            f"cannot format {len(kinds)} columns of {path!r} by {len(given)} formats: give one, or as many"
        )
    for kind, one in zip(kinds, given, strict=True):
        try:
            text = "" if one is None else one % np.ones(1, kind).tolist()[0]
        except (TypeError, ValueError) as problem:
            raise ArgumentError(
                f"cannot format {kind} by {one!r}: {problem}; write for example '%.3f' or '%d'"
            ) from None
        if one is not None and text == one:
            raise ArgumentError(f"cannot format {kind} by {one!r}: it has no place for a number")
    return [_format(kind, one) for kind, one in zip(kinds, given, strict=True)]


def _format(kind: np.dtype[Any], fmt: str | None) -> Callable[[Values], Iterable[str]]:
    """What makes texts of a column.

    >>> [*_format(np.dtype("f4"), None)(np.array([0.1, 2], "f4"))]
    ['0.1', '2.0']
    """
    if fmt is not None:
        return lambda values: map(fmt.__mod__, values.tolist())
    if file_kind(kind) == "b":
        return lambda values: map(repr, values.view(np.uint8).tolist())
    if file_kind(kind) == "f" and kind.itemsize != 8:
        return lambda values: values.astype("U").tolist()
    return lambda values: map(repr, values.tolist())


def _lines(
    columns: list[Values], formats: Sequence[Callable[[Values], Iterable[str]]], mark: str
) -> bytes:
    """**Local.** Rows as text, each with its line end."""
    texts = [make(values) for make, values in zip(formats, columns, strict=True)]
    if not len(columns[0]):
        return b""
    return ("\n".join(map(mark.join, zip(*texts, strict=True))) + "\n").encode()


def _quoted(name: str, mark: str) -> str:
    """A name as a field.

    >>> _quoted("a", ","), _quoted('5" pipe, long', ",")
    ('a', '"5"" pipe, long"')
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"' if any(letter in name for letter in (mark, '"', "\n", "\r")) else name
