"""Arguments that pandas and NumPy have for files: an error says which of ours does it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from redist.errors import ArgumentTypeError

F = TypeVar("F", bound=Callable[..., Any])

_HEADER = (
    "write header=N to skip N lines and take the names from the next: header=2 has them in the third; blank "
    "lines and comments do not count"
)
_SOME = "read all, and take a[:n]: each rank reads its part"
_MISSING = 'write missing=, as in missing=["?", "-"]'
_NUMBERS = "leave it out: a global array has numbers alone"
_PARTS = "leave it out: each rank reads its part at once"
READING = {
    **dict.fromkeys(("skiprows", "skip_header"), _HEADER),
    **dict.fromkeys(("nrows", "max_rows"), _SOME),
    **dict.fromkeys(("na_values", "missing_values", "keep_default_na", "na_filter"), _MISSING),
    **dict.fromkeys(("engine", "low_memory", "chunksize", "iterator", "memory_map"), _PARTS),
    **dict.fromkeys(("converters", "parse_dates", "date_format", "index_names"), _NUMBERS),
    "names": "columns of a global array have no names, but numbers, as in a[:, 0]; "
    "header=False says that the first line has none",
    "index_col": "rows have no names, but numbers; usecols= leaves that column out",
    "columns": "write usecols=",
    "comment": "write comments=",
    "quotechar": "write quote=",
    "encoding": "leave it out: files are in UTF-8",
    "compression": "leave it out: the first bytes of the file say it",
    "unpack": "leave it out: a.T has the columns as rows",
}  # fmt: skip
READING_PARQUET = {
    "usecols": "write columns=",
    "engine": "leave it out: pyarrow reads",
    "filters": "choose rows of what is read, as in a[a[:, 0] > 1]",
}
WRITING = {
    "index": "leave it out: rows have no names",
    "float_format": "write fmt=, as in fmt='%.3f'",
    "na_rep": "leave it out: nan is written as nan",
    "mode": "leave it out: a new file is written, and takes the place of an old one",
    "compression": "leave it out: a name that ends in .gz makes it compressed",
    "names": "write columns=",
    "newline": "leave it out: lines end in a newline",
    "footer": "leave it out: nothing is written behind the numbers",
    "encoding": "leave it out: files are in UTF-8",
}


def says_ours(names: Mapping[str, str]) -> Callable[[F], F]:
    """Give a function an error of its own for arguments of other libraries; ``names`` has what to write."""

    def decorate(function: F) -> F:
        others = names.keys() - inspect.signature(function).parameters.keys()

        @wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            for one in others & options.keys():
                raise ArgumentTypeError(
                    f"cannot use {one}= in pgas.{function.__name__}: {names[one]}"
                )
            return function(*args, **options)

        return called  # type: ignore[return-value]

    return decorate
