"""What a checkpoint holds: one safetensors file, or a folder of such files with Hugging Face's index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redist.errors import ArgumentError, ReadError
from redist.store.header import MOST_HEADER, Entry, Header, parse_header
from redist.text.columns import table
from redist.text.units import count_of, format_bytes

File = str | os.PathLike[str]
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OUR_FILES = (SINGLE, "model-*-of-*.safetensors", INDEX)
"""A folder that has only such files may be replaced."""


class Stored(Mapping[str, Entry]):
    """**Local.** The arrays in a checkpoint by name: dtype, shape and place; ``meta`` is what a user added.

    Only headers are read, as in ``redist.stored("w.safetensors")["w"].shape``.
    """

    def __init__(self, path: str, files: tuple[str, ...], headers: tuple[Header, ...]) -> None:
        self.path, self.files = path, files
        self.meta = next((one.meta for one in headers if one.meta is not None), None)
        self._entries: dict[str, Entry] = {}
        for header in headers:
            for entry in header.entries:
                if entry.name in self._entries:
                    other = files[self._entries[entry.name].file]
                    raise ReadError(
                        f"cannot read {path!r}: {entry.name!r} stands in {other!r} and in "
                        f"{files[entry.file]!r}"
                    )
                self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes."""
        return sum(entry.nbytes for entry in self.values())

    @property
    def has_checksums(self) -> bool:
        """Whether the checkpoint has checksums for every array."""
        return all(entry.crc is not None for entry in self.values())

    @property
    def sizes(self) -> str:
        """How many arrays, bytes and files: ``3 arrays, 136 B, 1 file``."""
        arrays, files = count_of(len(self), "array"), count_of(len(self.files), "file")
        return f"{arrays}, {format_bytes(self.nbytes)}, {files}"

    def __str__(self) -> str:
        return f"{self.path}: {self.listing()}"

    def listing(self) -> str:
        """The sizes of all, the ``meta``, and a table of the arrays, as ``redist inspect`` prints them."""
        lines = [f"{self.sizes}, {'with' if self.has_checksums else 'without'} checksums"]
        if self.meta is not None:
            lines.append(f"meta   {json.dumps(dict(self.meta), ensure_ascii=False)}")
        rows = [("array", "dtype", "shape", "bytes", "crc32", "file")]
        for name, entry in self.items():
            first = "" if not entry.crc else f"{entry.crc[0]:08x}"
            more = f" +{len(entry.crc) - 1}" if entry.crc and len(entry.crc) > 1 else ""
            shape, size = "x".join(map(str, entry.shape)) or "()", format_bytes(entry.nbytes)
            file = Path(self.files[entry.file]).name
            rows.append((name, str(entry.dtype), shape, size, first + more, file))
        told = {"crc32": self.has_checksums, "file": len(self.files) > 1}
        keep = [k for k, column in enumerate(rows[0]) if told.get(column, True)]
        left = (0, 1, 4, 5)
        lines += table([[row[k] for k in keep] for row in rows], left=left, indent="  ")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Stored({self.path!r}, {len(self)} arrays)"


def stored(path: File) -> Stored:
    """**Local.** What a checkpoint holds: names, dtypes, shapes, and what its writer added as ``meta``.

    ``path`` is a safetensors file written by any program, or a folder of such files. Only headers are read,
    and every number in them is checked: arrays that overlap, leave gaps or do not fit the file are refused.

    >>> import tempfile, redist
    >>> from redist import pgas
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     redist.save(f"{folder}/w.safetensors", {"w": pgas.ones((2, 3))}, meta={"step": 7})
    ...     found = redist.stored(f"{folder}/w.safetensors")
    >>> found["w"].shape, found.meta
    ((2, 3), {'step': 7})
    """
    name = os.fspath(path)
    try:
        files = _files(name)
        headers = tuple(read_header(file, i) for i, file in enumerate(files))
    except OSError as problem:
        if isinstance(problem, ReadError):
            raise
        why = problem.strerror or str(problem)
        raise ReadError(f"cannot read {name!r}: {why}") from problem
    found = Stored(name, files, headers)
    _check_index(found)
    return found


def read_header(path: str, number: int = 0) -> Header:
    """**Local.** Read the header of one file."""
    with Path(path).open("rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        begin = file.read(8)
        length = int.from_bytes(begin, "little")
        if len(begin) < 8 or 8 + length > n_bytes:
            raise ReadError(
                f"cannot read {path!r}: it is not a safetensors file, or it ends in its header "
                f"({n_bytes:,} bytes)"
            )
        if length > MOST_HEADER:
            raise ReadError(
                f"cannot read {path!r}: it is not a safetensors file: a header of {length:,} bytes; they "
                f"have {MOST_HEADER:,} at most"
            )
        return parse_header(path, begin, file.read(length), n_bytes, number)


def _files(name: str) -> tuple[str, ...]:
    """The files of a checkpoint, in order."""
    path = Path(name)
    if not path.is_dir():
        return (name,)
    index = path / INDEX
    if index.exists():
        return tuple(str(path / one) for one in sorted(set(_weight_map(index).values())))
    found = sorted(str(one) for one in path.glob("*.safetensors"))
    if not found:
        raise ReadError(
            f"cannot read {name!r}: the folder has no {INDEX} and no file that ends in .safetensors"
        )
    return tuple(found)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ReadError(f"cannot read {str(index)!r}: {problem!r}; need a weight_map") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ReadError(f"cannot read {str(index)!r}: its weight_map is not a dict of file names")
    outside = next((one for one in found.values() if Path(one).name != one), None)
    if outside is not None:
        raise ReadError(f"cannot read {str(index)!r}: {outside!r} is not a file of this folder")
    return found


def _check_index(found: Stored) -> None:
    """Every array must be where the index of the folder says."""
    index = Path(found.path) / INDEX
    if not index.exists():
        return
    for name, file in _weight_map(index).items():
        entry = found.get(name)
        if entry is None or Path(found.files[entry.file]).name != file:
            raise ReadError(
                f"cannot read {found.path!r}: its index says that {name!r} is in {file!r}, and it is not"
            )


def file_names(n_files: int) -> list[str]:
    """The names that Hugging Face gives to the files in a checkpoint folder.

    >>> file_names(1), file_names(2)[0]
    (['model.safetensors'], 'model-00001-of-00002.safetensors')
    """
    if n_files == 1:
        return [SINGLE]
    return [f"model-{i:05d}-of-{n_files:05d}.safetensors" for i in range(1, n_files + 1)]


def index_bytes(entries: Mapping[str, Entry], names: list[str]) -> bytes:
    """The index file of a checkpoint folder, as bytes."""
    index: dict[str, Any] = {
        "metadata": {"total_size": sum(entry.nbytes for entry in entries.values())},
        "weight_map": {name: names[entries[name].file] for name in sorted(entries)},
    }
    return json.dumps(index, indent=2, ensure_ascii=False).encode()


def is_one_file(path: File) -> bool:
    """Whether a checkpoint with this name is one file, ending in ``.safetensors``, and not a folder."""
    name = os.fspath(path)
    if not name:
        raise ArgumentError("cannot save under an empty name")
    return name.endswith(".safetensors")
