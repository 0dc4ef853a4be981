"""Parquet files: each rank reads some of the row groups; rank 0 writes them, in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ReadError, RedistError, WriteError
from redist.layout.mesh import Mesh
from redist.pgas.creation import Type
from redist.pgas.files.blocks import Columns, Table, width_of, within
from redist.pgas.files.heads import need
from redist.pgas.files.same_call import READING_PARQUET, WRITING, same_call, says_ours
from redist.pgas.files.shares import (
    File,
    Wanted,
    even_out,
    look,
    must_have_data,
    teller,
    together,
)  # fmt: skip
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind, promote
from redist.runtime.files.new_file import NewFile, new_file
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world

Values = NDArray[Any]


class ParquetHead(NamedTuple):
    """Rows of each group, and names and dtypes of the columns; None for what are not numbers."""

    groups: tuple[int, ...]
    columns: dict[str, str | None]


@says_ours(READING_PARQUET)
@same_call
def read_parquet(
    file: File, *, columns: str | Sequence[str] | None = None, dtype: Any = None,
    type: Type | None = None, mesh: Mesh | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read columns of a Parquet file into a global array of rows and columns.

    ``x = pgas.read_parquet("points.parquet", columns=["height", "weight"])``. Needs pyarrow, the extra
    ``parquet``. Each rank reads whole row groups, and each group is read once; then the rows are distributed
    evenly over the ranks. The default dtype is one that holds all columns. Missing values become ``nan``, in
    floats.
    """
    must_have_data(file)
    comm = comm_or_world(comm)
    wanted = Wanted(comm, type, mesh, device)
    head = look(comm, file, lambda: head_of(file))
    names = _chosen(os.fspath(file), head, columns)
    kinds = [np.dtype(str(head.columns[name])) for name in names]
    kind = promote(*kinds) if dtype is None else np.dtype(dtype)
    target = wanted.check((sum(head.groups), len(names)), kind)
    owners = _owners(head.groups, comm.size)
    counts = np.bincount(owners, weights=head.groups, minlength=comm.size).astype(int).tolist()
    local = np.empty((counts[comm.rank], len(names)), kind)
    with together(comm, file):
        _fill(local, file, np.flatnonzero(owners == comm.rank).tolist(), names)
    return wanted.bring(even_out(local, counts, comm), target)


def _parquet(verb: str = "read", error: type[RedistError] = ReadError) -> Any:
    """**Local.** pyarrow's module, or an error that says what to install."""
    return need("pyarrow.parquet", "Parquet", verb, error, extra="parquet")


def head_of(file: File) -> ParquetHead:
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
        return name if file_kind(np.dtype(name)) in "biuf" else None
    except TypeError:
        return None


def _chosen(file: str, head: ParquetHead, columns: str | Sequence[str] | None) -> list[str]:
    """**Local.** The names of the columns asked for, which must be there and be of numbers."""
    given = [columns] if isinstance(columns, str) else columns
    names = list(head.columns if given is None else given)
    for name in names:
        if name not in head.columns:
            raise ArgumentError(
                f"cannot read column {name!r} of {file!r}: it has {(*head.columns,)}"
            )
        if head.columns[name] is None:
            numbers = [one for one, kind in head.columns.items() if kind is not None]
            raise ArgumentError(
                f"cannot read column {name!r} of {file!r}: it is not of numbers"
                + (f"; columns={numbers} leaves it out" if numbers else "")
            )
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
                if column.null_count and file_kind(local.dtype) != "f":
                    raise ReadError(
                        f"cannot read column {name!r} of {os.fspath(file)!r} as {local.dtype}: values are "
                        "missing; dtype=float reads them as nan"
                    )
                local[at : at + len(table), i] = column.to_numpy()
            at += len(table)


GROUP_BYTES = 2**22
"""Row groups are of this many bytes in memory: small enough that several ranks have some to read."""


@says_ours(WRITING)
@same_call
def write_parquet(
    file: File, a: Columns, *, columns: Sequence[str] | None = None, compression: str = "snappy",
    limit_bytes: int | str | None = None, progress: bool | None = None,
) -> None:  # fmt: skip
    """**Collective.** Write global arrays to a Parquet file, as columns side by side.

    ``pgas.write_parquet("points.parquet", {"x": x, "label": labels})``. Instead of a dict, pass one array of
    rows and columns, or a list of arrays, with their names as ``columns``, by default 0, 1 and so on.
    Needs pyarrow, the extra ``parquet``, on rank 0: it receives the rows a group at a time and writes them,
    because the end of a Parquet file says where everything is in it. So there is one file, the same for
    any number of ranks; its row groups can be read in parallel. ``limit_bytes`` holds on every rank, by
    default 64 MiB. Arrays on GPUs are copied to memory first. Errors are as in
    :func:`~redist.pgas.write_npy`.
    """
    table = Table.of(file, a, columns)
    names = table.names or tuple(map(str, range(table.width)))
    comm = table.comm
    from_first(comm, lambda: bool(_parquet("write", WriteError)), TIMEOUT_S)
    limit = within(table.arrays[0], limit_bytes)
    rows = max(1, min(GROUP_BYTES, limit // 8) // max(1, table.row_bytes))
    tell = teller(comm, "write", file, progress, table.rows * table.row_bytes)
    with new_file(comm, file) as out:
        groups = GroupWriter(out, table, names, compression) if comm.rank == 0 else None
        try:
            out.agree()
            for block in table.blocks(rows, Mesh({"x": 1}, ranks=[0]), limit):
                if groups is not None:
                    groups.write(block)
                tell(rows * table.row_bytes)
        finally:
            if groups is not None:
                groups.close()


class GroupWriter:
    """Writes row groups to a new file; what fails is kept by that."""

    def __init__(self, out: NewFile, table: Table, names: Sequence[str], compression: str) -> None:
        self._out, self._writer = out, None
        with out.own_part():
            import pyarrow

            kinds = [one.dtype for one in table.arrays for _ in range(width_of(one))]
            fields = zip(names, map(pyarrow.from_numpy_dtype, kinds), strict=True)
            self._schema = pyarrow.schema([*fields])
            self._writer = _parquet().ParquetWriter(
                str(out.temporary), self._schema, compression=compression
            )

    def write(self, columns: Sequence[Values]) -> None:
        """**Local.** Write one group."""
        if self._writer is not None and not self._out.failed:
            with self._out.own_part():
                import pyarrow

                arrays = [pyarrow.array(values) for values in columns]
                self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """**Local.** Write the end of the file."""
        if self._writer is not None:
            with self._out.own_part():
                self._writer.close()
