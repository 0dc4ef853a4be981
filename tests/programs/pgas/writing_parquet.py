"""Arrays to Parquet files, read by pyarrow, pandas and ourselves.

As in ``mpirun -n 3 python -m tests.programs.pgas.writing_parquet``; needs pyarrow, and pandas if it is there.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Any

import numpy as np

from redist import pgas
from redist.pgas.files.blocks import LEAST_BYTES
from redist.pgas.memory import BUFFERS
from tests.programs.mpi.counting import Count
from tests.programs.pgas.reading import COMM, TYPES, folder, refused
from tests.programs.pgas.writing import BOOKS_BYTES, an_old_file
from tests.programs.together import main, run_named


def columns(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    return {
        "x": rng.normal(size=(rows, 3)),
        "label": rng.integers(-3, 9, rows),
        "s": rng.normal(size=rows).astype(np.float32),
        "flag": rng.random(rows) < 0.5,
        "u": rng.integers(0, 9, rows).astype(np.uint8),
    }


def files_are_read_by_others() -> str | None:
    import pyarrow.parquet

    for rows in (0, 1, 20_000):
        given = columns(rows)
        cuts = {"x": "{}, {x}", "label": "{x}", "s": "{}", "flag": "{x}", "u": "{x}"}
        path = folder() / f"{rows}.parquet"
        pgas.write_parquet(
            path,
            {name: pgas.asarray(one, type=cuts[name]) for name, one in given.items()},
            limit_bytes=LEAST_BYTES,
        )
        table = pyarrow.parquet.read_table(path)
        if table.column_names != ["x_0", "x_1", "x_2", "label", "s", "flag", "u"]:
            return f"{table.column_names}"
        x = np.stack([table.column(f"x_{i}").to_numpy() for i in range(3)], axis=1)
        if x.tobytes() != given["x"].tobytes():
            return f"{rows} rows: x"
        for name in ("label", "s", "flag", "u"):
            found = table.column(name).to_numpy()
            if found.dtype != given[name].dtype or not np.array_equal(found, given[name]):
                return f"{rows} rows: {name} {found.dtype}"
        if find_spec("pandas") is not None:
            import pandas  # type: ignore[import-untyped, unused-ignore]

            if not np.array_equal(pandas.read_parquet(path)["label"], given["label"]):
                return "pandas"
        for cut in TYPES:
            back = pgas.read_parquet(path, columns=["x_0", "x_1", "x_2"], type=cut)
            if back.gather().tobytes() != given["x"].tobytes():
                return f"{rows} rows, {cut}: read back"
        flags = pgas.read_parquet(path, columns=["flag"])
        if flags.dtype != np.bool_ or not np.array_equal(flags.gather()[:, 0], given["flag"]):
            return f"flags: {flags.dtype}"
        COMM.barrier()
    groups = pyarrow.parquet.ParquetFile(folder() / "20000.parquet").num_row_groups
    return None if groups > 4 else f"{groups} row groups"


def errors_are_one() -> str | None:
    with an_old_file("parquet") as path:
        said = refused(lambda: pgas.write_parquet(path, pgas.zeros((4, 2)), compression="wrong"))
    if "wrong" not in said or "nothing has changed" not in said:
        return said
    said = refused(lambda: pgas.write_parquet(path, pgas.zeros((4, 2)) * 1j))
    return None if "pgas.real(a)" in said else said


def the_limit_is_kept() -> str | None:
    a = pgas.asarray(columns(60_000)["x"], type="{x}, {}")
    path, limit = folder() / "limited.parquet", 2**20
    pgas.write_parquet(path, a[:10], limit_bytes=limit)
    BUFFERS.forget()
    with Count() as count:
        pgas.write_parquet(path, a, limit_bytes=limit)
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    folder.cache_clear()
    return None if count.most <= limit + BOOKS_BYTES else f"{count.most} bytes, and not {limit}"


CHECKED = (files_are_read_by_others, errors_are_one, the_limit_is_kept)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
