"""Before a file is read or written its call is checked: ranks compare files, columns, types and options.

Arguments that pandas and NumPy have are refused: the error says which of ours does it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from redist.errors import ArgumentTypeError, RequestError
from redist.pgas.compare_ranks import calls_by_rank, listed, place_of_call, said_if_different, word
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.structures import found_in
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world

F = TypeVar("F", bound=Callable[..., Any])

OWN = {"comm", "device", "progress"}
"""What ranks may say each for itself: their GPU, and who shows how far it is."""


def same_call(function: F) -> F:
    """Let all ranks compare a call for a file before it is made; one error lists what each says."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError:
            return function(*args, **options)  # which says what is wrong
        comm = _comm_of(given)
        if comm.size > 1 and current_tape() is None:
            _compare(comm, function.__name__, _told(signature, given))
        return function(*args, **options)

    return checked  # type: ignore[return-value]


def _told(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """**Local.** The arguments that ranks must have alike, less those that say what holds without them."""
    usual = {name: one.default for name, one in signature.parameters.items()}
    return {name: one for name, one in given.items() if name not in OWN and one is not usual[name]}


def _compare(comm: Comm, name: str, told: Mapping[str, Any]) -> None:
    """**Collective over** ``comm``. Raise the same error on all ranks if they make different calls."""
    said = said_if_different(
        comm,
        call_words(name, told, exact=True),
        lambda: (
            call_words(name, told, exact=False),
            call_words(name, told, exact=True),
            place_of_call(),
        ),
    )
    if said is None:
        return
    raise RequestError(
        f"cannot use a file by different calls: {calls_by_rank(said)}; every rank must make the same call "
        "with the same file, columns, types and options, because each has its share of one file"
    )


def call_words(name: str, told: Mapping[str, Any], exact: bool) -> str:
    """**Local.** A call as a program writes it, with the types of arrays in place of them.

    >>> call_words("read_csv", {"file": "a.csv", "dtype": "f4", "usecols": ["x"]}, exact=False)
    "pgas.read_csv('a.csv', dtype=float32, usecols=['x'])"
    """
    words = {key: _columns(one, exact) if key == "a" else one for key, one in told.items()}
    plain = [str(words.pop(key)) for key in ("a",) if key in words]
    files = [word(words.pop(key), exact) for key in ("file",) if key in words]
    if "dtype" in words:
        words["dtype"] = _dtype(words["dtype"])
    rest = listed((), words, exact)
    return f"pgas.{name}({', '.join([*files, *plain, *([rest] if rest else [])])})"


def _columns(a: Any, exact: bool) -> str:
    """**Local.** What shall be written, with names where it has them, in order."""
    if isinstance(a, Tiled):
        return str(a.type)
    if isinstance(a, Mapping):
        inner = (f"{word(name, exact)}: {_columns(one, exact)}" for name, one in a.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(a, (tuple, list)):
        return f"[{', '.join(_columns(one, exact) for one in a)}]"
    return type(a).__name__


def _dtype(given: Any) -> Any:
    """**Local.** A dtype by its one name, where it is one."""
    try:
        return np.dtype(given)
    except TypeError:
        return given


def _comm_of(given: Mapping[str, Any]) -> Comm:
    """**Local.** Whose ranks make a call: those of its first array, those named, or all."""
    arrays, named = found_in(given.get("a"), (Tiled,)), given.get("comm")
    if arrays:
        return arrays[0].comm
    return named if isinstance(named, Comm) else comm_or_world(None)


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
