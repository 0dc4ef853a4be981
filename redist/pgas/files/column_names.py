"""The names of the columns of a file, the same on all ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from redist.errors import ReadError
from redist.pgas.files import csv, parquet
from redist.pgas.files.csv_fields import Dialect
from redist.pgas.files.same_call import READING, same_call, says_ours
from redist.pgas.files.shares import File, look, must_have_data
from redist.runtime.ranks.world import Comm, comm_or_world


@says_ours(READING)
@same_call
def column_names(
    file: File | Sequence[File], *, delimiter: str | None = None, sep: str | None = None,
    header: bool | int | None = None, missing: str | Iterable[str] = (),
    comments: str | None = "#", quote: str | None = '"', decimal: str = ".",
    comm: Comm | None = None,
) -> list[str]:  # fmt: skip
    """**Collective.** The column names of a CSV or Parquet file, in order, on every rank.

    ``pgas.read_csv(file, usecols=[n for n in pgas.column_names(file) if n != "city"])``. The first bytes
    say whether the file is Parquet; for text files, the options are those of :func:`~redist.pgas.read_csv`.
    If there are several files, all must have the same column names. For a text file without names, the error
    says how many columns it has.
    """
    dialect = Dialect.of(delimiter, sep, quote, comments, decimal, missing)
    comm = comm_or_world(comm)
    must_have_data(file if isinstance(file, (str, os.PathLike)) else "a list")
    paths = csv.paths_of(comm, file)
    return look(comm, paths[0], lambda: _names(paths, dialect, header))


def _names(paths: Sequence[str], dialect: Dialect, header: bool | int | None) -> list[str]:
    """**Local.** The names that the first file has; all must have the same."""
    with Path(paths[0]).open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        return list(parquet.head_of(paths[0]).columns)
    head = csv.heads_of(paths, dialect, header)[0]
    if head.names is None:
        raise ReadError(
            f"cannot name the columns of {paths[0]!r}: its first line has numbers; choose its "
            f"{head.width} columns by number, as in usecols=[0]"
        )
    return list(head.names)
