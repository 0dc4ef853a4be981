"""Parquet files on all ranks: each reads some of the row groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ReadError
from redist.layout.mesh import Mesh
from redist.pgas.creation import Type
from redist.pgas.files.shares import File, Wanted, even_out, look, must_have_data, together
from redist.pgas.global_array import Array
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.extras import install_line

Values = NDArray[Any]


class ParquetHead(NamedTuple):
    """Rows of each group, and names and dtypes of the columns; None for what are not numbers."""

    groups: tuple[int, ...]
    columns: dict[str, str | None]


def read_parquet(
    file: File, *, columns: Sequence[str] | None = None, dtype: Any = None,
    type: Type | None = None, mesh: Mesh | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read columns of a Parquet file into a global array of rows and columns.

    ``x = pgas.read_parquet("points.parquet", columns=["height", "weight"])``. Needs pyarrow, the extra
    ``parquet``. Each rank reads whole row groups, every one is read once; then rows are evened out over
    ranks. The dtype is one that holds all columns, if none is given. Values that are missing become
    ``nan``, in floats.
    """
    must_have_data(file)
    comm = comm_or_world(comm)
    wanted = Wanted(comm, type, mesh, device)
    head = look(comm, file, lambda: _head_of(file))
    names = _chosen(os.fspath(file), head, columns)
    kinds = [np.dtype(str(head.columns[name])) for name in names]
    kind = np.result_type(*kinds) if dtype is None else np.dtype(dtype)
    target = wanted.check((sum(head.groups), len(names)), kind)
    owners = _owners(head.groups, comm.size)
    counts = np.bincount(owners, weights=head.groups, minlength=comm.size).astype(int).tolist()
    local = np.empty((counts[comm.rank], len(names)), kind)
    with together(comm, file):
        _fill(local, file, np.flatnonzero(owners == comm.rank).tolist(), names)
    return wanted.bring(even_out(local, counts, comm), target)


def _parquet() -> Any:
    """**Local.** pyarrow's module, or an error that says what to install."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ReadError(
            f"cannot read Parquet: pyarrow is not installed; {install_line('parquet')}"
        ) from None
    return pyarrow.parquet


def _head_of(file: File) -> ParquetHead:
    """**Local.** Look at what the end of the file says of it."""
    parquet = _parquet()
    try:
        opened = parquet.ParquetFile(os.fspath(file))
    except ValueError as problem:  # pyarrow's own errors derive from it
        raise ReadError(f"cannot read {os.fspath(file)!r} as Parquet: {problem}") from None
    with opened:
        data, schema = opened.metadata, opened.schema_arrow
        groups = tuple(data.row_group(i).num_rows for i in range(data.num_row_groups))
        columns = {one.name: _dtype_of(one.type) for one in schema}
    return ParquetHead(groups, columns)


def _dtype_of(kind: Any) -> str | None:
    """The name of NumPy's dtype for a type of numbers."""
    name = {"float": "float32", "double": "float64", "halffloat": "float16"}.get(
        str(kind), str(kind)
    )
    try:
        return name if np.dtype(name).kind in "iuf" else None
    except TypeError:
        return None


def _chosen(file: str, head: ParquetHead, columns: Sequence[str] | None) -> list[str]:
    """**Local.** The names of the columns asked for, which must be there and be of numbers."""
    names = list(head.columns) if columns is None else list(columns)
    for name in names:
        if name not in head.columns:
            raise ArgumentError(
                f"cannot read column {name!r} of {file!r}: it has {(*head.columns,)}"
            )
        if head.columns[name] is None:
            raise ArgumentError(f"cannot read column {name!r} of {file!r}: it is not of numbers")
    if not names:
        raise ArgumentError(f"cannot read {file!r}: no column is asked for")
    return names


def _owners(groups: Sequence[int], size: int) -> NDArray[np.int64]:
    """**Local.** Who reads each group: the rank that would have the row in its middle.

    >>> _owners([10, 10, 10, 30], 2).tolist()
    [0, 0, 0, 1]
    """
    counts = np.asarray(groups, np.int64)
    middle = np.cumsum(counts) - counts + counts // 2
    return np.minimum(middle * size // max(1, int(counts.sum())), size - 1)


def _fill(local: Values, file: File, groups: list[int], names: list[str]) -> None:
    """**Local.** Write groups below each other, a column at a time."""
    if not groups:
        return
    at = 0
    with _parquet().ParquetFile(os.fspath(file)) as opened:
        for group in groups:
            table = opened.read_row_group(group, columns=names, use_threads=False)
            for i, name in enumerate(names):
                column = table.column(name)
                if column.null_count and local.dtype.kind != "f":
                    raise ReadError(
                        f"cannot read column {name!r} of {os.fspath(file)!r} as {local.dtype}: values are "
                        "missing; dtype=float reads them as nan"
                    )
                local[at : at + len(table), i] = column.to_numpy()
            at += len(table)
