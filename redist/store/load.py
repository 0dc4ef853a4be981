"""Load arrays from a checkpoint into any types on any mesh, whatever wrote it and in whatever layout.

There are two ways; the cheaper one is chosen for each array, unless the caller asks for one::

    slices   each rank reads the contents of its tile straight into it, and nothing moves. A replicated part
             is read by every rank that has it: good if it comes from the page cache or a local disk
    once     each rank reads some rows, every byte is read once, and a plan moves the data: good for network
             file systems, for many replicas, and if tiles have short runs in the file
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError, ReadError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.casts import check_cast
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.names import Names
from redist.names.part import Part
from redist.pgas.creation import Type, new_memory
from redist.pgas.files.shares import look, must_have_data, teller, together
from redist.pgas.global_array import Array
from redist.pgas.tiles.devices import is_gpu
from redist.pgas.tiles.layouts import mesh_of, parse_dims
from redist.pgas.tiles.move import move, tile_shape
from redist.pgas.tiles.tiled import tile_in
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world, world_of
from redist.store.carry import read_part
from redist.store.header import Entry
from redist.store.pieces import pieces_of, shares_of
from redist.store.save import (
    RulesLike,
    agreed,
    casts_of,
    finished,
    rows_type,
    runs_in,
    save_limit,
)
from redist.store.stored import File, Stored, stored
from redist.store.verify import why_wrong

READS = ("auto", "slices", "once")
CALL_S, READ_RATE, MOVE_RATE, NETWORK_RATE = 1.5e-6, 5e9, 4e9, 1e9
"""What a call of the system takes, and bytes a second: read from the page cache, moved, over a network."""
FAR = ("nfs", "lustre", "ceph", "beegfs", "gpfs", "fuse", "9p", "smb", "cifs", "glusterfs")
"""File systems behind a network: what several ranks read travels several times."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An array to be loaded: its type, the named tensors in it, and the way it is read."""

    name: str
    type: ArrayType
    parts: tuple[Part, ...]
    read: str


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """**Local.** What a load will read, move and hold; equal on every rank."""

    path: str
    wanted: tuple[Wanted, ...]
    stored: Stored

    def digest(self) -> str:
        """Text that must be equal on all ranks."""
        return hashlib.blake2b("".join(self.lines()).encode(), digest_size=16).hexdigest()

    def lines(self) -> list[str]:
        """One line of text for each array to be loaded, then one for each array in the checkpoint."""
        lines = [f"{one.name}: {one.type} on {one.type.mesh}, {one.read}" for one in self.wanted]
        found = [f"{e.name} {e.dtype} {e.shape} {e.begin}" for e in self.stored.values()]
        return lines + found

    def read_bytes(self, rank: int) -> int:
        """The bytes that a rank reads from the files."""
        return sum(self._read(one, rank) for one in self.wanted)

    def _read(self, one: Wanted, rank: int) -> int:
        t = one.type if one.read == "slices" else rows_type(one.type)
        total = 0
        for share in shares_of(t, rank):
            for part in one.parts:
                size = self.stored[part.name].dtype.itemsize
                total += (
                    sum(math.prod(piece.counts) for piece in pieces_of(part, share.spans)) * size
                )
        return total

    def held_bytes(self, rank: int) -> int:
        """The bytes of the tiles that a rank holds after the load."""
        shapes = ((one.type, tile_shape(one.type, rank)) for one in self.wanted)
        return sum(math.prod(s) * t.dtype.itemsize for t, s in shapes if s is not None)


def load(
    path: File, types: Type | Mapping[str, Any] | None = None, *, mesh: Any = None, comm: Comm | None = None,
    dtype: Any = None, names: RulesLike = None, limit_bytes: int | str | None = None,
    verify: bool = True, read: str = "auto", device: Any = None, progress: bool | None = None,
) -> dict[str, Array]:  # fmt: skip
    """**Collective over** ``comm``. Load a checkpoint into any types on any mesh, as global arrays by name.

    For example, ``new = redist.load("w.safetensors", {"w": "{}, {x}", "*.bias": None}, mesh=mesh)``. ``path``
    is a safetensors file or a folder of such files, written by any program. ``types`` has types by name or
    glob pattern: the first pattern that matches a name counts, None means the default layout, and an array
    that matches no pattern is not loaded. Without ``types``, all arrays are loaded, in the default layout.

    ``dtype`` casts, as in :func:`redist.save`. ``names`` are rules that say which named tensors an array is
    made of: with ``"*.qkv[q|k|v, :] = *.q, *.k, *.v"``, ``types`` has the type of ``*.qkv``, and its tiles
    are read from ``*.q``, ``*.k`` and ``*.v``. ``verify`` compares checksums if the file has them.

    With ``read="slices"``, each rank reads its own tile; with ``"once"``, each byte is read by one rank and
    then moved; by default, the cheaper way is chosen for each array. In addition to the arrays, a rank uses
    at most ``limit_bytes``, by default 64 MiB; 1 MiB is enough.
    """
    must_have_data(path)
    comm = comm_or_world(comm)
    found = look(comm, path, lambda: stored(path))
    error: Exception | None = None
    plan: LoadPlan | None = None
    try:
        limit = save_limit(limit_bytes)
        plan = load_plan(found, types, mesh_of(mesh, comm.size), dtype, names, read, limit)
        _check_mesh(plan, comm)
    except RedistError as problem:
        error = problem
    plan = agreed(comm, "load", path, plan, error)
    tell = teller(comm, "load", path, progress, plan.held_bytes(comm.rank))
    loaded: dict[str, Array] = {}
    with Reader(comm, plan.stored, verify) as reader:
        for one in plan.wanted:
            loaded[one.name] = reader.array(one, device)
            tell(one.type.tile_bytes)
        reader.finish([*dict.fromkeys(part.name for one in plan.wanted for part in one.parts)])
    return loaded


def load_plan(
    found: Stored, types: Any, mesh: Mesh, dtype: Any = None, names: RulesLike = None,
    read: str = "auto", limit: int = 2**26,
) -> LoadPlan:  # fmt: skip
    """**Local.** Plan a load, for a mesh whose ranks need not exist."""
    if read not in READS:
        raise ArgumentError(f"cannot read by {read!r}: need 'auto', 'slices' or 'once'")
    rules, cast_to = Names.of(names), casts_of(dtype)
    shapes = {name: entry.shape for name, entry in found.items()}
    arrays = rules.stored_from(shapes)
    chosen = _chosen(found.path, types, sorted(arrays))
    is_far = _is_far(found.path)
    wanted = []
    for name, given in chosen.items():
        parts = rules.parts_of(name, arrays[name], shapes)
        kind = _one_dtype(found, name, parts, given, cast_to)
        t = parse_dims(
            given, given.mesh if isinstance(given, ArrayType) else mesh, kind, arrays[name]
        )
        if t.pending_op is not None:
            raise ArgumentError(f"cannot load {name!r} as {t}: nothing is pending in a new array")
        way = read if read != "auto" else _cheaper(t, parts, limit, is_far)
        wanted.append(Wanted(name, t, parts, way))
    return LoadPlan(found.path, tuple(wanted), found)


def _chosen(path: str, types: Any, names: Sequence[str]) -> dict[str, Any]:
    """The arrays to be loaded and what is said of their types."""
    if types is None:
        return dict.fromkeys(names)
    if not isinstance(types, Mapping):
        raise ArgumentTypeError(
            f"cannot load {path!r} with types={types!r}: need a dict of types by name, as in "
            "{'w': '{x}, {}', '*': None}"
        )
    used: set[str] = set()
    chosen: dict[str, Any] = {}
    exact = {pattern for pattern in types if not set(pattern) & set("*?[")}
    globs = [pattern for pattern in types if pattern not in exact]
    for name in names:
        found = name if name in exact else next((g for g in globs if fnmatchcase(name, g)), None)
        if found is not None:
            chosen[name] = types[found]
            used.add(found)
    unused = [pattern for pattern in types if pattern not in used and pattern != "*"]
    if unused:
        some = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
        raise ArgumentError(
            f"cannot load {unused[0]!r} of {path!r}: it matches none of {len(names)} arrays ({some})"
        )
    return chosen


def _one_dtype(found: Stored, name: str, parts: Sequence[Part], given: Any, cast_to: Any) -> DType:
    """The dtype of an array in memory: the one that its type says, or that is asked for, or the file's."""
    for part in parts:
        if part.name not in found:
            raise ArgumentError(
                f"cannot load {name!r} of {found.path!r}: it is made of {part.name!r}, which is not there"
            )
    kinds = {found[part.name].dtype for part in parts}
    own = found[parts[0].name].dtype if parts else DType.parse("f32")
    if isinstance(given, ArrayType):
        kind = given.dtype
    elif isinstance(given, str) and "[" in given:
        kind = DType.parse(given.partition("[")[0].strip())
    else:
        kind = cast_to(name, own)
        if len(kinds) > 1 and kind == own:
            raise ArgumentError(
                f"cannot load {name!r} of {found.path!r}: it has {', '.join(sorted(map(str, kinds)))}; "
                "say dtype="
            )
    for part in parts:
        check_cast(part.name, found[part.name].dtype, kind)
    return kind


def _check_mesh(plan: LoadPlan, comm: Comm) -> None:
    for one in plan.wanted:
        if max(one.type.mesh.ranks) >= comm.size:
            raise ArgumentError(
                f"cannot load {one.name!r} as {one.type} on mesh {one.type.mesh}: the communicator has "
                f"{comm.size} ranks"
            )


def _is_far(path: str) -> bool:
    """**Local.** Whether a file lies behind a network, as far as the system says."""
    real = os.path.realpath(path)
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    best, kind = "", ""
    for line in lines:
        _, place, fs, *_ = line.split(" ")
        if len(place) > len(best) and (real == place or real.startswith(place.rstrip("/") + "/")):
            best, kind = place, fs
    return kind.startswith(FAR)


def _cheaper(t: ArrayType, parts: Sequence[Part], limit: int, is_far: bool) -> str:
    """The cheaper way to read an array; the same on every rank, of which the first stands for all."""
    p = t.mesh.n_devices
    if p == 1 or rows_type(t).tile_bytes > limit:
        return "slices"
    runs, n_bytes = _runs(t, parts)
    _, n_rows = _runs(rows_type(t), parts)
    rate = NETWORK_RATE if is_far else READ_RATE
    together_too = p if is_far else 1
    slices = runs * CALL_S + n_bytes * together_too / rate
    once = n_rows * together_too / rate + (n_rows + t.tile_bytes) / MOVE_RATE + 1e-4
    return "slices" if slices <= once else "once"


def _runs(t: ArrayType, parts: Sequence[Part]) -> tuple[int, int]:
    """Runs and bytes that the first rank of a type's mesh reads."""
    return runs_in(shares_of(t, t.mesh.ranks[0]), parts, t.dtype.itemsize, 1024)


class Reader:
    """Read the arrays of a checkpoint on all ranks, and compare checksums at the end."""

    def __init__(self, comm: Comm, found: Stored, verify: bool) -> None:
        self._comm, self._stored = comm, found
        self.bytes_read = 0
        self._files: dict[int, int] = {}
        self._sums: dict[str, NDArray[np.uint32]] = {}
        self._verify = verify and found.has_checksums
        self._problem: Exception | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            os.close(file)

    def array(self, one: Wanted, device: Any) -> Array:
        """**Collective.** Load one array."""
        t = one.type if one.read == "slices" else rows_type(one.type)
        on_gpu = is_gpu(device)
        made = self._empty(t, on_gpu and one.read == "slices")
        try:
            if self._problem is None:
                self._fill(made, one)
        except (OSError, RedistError) as problem:  # the others learn of it when they meet
            self._problem = problem
        if one.read == "slices":
            return made
        self.agree()
        moved = move(made, one.type, asked=True)
        return moved.to_device(device) if on_gpu else moved

    def _empty(self, t: ArrayType, on_gpu: bool) -> Array:
        memory = new_memory(on_gpu)
        own = tile_shape(t, self._comm.rank)
        memory.check_room(t.tile_bytes)
        tile = None if own is None else memory.empty(own, t.dtype.named_numpy(), t.tile_bytes)
        return Array(t, self._comm, tile, memory)

    def _fill(self, made: Array, one: Wanted) -> None:
        """**Local.** Read this rank's tile."""
        t = made.type
        tile = t.dtype.raw(tile_in(made))
        if tile is None:
            return
        if tile.size and any(_has_padding(part, t) for part in one.parts):
            tile[...] = 0
        for share in shares_of(t, self._comm.rank):
            for part in one.parts:
                entry = self._stored[part.name]
                checks = self._verify and share.is_own
                checked = entry.checked(self._rows(entry)) if checks else None
                file = self._file(entry.file)
                self.bytes_read += read_part(file, part, entry, t.dtype, share.spans, tile, checked)

    def _rows(self, entry: Entry) -> NDArray[np.uint32]:
        found = self._sums.get(entry.name)
        if found is None:
            found = self._sums[entry.name] = np.zeros(entry.n_blocks, np.uint32)
        return found

    def _file(self, which: int) -> int:
        found = self._files.get(which)
        if found is None:
            found = os.open(self._stored.files[which], os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self._files[which] = found
        return found

    def agree(self) -> None:
        """**Collective.** Raise an error on all ranks if any rank could not read."""
        with together(self._comm, self._stored.path):
            if isinstance(self._problem, OSError) and self._problem.errno == errno.ENODATA:
                raise ReadError(f"cannot read {self._stored.path!r}: it became shorter")
            if self._problem is not None:
                raise self._problem

    def finish(self, names: Sequence[str]) -> None:
        """**Collective.** Compare the checksums of everything that was read."""
        self.agree()
        if not self._verify:
            return
        entries = [self._stored[name] for name in names]
        rows = [self._rows(entry) for entry in entries]
        every = np.concatenate(rows) if rows else np.zeros(0, np.uint32)
        world = world_of(self._comm)
        with world.operation(TIMEOUT_S):
            world.all_xor(every)
        for entry, crcs in zip(entries, finished(entries, every), strict=True):
            assert entry.crc is not None
            for i, (crc, said) in enumerate(zip(crcs, entry.crc, strict=True)):
                if crc != said:
                    raise ReadError(
                        f"cannot load {self._stored.path!r}: {why_wrong(entry.name, i, crc, said)}"
                    )


def _has_padding(part: Part, t: ArrayType) -> bool:
    """Whether a stored array has elements that no named tensor has, as far as one part can say."""
    return math.prod(part.shape) != t.global_elems
