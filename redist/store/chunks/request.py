"""What a rechunk asks for: chunks and shards by dim, arrays of a store, codecs; and the plan of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redist.errors import ArgumentError, NoPlanError, RequestError
from redist.pgas.files.heads import ArrayHead, StoreHead, check_elements
from redist.pgas.tiles.layouts import dtype_of
from redist.store.chunks.grids import Shape
from redist.store.chunks.plan import NamedPlan, RechunkPlan
from redist.store.chunks.ways import ArrayRequest, plan_array, slab
from redist.text.units import ceil_div

Sizes = int | str | Sequence[int | str] | Mapping[str, int | str] | None
"""Chunks or shards as users give them; ``"all"`` or -1 is a whole dim."""
NPY_BYTES = 4 * 2**20
"""A file of NumPy is written in slabs of this size."""
INDEX_BYTES = 20
"""What the index of a shard has for each chunk, and its checksum."""
CODECS = {"zstd": 0, "gzip": 5, "blosc": 5}
"""The codecs that can be named, and the level of each if none is given."""


def read_sizes(text: str) -> Sizes:
    """Sizes from a command line: by name, or by position.

    >>> read_sizes("time=8760,lat=72"), read_sizes("8760,all")
    ({'time': '8760', 'lat': '72'}, ['8760', 'all'])
    """
    words = [word.strip() for word in text.split(",")]
    if not any("=" in word for word in words):
        return words
    pairs = [word.partition("=") for word in words]
    if not all(name and sign and size for name, sign, size in pairs):
        raise RequestError(
            f"cannot read {text!r} as sizes of dims; write time=8760,lat=72, or 8760,72 for all dims in order"
        )
    return {name.strip(): size.strip() for name, _, size in pairs}


def codecs_from(text: str | None) -> list[dict[str, Any]] | None:
    """The codec that a text names, with its level; None where the source's own is kept.

    >>> codecs_from("gzip:9"), codecs_from("none"), codecs_from(None)
    ([{'name': 'gzip', 'configuration': {'level': 9}}], [], None)
    """
    if text is None or text == "none":
        return None if text is None else []
    name, _, level = text.partition(":")
    if name not in CODECS or (level and not level.isdecimal()):
        raise ArgumentError(
            f"cannot use codec={text!r}: need one of {', '.join(CODECS)} with or without a level, as in "
            "'zstd:3', or 'none'"
        )
    number = int(level) if level else CODECS[name]
    settings: dict[str, Any] = {"level": number}
    if name == "zstd":
        settings["checksum"] = False
    if name == "blosc":
        settings = {"cname": "zstd", "clevel": number, "shuffle": "shuffle", "blocksize": 0}
    return [{"name": name, "configuration": settings}]


def wanted_arrays(head: StoreHead, leave_out: Sequence[str]) -> tuple[ArrayHead, ...]:
    """The arrays of a store that the target shall have."""
    names = [one.name for one in head.arrays]
    unknown = [name for name in leave_out if name not in names]
    if unknown:
        raise ArgumentError(
            f"cannot leave out {unknown[0]!r}: {head.path!r} has {', '.join(names) or 'no arrays'}"
        )
    arrays = tuple(one for one in head.arrays if one.name not in leave_out)
    for one in arrays:
        check_elements(head.path, one.name, one.dtype, "leave_out=")
    if not arrays:
        raise ArgumentError(f"cannot rechunk {head.path!r}: it has no arrays")
    return arrays


def plan_store(
    head: StoreHead, target: str, chunks: Sizes, shards: Sizes, limit_bytes: int, ranks: int,
    threads: int, codec: str | None, leave_out: Sequence[str],
) -> RechunkPlan:  # fmt: skip
    """The plan of a whole store. Pure: the same on every rank for the same head."""
    arrays = wanted_arrays(head, leave_out)
    codecs = codecs_from(codec)
    _check_names(head, arrays, chunks, "chunks")
    _check_names(head, arrays, shards, "shards")
    to_npy = target.endswith(".npy")
    if to_npy:
        _check_npy(head, arrays, target, chunks, shards)
    plans = []
    for one in arrays:
        if to_npy:
            new, outer, copied = None, None, False
            units = slab(one.shape, one.dtype.itemsize, most_bytes=NPY_BYTES)
        else:
            new, outer, copied = _new_chunks(one, chunks, shards)
            units = outer or new
        own = codecs if codecs is not None else one.codecs
        request = ArrayRequest(
            one.shape, one.dtype.itemsize, one.parts, units, limit_bytes, ranks, threads, one.decodes,
            not to_npy and own != [], one.by_columns, INDEX_BYTES if one.shards else 0,
        )  # fmt: skip
        try:
            plan = plan_array(request)
        except NoPlanError as error:
            if not one.name:
                raise
            raise NoPlanError(
                str(error).replace("rechunk", f"rechunk {one.name}", 1), error.least_bytes
            ) from None
        dtype = one.dtype.newbyteorder("=")
        name = str(dtype_of(dtype)) if dtype.kind in "biufc" else dtype.name
        plans.append(NamedPlan(one.name, name, one.dims, one.parts, new, outer, copied, plan))
    return RechunkPlan(head.path, target, ranks, limit_bytes, tuple(plans))


def _check_npy(
    head: StoreHead, arrays: Sequence[ArrayHead], target: str, chunks: Sizes, shards: Sizes
) -> None:
    if len(arrays) != 1:
        names = ", ".join(one.name for one in arrays)
        raise ArgumentError(
            f"cannot write {head.path!r} to {target!r}: such a file has one array, and there are {names}; "
            "leave the others out, or write to a Zarr store"
        )
    if chunks is not None or shards is not None:
        raise ArgumentError(
            f"cannot write chunks to {target!r}: a file of NumPy has none; leave chunks and shards out"
        )


def _check_names(head: StoreHead, arrays: Sequence[ArrayHead], sizes: Sizes, what: str) -> None:
    """Raise if sizes name a dim that no array has, or have no names where arrays differ."""
    if isinstance(sizes, Mapping):
        known = dict.fromkeys(name for one in arrays for name in one.dims or ())
        for name in sizes:
            if name not in known:
                have = f"it has {', '.join(known)}" if known else "its dims have no names"
                hint = "" if known else f"; give {what} by position, as in {what}=(100, 100)"
                raise ArgumentError(
                    f"cannot use {what} for dim {name!r} of {head.path!r}: {have}{hint}"
                )
    elif sizes is not None and len(arrays) > 1:
        names = ", ".join(one.name for one in arrays)
        raise ArgumentError(
            f"cannot use {what}={sizes!r} for {head.path!r}: it has several arrays ({names}); name the "
            f"dims, as in {what}={{'time': 100}}"
        )


def _new_chunks(head: ArrayHead, chunks: Sizes, shards: Sizes) -> tuple[Shape, Shape | None, bool]:
    """Chunks and shards that an array shall have, and whether it is only copied."""
    own = head.parts or slab(head.shape, head.dtype.itemsize)
    named = isinstance(chunks, Mapping) or isinstance(shards, Mapping)
    asked = {name for one in (chunks, shards) if isinstance(one, Mapping) for name in one}
    if (named and not asked & {*(head.dims or ())}) or (chunks is None and shards is None):
        return own, head.shards, named
    new = _sizes(head, chunks, own, "chunks")
    if shards is None:
        return new, None, False
    outer = _sizes(head, shards, new, "shards")
    for dim, (n, size, shard) in enumerate(zip(head.shape, new, outer, strict=True)):
        if shard % size and shard < n:
            down, up = shard // size * size, ceil_div(shard, size) * size
            raise ArgumentError(
                f"cannot use shards of {shard} along {_dim(head, dim)}: chunks of {size} do not fill them; "
                f"give {f'{down} or ' if down else ''}{up}"
            )
    whole = (ceil_div(shard, size) * size for size, shard in zip(new, outer, strict=True))
    return new, tuple(whole), False


def _sizes(head: ArrayHead, sizes: Sizes, own: Shape, what: str) -> Shape:
    """Sizes of all dims, none larger than its dim; those that are not named are as they were."""
    shape = head.shape
    if sizes is None:
        given: list[Any] = list(own)
    elif isinstance(sizes, Mapping):
        given = [sizes.get(name, size) for name, size in zip(head.dims or (), own, strict=True)]
    else:
        given = [sizes] if isinstance(sizes, (int, str)) else list(sizes)
    if len(given) != len(shape):
        raise ArgumentError(
            f"cannot use {what}={sizes!r} for {head.name or 'an array'} of shape {shape}: there are "
            f"{len(given)} sizes and {len(shape)} dims; give one for each dim"
        )
    return tuple(_size(head, dim, one, what) for dim, one in enumerate(given))


def _size(head: ArrayHead, dim: int, given: Any, what: str) -> int:
    n = max(1, head.shape[dim])
    if given in ("all", "-1", -1):
        return n
    try:
        size = int(given) if isinstance(given, str) else given.__index__()
    except (ValueError, AttributeError, TypeError):
        size = 0
    if size < 1 or isinstance(given, bool):
        raise ArgumentError(
            f"cannot use {what}={given!r} along {_dim(head, dim)}: need a whole number of at least 1, or "
            "'all' for the whole dim"
        )
    return min(n, size)


def _dim(head: ArrayHead, dim: int) -> str:
    return f"dim {head.dims[dim]!r}" if head.dims else f"dim {dim}"
