"""Parquet files on all ranks, against what was written.

As in ``mpirun -n 3 python -m tests.programs.pgas.reading_parquet``; needs pyarrow.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np

from redist import pgas
from tests.programs.pgas.reading import COMM, TYPES, folder, refused, stored
from tests.programs.together import main, run_named


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.normal(size=101),
        "b": rng.integers(0, 9, 101).astype(np.int32),
        "c": rng.normal(size=101).astype(np.float32),
        "word": ["x"] * 101,
        "gap": [None if i % 7 == 0 else i for i in range(101)],
    }


def write(path: Any, rows: int, group: int) -> None:
    import pyarrow
    import pyarrow.parquet

    made = {name: values[:rows] for name, values in columns().items()}
    made["gap"] = pyarrow.array(made["gap"], pyarrow.int64())
    table = pyarrow.table(made)
    pyarrow.parquet.write_table(table, path, row_group_size=group)


def write_wide(path: Any) -> None:
    import pyarrow
    import pyarrow.parquet

    made: dict[str, list[Any]] = {f"c{i}": [1.0, 2.0] for i in range(9)}
    pyarrow.parquet.write_table(pyarrow.table({**made, "city": ["Oslo", "Rome"]}), path)


def groups_are_read_by_ranks() -> str | None:
    made = columns()
    for rows, group in ((101, 10), (101, 101), (101, 60), (2, 1), (101, 3), (0, 5)):
        path = stored(f"{rows} {group}.parquet", partial(write, rows=rows, group=group))
        want = np.stack([made["a"], made["b"]], axis=1)[:rows]
        for cut in TYPES:
            found = pgas.read_parquet(path, columns=["a", "b"], type=cut)
            if found.dtype != np.float64 or not np.array_equal(found.gather(), want):
                return f"{rows} rows in groups of {group}, {cut}: {found.type}"
        ints = pgas.read_parquet(path, columns=["b"])
        if ints.dtype != np.int32 or not np.array_equal(ints.gather()[:, 0], made["b"][:rows]):
            return f"integers: {ints.type}"
        single = pgas.read_parquet(path, columns=["c", "b"], dtype=np.float32)
        if not np.array_equal(single.gather()[:, 0], made["c"][:rows]):
            return "float32"
        gaps = pgas.read_parquet(path, columns=["gap"], dtype=float).gather()[:, 0]
        if not np.array_equal(np.isnan(gaps), np.arange(rows) % 7 == 0):
            return f"missing values: {gaps}"
    return None


def errors_are_one() -> str | None:
    path = stored("some.parquet", lambda p: write(p, 101, 20))
    text = stored("text.parquet", lambda p: p.write_text("1,2"))
    wide = stored("wide.parquet", write_wide)
    if pgas.column_names(path) != list(columns()):
        return f"names: {pgas.column_names(path)}"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (folder() / "missing", {}, "No such file"),
        (text, {}, "as Parquet"),
        (path, {"columns": ["z"]}, "it has ('a', 'b', 'c', 'word', 'gap')"),
        (path, {}, "column 'word'"),
        (path, {"columns": "word"}, "columns=['a', 'b', 'c', 'gap'] leaves it out"),
        (wide, {}, "columns=['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8'] leaves it out"),
        (path, {"usecols": ["a"]}, "write columns="),
        (path, {"columns": []}, "no column"),
        (path, {"columns": ["gap"], "dtype": int}, "values are missing"),
    ]
    for file, options, said in cases:
        found = refused(partial(pgas.read_parquet, file, **options))
        if said not in found:
            return f"{said!r}: {found}"
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    folder.cache_clear()
    return None


CHECKED = (groups_are_read_by_ranks, errors_are_one)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
