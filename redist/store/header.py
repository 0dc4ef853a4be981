"""The header of a safetensors file: names, dtypes, shapes, places, checksums, and what a user adds.

::

    0      length of the header in 8 bytes, little-endian; 8 + length is a multiple of 4096
    8      {"__metadata__": {...}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    ...    the arrays, in C order, one behind the other: larger elements first, then by name

The length is known before any data is written, because checksums have a fixed width. The bytes of a file
depend only on names, values and meta. A header that another program wrote is not trusted: every number is
checked, and nothing in it is executed.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError, LayoutError, ReadError
from redist.layout.dtype import DType
from redist.runtime.files.kernels import Checked
from redist.text.units import format_bytes

ALIGN = 4096
MOST_HEADER = 100_000_000
"""Longer headers are refused, here as by the safetensors library."""
BLOCK_BYTES = 2**26
"""Every array has a checksum for each block of this many bytes."""
ZEROS = "00000000"

TO_FILE = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32",
    "u64": "U64", "i64": "I64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "c64": "C64",
    "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2", "f8e8m0fnu": "F8_E8M0",
    "f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
"""What the format calls our dtypes. Others are stored as bytes, with one dim more, named in the header."""
FROM_FILE = {there: here for here, there in TO_FILE.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One array in a file: where its bytes begin and end, counted from the first byte of the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: int
    begin: int
    end: int
    crc: tuple[int, ...] | None = None
    """zlib's CRC-32 of each block; None if the file has none."""

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return self.end - self.begin

    def checked(self, sums: NDArray[np.uint32]) -> Checked:
        """The object that adds a rank's bytes to the checksums of this array's blocks."""
        return Checked(sums, self.begin, self.nbytes, BLOCK_BYTES)

    @property
    def n_blocks(self) -> int:
        """The number of checksums of this array, one per block."""
        return -(-self.nbytes // BLOCK_BYTES)


Described = Mapping[str, tuple[DType, tuple[int, ...]]]


def in_order(arrays: Described) -> list[str]:
    """The names in the order in which their arrays are stored in a file.

    >>> byte, word = DType.parse("u8"), DType.parse("f32")
    >>> in_order({"b": (byte, (1,)), "a": (byte, (1,)), "w": (word, (1,))})
    ['w', 'a', 'b']
    """
    return sorted(arrays, key=lambda name: (-arrays[name][0].itemsize, name))


def n_bytes_of(dtype: DType, shape: Sequence[int]) -> int:
    """The bytes of an array."""
    return math.prod(shape) * dtype.itemsize


def split(arrays: Described, shard_bytes: int | None) -> list[list[str]]:
    """The names in each file, in order: as many as ``shard_bytes`` has room for, at least one."""
    files: list[list[str]] = [[]]
    used = 0
    for name in in_order(arrays):
        n_bytes = n_bytes_of(*arrays[name])
        if files[-1] and shard_bytes is not None and used + n_bytes > shard_bytes:
            files.append([])
            used = 0
        files[-1].append(name)
        used += n_bytes
    return files


class NewHeader:
    """The header of a new file: its layout is known now, its bytes only with the checksums."""

    def __init__(
        self, arrays: Described, names: Sequence[str], meta: Mapping[str, Any] | None, file: int = 0
    ) -> None:
        places, at = [], 0
        for name in names:
            dtype, shape = arrays[name]
            places.append((name, dtype, shape, at, at + n_bytes_of(dtype, shape)))
            at = places[-1][-1]
        self.meta = meta_text(meta)
        self._places = places
        text = self._text(["" for _ in places], ZEROS)
        sums = sum(8 * -(-(end - begin) // BLOCK_BYTES) for *_, begin, end in places)
        self.length = -(-(8 + len(text) + sums) // ALIGN) * ALIGN
        if self.length > MOST_HEADER:
            raise ArgumentError(
                f"cannot save {len(places)} arrays in one file: their names and shapes take "
                f"{format_bytes(self.length)}, and a header has {format_bytes(MOST_HEADER)} at most; "
                "give shard_bytes="
            )
        self.n_bytes = self.length + at
        self.entries = tuple(
            Entry(name, dtype, shape, file, self.length + begin, self.length + end)
            for name, dtype, shape, begin, end in places
        )

    def _text(self, sums: Iterable[str], own: str) -> bytes:
        odd = {name: dtype.name for name, dtype, *_ in self._places if dtype.name not in TO_FILE}
        told = {
            "format": "pt",
            "redist": "1",
            "redist.crc32": _dumps(
                {name: one for (name, *_), one in zip(self._places, sums, strict=True)}
            ),
            **({"redist.dtypes": _dumps(odd)} if odd else {}),
            **({"redist.meta": self.meta} if self.meta else {}),
            "redist.crc32.header": own,
        }
        header: dict[str, Any] = {"__metadata__": told}
        for name, dtype, shape, begin, end in self._places:
            kind = TO_FILE.get(dtype.name)
            sizes = [*shape] if kind else [*shape, dtype.itemsize]
            header[name] = {"dtype": kind or "U8", "shape": sizes, "data_offsets": [begin, end]}
        return _dumps(header).encode()

    def bytes(self, sums: Sequence[Sequence[int]]) -> bytes:
        """The first bytes of the file, given the checksums of the blocks of every array."""
        texts = ["".join(f"{crc:08x}" for crc in row) for row in sums]
        room = self.length - 8
        empty = self._text(texts, ZEROS).ljust(room)
        assert len(empty) == room
        text = self._text(texts, f"{zlib.crc32(empty):08x}").ljust(room)
        return room.to_bytes(8, "little") + text


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def meta_text(meta: Mapping[str, Any] | None) -> str:
    """The user's ``meta`` as JSON with sorted keys; empty if there is none."""
    if meta is None:
        return ""
    if not isinstance(meta, Mapping):
        raise ArgumentTypeError(
            f"cannot save meta={meta!r}: need a dict of JSON values, as in meta={{'step': 7}}"
        )
    try:
        text = json.dumps(dict(meta), separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        same = json.loads(text)
    except (TypeError, ValueError) as problem:
        raise ArgumentTypeError(f"cannot save meta: {problem}; need JSON values") from None
    if same != dict(meta):
        raise ArgumentTypeError(
            f"cannot save meta={meta!r}: JSON makes {same!r} of it; write lists for tuples, text for keys"
        )
    return text


def check_name(name: Any) -> str:
    """A name that a file can have."""
    if not isinstance(name, str) or not name or name == "__metadata__":
        raise ArgumentError(f"cannot save an array under the name {name!r}: need text")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"cannot save an array under the name {name!r}: not UTF-8") from None
    return name


# Reading


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of the header of an existing file."""

    entries: tuple[Entry, ...]
    meta: Mapping[str, Any] | None
    metadata: Mapping[str, str]
    length: int


def parse_header(path: str, begin: bytes, text: bytes, n_bytes: int, file: int = 0) -> Header:
    """Read a header that may be wrong in any way; ``begin`` is the first 8 bytes, ``n_bytes`` the size."""

    def refuse(why: str) -> ReadError:
        return ReadError(f"cannot read {path!r}: {why}")

    length = int.from_bytes(begin, "little")
    try:
        found = json.loads(text.decode(), object_pairs_hook=_no_twins)
    except UnicodeDecodeError:
        raise refuse("its header is not UTF-8") from None
    except (ValueError, RecursionError) as problem:
        raise refuse(f"its header is not JSON ({problem})") from None
    if not isinstance(found, dict) or not text.startswith(b"{"):
        raise refuse("its header is not a JSON object")
    told = found.pop("__metadata__", {})
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        raise refuse("its __metadata__ is not a dict of texts")
    ours = any(key.partition(".")[0] == "redist" for key in told)
    if ours:
        _check_own_crc(text, told, refuse)
    sums = _inner(told, "redist.crc32", refuse) if ours else None
    odd = _inner(told, "redist.dtypes", refuse) if ours else {}
    start = 8 + length
    entries = [
        _entry(name, row, file, start, odd.get(name), None if sums is None else sums.get(name, ""), refuse)
        for name, row in found.items()
    ]  # fmt: skip
    entries.sort(key=lambda one: (one.begin, one.end))
    at = start
    for one in entries:
        if one.begin != at:
            kind = "overlaps the one before it" if one.begin < at else "leaves a gap before it"
            raise refuse(f"{one.name!r} {kind}, at byte {one.begin}")
        at = one.end
    if at != n_bytes:
        less = "ends early" if at > n_bytes else "goes on behind its last array"
        raise refuse(f"it {less}: it has {n_bytes:,} bytes, and its header says {at:,}")
    meta = _inner(told, "redist.meta", refuse) if ours and "redist.meta" in told else None
    return Header(tuple(entries), meta, told, start)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return found


def _check_own_crc(text: bytes, told: Mapping[str, str], refuse: Any) -> None:
    own = told.get("redist.crc32.header", "")
    place = f'"redist.crc32.header":"{own}"'.encode()
    at = text.find(place)
    if at < 0 or len(own) != 8:
        raise refuse("its header has no checksum of its own; the file was changed")
    empty = text[:at] + place.replace(own.encode(), ZEROS.encode()) + text[at + len(place) :]
    if f"{zlib.crc32(empty):08x}" != own:
        raise refuse(
            f"its header has crc {zlib.crc32(empty):08x}, and says {own}; the file was changed or the "
            "disk is failing"
        )


def _inner(told: Mapping[str, str], key: str, refuse: Any) -> dict[str, Any]:
    """A dict that stands as text in the metadata."""
    try:
        found = json.loads(told.get(key, "{}"), object_pairs_hook=_no_twins)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise refuse(f"{key} in its header is not a JSON object")
    return found


def _entry(name: str, row: Any, file: int, start: int, odd: Any, sums: Any, refuse: Any) -> Entry:
    if not isinstance(row, dict) or not {"dtype", "shape", "data_offsets"} <= row.keys():
        raise refuse(f"{name!r} has no dtype, shape or data_offsets")
    shape, places = row["shape"], row["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(places) or len(places) != 2:
        raise refuse(f"{name!r} has shape {shape} and data_offsets {places}: need sizes")
    kind = FROM_FILE.get(row["dtype"]) if isinstance(row["dtype"], str) else None
    if kind is None:
        raise refuse(f"{name!r} has dtype {row['dtype']!r}, which is unknown")
    dtype = DType.parse(kind)
    if odd is not None:
        dtype, shape = _odd_dtype(name, odd, dtype, shape, refuse)
    begin, end = places
    if end - begin != n_bytes_of(dtype, shape):
        raise refuse(
            f"{name!r} has {end - begin:,} bytes, and {dtype}{list(shape)} needs {n_bytes_of(dtype, shape):,}"
        )
    crc: tuple[int, ...] | None = None
    if sums is not None:
        n_blocks = -(-(end - begin) // BLOCK_BYTES)
        if not isinstance(sums, str) or len(sums) != 8 * n_blocks:
            raise refuse(f"{name!r} has no checksums")
        try:
            crc = tuple(int(sums[at : at + 8], 16) for at in range(0, len(sums), 8))
        except ValueError:
            raise refuse(f"{name!r} has checksums that are not numbers") from None
    return Entry(name, dtype, tuple(shape), file, start + begin, start + end, crc)


def _are_sizes(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**62 for one in given
    )


def _odd_dtype(
    name: str, odd: Any, dtype: DType, shape: Any, refuse: Any
) -> tuple[DType, list[int]]:
    try:
        found = DType.parse(odd) if isinstance(odd, str) else None
    except LayoutError:
        found = None
    if found is None or dtype.name != "u8" or not shape or shape[-1] != found.itemsize:
        raise refuse(f"{name!r} is called {odd!r}, which does not fit its bytes")
    return found, shape[:-1]
