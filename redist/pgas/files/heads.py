"""What files say of the arrays in them, whichever format they have, and what all readers need."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from redist.errors import ReadError, RedistError
from redist.layout.tiles import Box
from redist.pgas.kinds import file_kind
from redist.text.extras import install_line

Values = NDArray[Any]
KINDS = "biufcmMSU"
"""Elements that are bytes of one size."""


ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
"""What a folder has if it is a Zarr store: one of these."""


class ArrayHead(NamedTuple):
    """What a file says of one array. ``parts`` can be read by themselves; None: any elements can."""

    path: str
    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: tuple[int, ...] | None
    shards: tuple[int, ...] | None = None
    by_columns: bool = False
    dims: tuple[str, ...] | None = None
    decodes: bool = False
    codecs: list[dict[str, Any]] | None = None
    filters: list[dict[str, Any]] | None = None
    fill: Any = None
    attributes: dict[str, Any] | None = None
    offset: int = 0

    @property
    def n_bytes(self) -> int:
        """The bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class StoreHead(NamedTuple):
    """What a file or store says of itself: an array alone has the name ``''``."""

    path: str
    kind: str
    arrays: tuple[ArrayHead, ...]
    groups: dict[str, dict[str, Any]]
    consolidated: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is one array, and no group."""
        return not self.groups


class Reader(Protocol):
    """An array that is open."""

    @property
    def read_bytes(self) -> int:
        """What was read so far."""

    def read(self, box: Box, out: Values) -> None:
        """**Local.** Read a box into a buffer of its shape."""

    def close(self) -> None:
        """**Local.** Close the file."""


def parts_in(box: Box, parts: tuple[int, ...]) -> Iterator[Box]:
    """What a box has of each part of an array that it meets; the parts have these sizes.

    >>> [*parts_in(((0, 2), (3, 9)), (2, 4))]
    [((0, 2), (3, 4)), ((0, 2), (4, 8)), ((0, 2), (8, 9))]
    """
    starts = (range(lo // n * n, hi, n) for (lo, hi), n in zip(box, parts, strict=True))
    for corner in product(*starts):
        ends = zip(corner, parts, box, strict=True)
        yield tuple((max(at, lo), min(at + n, hi)) for at, n, (lo, hi) in ends)


def part_at(values: Values, box: Box, inner: Box) -> Values:
    """The values of a box that lies in another one, whose values are given."""
    ends = zip(box, inner, strict=True)
    where: Any = (*(slice(lo - start, hi - start) for (start, _), (lo, hi) in ends), ...)
    return values[where]


def need(
    name: str, what: str, verb: str = "read", error: type[RedistError] = ReadError,
    extra: str = "store",
) -> ModuleType:  # fmt: skip
    """**Local.** A module of an extra, or an error that says what to install."""
    try:
        return import_module(name)
    except ImportError:
        raise error(
            f"cannot {verb} {what}: {name.partition('.')[0]} is not installed; {install_line(extra)}"
        ) from None


def zarr_store(verb: str = "read", error: type[RedistError] = ReadError) -> Any:
    """**Local.** The module that speaks with zarr, or an error that says what to install."""
    need("zarr", "Zarr", verb, error)
    return import_module("redist.pgas.files.zarr_store")


def is_zarr(path: Path) -> bool:
    """**Local.** Whether there is a Zarr store."""
    return any((path / name).exists() for name in ZARR_FILES)


def kind_in_the_way(path: Path) -> str | None:
    """**Local.** What speaks against a store taking the place of what is there: only stores may go."""
    if not path.exists() or is_zarr(path) or (path.is_dir() and not any(path.iterdir())):
        return None
    what = "a folder, and not a Zarr store" if path.is_dir() else "a file"
    return f"it is {what}; give another name"


def check_elements(path: str, name: str, dtype: np.dtype[Any], option: str = "") -> None:
    """**Local.** Raise unless elements have one size in bytes; ``option`` is what leaves an array out."""
    if file_kind(dtype) not in KINDS or dtype.hasobject:
        hint = f"; {option}[{name!r}] leaves it out" if option and name else ""
        raise ReadError(
            f"cannot read {name or 'the array'} of {path!r}: it holds {dtype}, and not numbers{hint}"
        )


def xarray_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value that means "missing", as xarray writes it in attributes of Zarr 3.

    >>> xarray_fill(-1, np.dtype("i2")), xarray_fill(0.0, np.dtype("f4"))
    (-1, 'AAAAAAAAAAA=')
    """

    def packed(part: float) -> str:
        return base64.standard_b64encode(np.float64(part).astype("<f8").tobytes()).decode()

    match file_kind(dtype):
        case "b":
            return bool(value)
        case "i" | "u":
            return int(value)
        case "f":
            return packed(value)
        case "c":
            return [packed(value.real), packed(value.imag)]
        case "S":
            return base64.standard_b64encode(bytes(value)).decode()
        case _:
            return str(value)
