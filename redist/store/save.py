"""Save arrays of any layout to one file in C order, written by all ranks at once.

Every rank writes what it holds to the right place in the file. Ranks that hold copies of a part share the
work, so that every byte is written once. If a tile has short runs in the file, the array is first moved to
rows, one block at a time. Ranks need not ask each other where to write: the places follow from names, types
and shapes, which ranks compare by one digest. Checksums are linear (:mod:`redist.runtime.files.kernels`), so
each rank sums up what it wrote, and the sums of all ranks are combined.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole as whole_axis
from redist.layout.casts import check_cast
from redist.layout.dtype import DType
from redist.names import Names
from redist.names.part import Part, whole
from redist.pgas.compare_ranks import by_rank, said_if_different
from redist.pgas.files.blocks import LEAST_BYTES, LIMIT_BYTES, own_parts
from redist.pgas.files.shares import teller
from redist.pgas.tiles.layouts import line_mesh
from redist.pgas.tiles.move import move
from redist.runtime.files.kernels import Checked, zlib_crc
from redist.runtime.files.new_file import NewFile, new_files
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world, world_of
from redist.store.carry import SHORT_BYTES, file_run, write_part
from redist.store.given import Given, given_arrays, of_array
from redist.store.header import BLOCK_BYTES, Entry, NewHeader, split
from redist.store.pieces import Share, Spans, pieces_of, shares_of
from redist.store.stored import INDEX, OUR_FILES, File, file_names, index_bytes, is_one_file
from redist.text.units import format_bytes, limit_from

SHARD_BYTES = 5 * 2**30
"""What a file of a folder holds unless something else is said."""
RulesLike = Names | str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint before it is written: arrays, the named tensors in them, and their files and places."""

    path: str
    given: tuple[Given, ...]
    parts: Mapping[str, tuple[Part, ...]]
    headers: tuple[NewHeader, ...]
    files: tuple[str, ...]
    entries: Mapping[str, Entry]

    @property
    def sizes(self) -> dict[str, int | None]:
        """The files of the checkpoint and their sizes in bytes (None for the index of a folder)."""
        sizes: dict[str, int | None] = {
            name: one.n_bytes for name, one in zip(self.files, self.headers, strict=True)
        }
        return sizes if len(self.files) == 1 else {**sizes, INDEX: None}

    def digest(self) -> str:
        """Text that must be equal on all ranks: equal digests mean equal files."""
        said = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            said.update(line.encode())
        for one in self.headers:
            said.update(str((one.length, one.n_bytes)).encode())
        return said.hexdigest()

    def lines(self) -> Iterator[str]:
        """Lines of text: one for each array, one for each named tensor, and one for ``meta``."""
        texts: dict[int, str] = {}
        for one in self.given:
            parts, key = self.parts[one.name], id(one.type)
            if key not in texts:
                texts[key] = f"{one.type} on {one.type.mesh}"
            yield f"{one.name}: {texts[key]}, {len(parts)} tensors, {one.array is None}\n"
        for name, entry in self.entries.items():
            yield f"{name}: {entry.dtype}{list(entry.shape)} at {entry.file}, {entry.begin}\n"
        yield f"meta {self.headers[0].meta}\n"


def drafted(
    path: File, given: Sequence[Given], meta: Mapping[str, Any] | None, dtype: Any, names: RulesLike,
    shard_bytes: int | str | None,
) -> Draft:  # fmt: skip
    """**Local.** Decide where everything goes; the same on every rank, without communication."""
    rules, wanted = Names.of(names), casts_of(dtype)
    described: dict[str, tuple[DType, tuple[int, ...]]] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    for one in given:
        kind = wanted(one.name, one.dtype)
        check_cast(one.name, one.dtype, kind)
        mine = rules.parts_of(one.name, one.type.shape) if rules.rules else whole_of(one)
        kept = []
        for part in mine:
            if part.name not in described:
                described[part.name] = (kind, part.shape)
                kept.append(part)
            elif described[part.name] != (kind, part.shape):
                raise ArgumentError(
                    f"cannot save {one.name!r}: it has {part.name!r}, {kind}{list(part.shape)}, and so has "
                    f"an array before it, {described[part.name][0]}{list(described[part.name][1])}"
                )
        parts[one.name] = tuple(kept)
    single = is_one_file(path)
    shard = limit_from(shard_bytes)
    if single and shard is not None:
        raise ArgumentError(
            f"cannot split {os.fspath(path)!r} into files of {format_bytes(shard)}: its name is that of one "
            "file; give a name without .safetensors, which makes a folder"
        )
    groups = split(described, None if single else shard or SHARD_BYTES)
    headers = tuple(
        NewHeader(described, group, meta if i == 0 else None, i) for i, group in enumerate(groups)
    )
    files = ("",) if single else tuple(file_names(len(groups)))
    entries = {entry.name: entry for header in headers for entry in header.entries}
    return Draft(os.fspath(path), tuple(given), parts, headers, files, entries)


def whole_of(one: Given) -> tuple[Part]:
    """The only named tensor in an array that is stored under its own name."""
    return (replace(_whole(one.type.shape), name=one.name),)


@lru_cache(maxsize=4096)
def _whole(shape: tuple[int, ...]) -> Part:
    return whole("", shape)


def casts_of(dtype: Any) -> Any:
    """A function that tells the dtype an array is stored with: the given one, or its own."""
    if dtype is None:
        return lambda name, own: own
    if isinstance(dtype, Mapping):
        pairs = [(pattern, DType.parse(one)) for pattern, one in dtype.items() if one is not None]

        def chosen(name: str, own: DType) -> DType:
            return next((one for pattern, one in pairs if fnmatchcase(name, pattern)), own)

        return chosen
    kind = DType.parse(dtype)

    def floats(name: str, own: DType) -> DType:
        is_float = own.extended_name is not None or own.to_numpy().kind == "f"
        return kind if is_float else own

    return floats


def save(
    path: File, arrays: Mapping[str, Any], *, meta: Mapping[str, Any] | None = None, dtype: Any = None,
    names: RulesLike = None, limit_bytes: int | str | None = None,
    shard_bytes: int | str | None = None, sync: bool = True, comm: Comm | None = None,
    progress: bool | None = None,
) -> None:  # fmt: skip
    """**Collective over the arrays' communicator.** Save arrays of any layout, to be loaded under any other.

    For example, ``redist.save("w.safetensors", {"w": w, "b": b}, meta={"step": 100})``. A path that ends in
    ``.safetensors`` makes one file; any other path makes a folder in Hugging Face's format, with files of
    ``shard_bytes`` (by default 5 GiB). Arrays may be global arrays, on CPUs or GPUs, tiles with types,
    DTensors or jax.Arrays. Dicts may be nested; the names in them are joined by dots. The file depends only
    on names, values and ``meta``, not on layouts or the number of ranks. The package ``safetensors`` can read
    it.

    ``dtype`` casts all floats, or arrays by name or glob pattern: ``{"*.weight": "bf16"}``. ``names`` are
    rules that say which named tensors an array is made of, such as ``"*.qkv[q|k|v, :] = *.q, *.k, *.v"``:
    a fused weight is saved unfused. In addition to its arrays, a rank uses at most ``limit_bytes``, by
    default 64 MiB.

    The checkpoint gets its name last, when everything is on the disk (``sync=False`` leaves that to the
    system). So a load finds either the old or the new checkpoint, complete. If a rank fails, all ranks raise
    the same :class:`~redist.WriteError`, and the old checkpoint is unchanged. What was already written is not
    lost: the next save under this name writes only what is missing.
    """
    error: Exception | None = None
    draft: Draft | None = None
    try:
        given, found = given_arrays(str(path), arrays, comm)
        comm = comm_or_world(comm if found is None else found)
        limit = save_limit(limit_bytes)
        draft = drafted(path, given, meta, dtype, names, shard_bytes)
    except RedistError as problem:
        error, comm = problem, comm_or_world(comm)
    draft = agreed(comm, "save", path, draft, error)
    total = sum(header.n_bytes for header in draft.headers) // comm.size
    tell = teller(comm, "save", path, progress, total)
    with new_files(comm, path, draft.sizes, sync=sync, replaces=OUR_FILES) as out:
        sums = write_all(out, draft, limit, tell, comm.size)
        if sync:
            out.sync()
        out.agree()
        world = world_of(comm)
        with world.operation(TIMEOUT_S):
            for row in sums:
                world.all_xor(row)
        if comm.rank == 0:
            write_heads(out, draft, sums)


def agreed(comm: Comm, verb: str, path: File, draft: Any, error: Exception | None) -> Any:
    """**Collective.** Return the draft if it is the same on all ranks, or raise one error on all."""
    exact = "" if draft is None else f"{path} {draft.digest()}"
    told = said_if_different(comm, f"{exact}|{error}", lambda: _told(draft, error))
    if told is None:
        if error is not None:
            raise error
        return draft
    problems = [one for one, _ in told]
    if any(problems):
        texts = [one or "no error" for one in problems]
        raise RequestError(f"cannot {verb} {str(path)!r}: {by_rank(texts)}")
    lines = [rows for _, rows in told]
    first = next(
        (row for row in zip(*lines, strict=False) if len(set(row)) > 1),
        [f"{len(rows)} lines" for rows in lines],
    )
    raise RequestError(
        f"cannot {verb} {str(path)!r}: ranks give different arrays or options; {by_rank([*first])}; every "
        "rank must make the same call"
    )


def _told(draft: Any, error: Exception | None) -> tuple[str | None, list[str]]:
    if error is not None or draft is None:
        return str(error), []
    return None, [line.strip() for line in draft.lines()] + [f"to {draft.path}, {draft.digest()}"]


def save_limit(limit_bytes: int | str | None) -> int:
    """**Local.** The bytes that a rank may use in addition to its arrays."""
    limit = limit_from(limit_bytes)
    if limit is not None and limit < 4 * LEAST_BYTES:
        raise ArgumentError(
            f"cannot keep to {format_bytes(limit)} a rank: need {format_bytes(4 * LEAST_BYTES)} or more "
            "in addition to the arrays"
        )
    return LIMIT_BYTES if limit is None else limit


def new_sums(headers: Sequence[NewHeader]) -> list[NDArray[np.uint32]]:
    """**Local.** For every file, room for the checksums of its arrays, one after another."""
    return [
        np.zeros(sum(entry.n_blocks for entry in header.entries), np.uint32) for header in headers
    ]


def rows_of(draft: Draft, sums: Sequence[NDArray[np.uint32]]) -> dict[str, Checked]:
    """**Local.** The checksums of every array, as views of the checksums of its file."""
    found: dict[str, Checked] = {}
    for header, row in zip(draft.headers, sums, strict=True):
        at = 0
        for entry in header.entries:
            found[entry.name] = entry.checked(row[at : at + entry.n_blocks])
            at += entry.n_blocks
    return found


def write_all(
    out: NewFile, draft: Draft, limit: int, tell: Any, size: int
) -> list[NDArray[np.uint32]]:
    """**Collective** if arrays are moved. Write this rank's part of all arrays; return its checksums."""
    sums = new_sums(draft.headers)
    rows = rows_of(draft, sums)
    for one in draft.given:
        parts = draft.parts[one.name]
        if not parts:
            continue
        write_array(out, one, parts, draft.entries, rows, limit)
        tell(sum(draft.entries[part.name].nbytes for part in parts) // size)
    return sums


def write_array(
    out: NewFile, one: Given, parts: Sequence[Part], entries: Mapping[str, Entry],
    sums: Mapping[str, Checked], limit: int,
) -> None:  # fmt: skip
    """**Collective** if the array is moved. Write this rank's part of an array."""
    one = one.settled()
    if one.array is not None and best_route(one.type, parts, limit) == "rows":
        if _is_whole(one, parts) and not one.type.segments:
            entry = entries[parts[0].name]
            for piece in own_parts(one.array, limit):
                spans: Spans = (((piece.first, piece.values.size, 0),),)
                flat = Part(entry.name, (entry.nbytes,), (one.array.size,), (0,), (1,), (0,))
                write_part(
                    out, flat, entry, one.dtype, spans, piece.values.reshape(-1), sums[entry.name]
                )
            return
        one = of_array(one.name, move(one.array, rows_type(one.type), asked=True))
    for ranges, tile in one.own_parts():
        for part in parts:
            write_part(out, part, entries[part.name], one.dtype, ranges, tile, sums[part.name])


def _is_whole(one: Given, parts: Sequence[Part]) -> bool:
    """Whether a stored array is one named tensor in the same order."""
    return (
        len(parts) == 1
        and parts[0].digits == one.type.shape
        and parts[0].dims == tuple(range(one.type.ndim))
    )


@lru_cache(maxsize=4096)
def rows_type(t: ArrayType) -> ArrayType:
    """A type whose first long dim is cut over all ranks of the mesh, so that runs in the file are long."""
    mesh = t.mesh
    line = line_mesh(mesh.n_devices)
    if tuple(mesh.ranks) != tuple(line.ranks):
        line = type(mesh)({"x": mesh.n_devices}, ranks=sorted(mesh.ranks))
    lead = next((d for d, n in enumerate(t.shape) if n > 1), 0)
    dims = tuple((whole_axis(line, "x"),) if d == lead else () for d in range(t.ndim))
    return ArrayType(line, t.dtype, t.shape, dims)


def best_route(t: ArrayType, parts: Sequence[Part], limit: int) -> str:
    """The best way to write: ``direct``, every rank its own tile; ``rows``, move the array to rows first.

    The answer is the same on every rank, because it is computed for the first rank of the mesh.
    """
    runs, n_bytes = runs_in(shares_of(t, t.mesh.ranks[0])[:8], parts[:8], t.dtype.itemsize, 256)
    if n_bytes >= SHORT_BYTES * runs or n_bytes <= 2**16 or t.mesh.n_devices == 1:
        return "direct"
    is_blocked = not t.segments and len(parts) == 1
    return "rows" if is_blocked or rows_type(t).tile_bytes <= limit else "direct"


def runs_in(
    shares: Sequence[Share], parts: Sequence[Part], itemsize: int, most: int
) -> tuple[int, int]:
    """Runs in the files, and bytes, that shares have of parts; of each at most so many pieces count."""
    runs = n_bytes = 0
    for share, part in product(shares, parts):
        for piece in islice(pieces_of(part, share.spans), most):
            total = math.prod(piece.counts) * itemsize
            steps = [step * itemsize for step in piece.steps]
            runs += total // max(1, file_run(piece.counts, steps, itemsize))
            n_bytes += total
    return runs, n_bytes


def write_heads(out: NewFile, draft: Draft, sums: Sequence[NDArray[np.uint32]]) -> None:
    """**Local.** Write the headers, and the index of a folder, once all data is written."""
    for i, (header, row) in enumerate(zip(draft.headers, sums, strict=True)):
        out.write(header.bytes(finished(header.entries, row)), 0, i)
    if len(draft.files) > 1:
        out.write(index_bytes(draft.entries, list(draft.files)), 0, len(draft.files))


def finished(entries: Sequence[Entry], sums: NDArray[np.uint32]) -> list[list[int]]:
    """**Local.** The CRC of every block as zlib computes it, from the sums of all ranks."""
    found, at = [], 0
    plain = sums.tolist()
    for entry in entries:
        sizes = [min(BLOCK_BYTES, entry.nbytes - lo) for lo in range(0, entry.nbytes, BLOCK_BYTES)]
        found.append([zlib_crc(plain[at + i], n) for i, n in enumerate(sizes)])
        at += len(sizes)
    return found
