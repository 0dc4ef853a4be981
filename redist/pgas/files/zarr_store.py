"""Zarr stores through zarr-python: bytes are counted, files appear whole, one chunk is in hand at a time.

The only module that imports zarr; whoever needs it calls :func:`redist.pgas.files.heads.zarr_store` first.
"""

from __future__ import annotations

import os
import secrets
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

from redist.layout.tiles import Box
from redist.pgas.files.workers import run_coroutine
from redist.runtime.files.disk import disk, make_folders, write_bytes

Values = NDArray[Any]
REMEMBERED = 256
"""Indices of shards that are kept: parts of one shard are often read one after another."""


class CountedStore(LocalStore):  # type: ignore[misc]
    """A folder whose files appear whole, by a rename, and that counts the bytes of values.

    ``new`` is a folder of the same file system for files that are not whole yet; None for a store that is
    only read. What changes goes through :func:`~redist.runtime.files.disk.disk`, one rank beside another.
    """

    def __init__(self, root: Path | str, *, new: Path | None = None) -> None:
        super().__init__(root, read_only=new is None)
        self.read_bytes = self.written_bytes = 0
        self._new, self._token, self._names = new, secrets.token_hex(4), 0
        self._lock = threading.Lock()
        self._indices: dict[tuple[str, int], Buffer] = {}

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Read a value, or a part of one."""
        at_end = isinstance(byte_range, SuffixByteRequest)
        index = (key, byte_range.suffix if isinstance(byte_range, SuffixByteRequest) else 0)
        if at_end and index in self._indices:
            return self._indices[index]
        value = await super().get(key, prototype, byte_range)
        if value is not None:
            with self._lock:
                self.read_bytes += len(value)
                if at_end and self.read_only:
                    if len(self._indices) >= REMEMBERED:
                        self._indices.pop(next(iter(self._indices)))
                    self._indices[index] = value
        return value

    async def set(self, key: str, value: Buffer) -> None:
        """Write a value to a file of another name, then give it its own."""
        assert self._new is not None
        path, data = self.root / key, value.as_array_like()
        with self._lock:
            self.written_bytes += len(value)
            self._names += 1
            new = self._new / f"{self._token}-{self._names}"
        make_folders(path.parent)
        try:
            file = disk().create(new, 0, again=False)
            try:
                write_bytes(file, np.asarray(data), 0)
            finally:
                os.close(file)
            disk().rename(new, path)
        except BaseException:
            with suppress(OSError):
                disk().remove(new)
            raise

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a value unless there is one: groups that an array lies in."""
        if not (self.root / key).exists():
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Remove a value, if there is one: chunks that have nothing but fill values are not stored."""
        disk().remove(self.root / key)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """**Local.** Have zarr-python read and write one chunk after another in each thread."""
    with zarr.config.set({"async.concurrency": 1, "array.write_empty_chunks": False}):
        yield


def open_array(store: CountedStore, name: str, mode: str = "r") -> Any:
    """**Local.** An array of a store."""
    return zarr.open_array(store=store, path=name, mode=mode)


def read_box(array: Any, box: Box, out: Values) -> None:
    """**Local.** Read a box of an array into a buffer of its shape; in a thread of ``Workers``."""
    prototype = default_buffer_prototype()
    if not box:
        out[...] = run_coroutine(array.async_array.getitem(()))
        return
    where = tuple(slice(lo, hi) for lo, hi in box)
    buffer = prototype.nd_buffer.from_ndarray_like(out)
    run_coroutine(
        array.async_array.get_orthogonal_selection(where, out=buffer, prototype=prototype)
    )


def write_box(array: Any, box: Box, values: Values) -> None:
    """**Local.** Write whole chunks or shards; in a thread of ``Workers``."""
    where = tuple(slice(lo, hi) for lo, hi in box)
    run_coroutine(array.async_array.setitem(where, values))


def create_array(
    store: CountedStore,
    name: str,
    *,
    shape: Sequence[int],
    dtype: Any,
    chunks: Sequence[int],
    shards: Sequence[int] | None = None,
    codecs: Sequence[Mapping[str, Any]] | None = None,
    filters: Sequence[Mapping[str, Any]] = (),
    fill: Any = None,
    attributes: Mapping[str, Any] | None = None,
    dims: Sequence[str | None] | None = None,
) -> Any:
    """**Local.** A new array of Zarr 3 without elements; ``codecs=None`` is Zarr's own choice, zstd."""
    return zarr.create_array(
        store,
        name=name or None,
        shape=tuple(shape),
        dtype=dtype,
        chunks=tuple(chunks),
        shards=None if shards is None else tuple(shards),
        compressors="auto" if codecs is None else [dict(one) for one in codecs] or None,
        filters=[dict(one) for one in filters] or "auto",
        fill_value=fill,
        attributes=dict(attributes or {}),
        dimension_names=None if dims is None else list(dims),
        zarr_format=3,
    )


def create_group(store: CountedStore, name: str, attributes: Mapping[str, Any]) -> None:
    """**Local.** A new group of Zarr 3."""
    zarr.create_group(store, path=name, attributes=dict(attributes), zarr_format=3)


def consolidate(store: CountedStore) -> None:
    """**Local.** Put the metadata of all arrays beside those of the group, as xarray does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr 3 has no specification of it yet; readers exist
        zarr.consolidate_metadata(store)


# What a store says of itself.


def members(path: str) -> tuple[Any, dict[str, Any], bool]:
    """**Local.** What lies at a path: an array or a group, its members by name, and if it is consolidated."""
    found = zarr.open(CountedStore(path), mode="r")
    if isinstance(found, zarr.Array):
        return found, {}, False
    inside = dict(found.members(max_depth=None))
    return found, inside, found.metadata.consolidated_metadata is not None


def is_array(one: Any) -> bool:
    """Whether a member is an array, not a group."""
    return isinstance(one, zarr.Array)


def parts_of(array: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The smallest parts of an array that can be read by themselves, and its shards, if it has some."""
    chunks, shards = tuple(array.chunks), array.shards
    if shards is None:
        return chunks, None
    alone = len(array.metadata.codecs) == 1  # a codec around shards hides what is in them
    return (chunks if alone else tuple(shards)), tuple(shards)


def codecs_of(array: Any) -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]]]:
    """The compressors of an array as Zarr 3 names them, None if it does not know them, and the filters."""
    if array.metadata.zarr_format == 3:
        compressors, filters = array.compressors, array.filters
        return [one.to_dict() for one in compressors], [one.to_dict() for one in filters]
    if not array.compressors:
        return [], []
    (old,) = array.compressors
    return _new_codec(old.get_config(), array.dtype.itemsize), []


def _new_codec(old: Mapping[str, Any], itemsize: int) -> list[dict[str, Any]] | None:
    """A compressor of Zarr 2 in the words of Zarr 3."""
    match old.get("id"):
        case "zstd":
            return [{"name": "zstd", "configuration": {"level": old["level"], "checksum": False}}]
        case "gzip" | "zlib":
            return [{"name": "gzip", "configuration": {"level": old["level"]}}]
        case "blosc":
            shuffle = ("noshuffle", "shuffle", "bitshuffle")
            kind = old.get("shuffle", 1)
            chosen = shuffle[kind] if kind >= 0 else shuffle[2 if itemsize == 1 else 1]
            settings = {
                "cname": old["cname"], "clevel": old["clevel"], "shuffle": chosen,
                "typesize": itemsize, "blocksize": old.get("blocksize", 0),
            }  # fmt: skip
            return [{"name": "blosc", "configuration": settings}]
        case _:
            return None
