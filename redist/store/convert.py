"""Convert other files to checkpoints: safetensors files or folders of them, ``.npz``, PyTorch files.

Arrays in safetensors and PyTorch files are mapped into memory, not read: writing the new files takes them
from the page cache. Arrays in ``.npz`` files and DCP folders are in memory while the new files are written.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, LayoutError, ReadError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.runtime.ranks.world import comm_or_world
from redist.store.save import RulesLike, save
from redist.store.stored import File, Stored, read_header, stored
from redist.store.verify import wrong_blocks

TORCH_ENDS = (".pt", ".pth", ".bin", ".ckpt")
DCP_METADATA = ".metadata"
OWN_METADATA = "redist"


@dataclass(frozen=True, slots=True)
class Source:
    """The contents of a file: arrays as NumPy holds their bytes, with dtypes, and other values.

    ``left_out`` has the names of entries that are neither.
    """

    arrays: Mapping[str, tuple[NDArray[Any], DType]]
    meta: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def kind_of(path: File) -> str:
    """**Local.** The kind of a file, by its name: ``safetensors``, ``npz``, ``torch`` or ``dcp``.

    >>> kind_of("w.npz"), kind_of("model.safetensors"), kind_of("pytorch_model.bin")
    ('npz', 'safetensors', 'torch')
    """
    name = os.fspath(path)
    if Path(name).is_dir():
        return "dcp" if (Path(name) / DCP_METADATA).exists() else "safetensors"
    if name.endswith(".safetensors"):
        return "safetensors"
    if name.endswith(".npz"):
        return "npz"
    if name.endswith(TORCH_ENDS):
        return "torch"
    if not Path(name).exists():
        raise ReadError(f"cannot read {name!r}: there is no such file or folder")
    raise ArgumentError(
        f"cannot convert {name!r}: need a file that ends in .safetensors, .npz or "
        f"{', '.join(TORCH_ENDS)}, or a folder of safetensors files or of PyTorch's distributed checkpoints"
    )


def convert(
    path: File, out: File, *, shard_bytes: int | str | None = None, dtype: Any = None,
    names: RulesLike = None, progress: bool | None = None,
) -> Source:  # fmt: skip
    """**Local.** Write the contents of a file as a safetensors file, or as a folder if ``out`` names one.

    For example, ``convert("weights.npz", "weights.safetensors")``. If the source has checksums, they are
    compared first. ``shard_bytes``, ``dtype`` and ``names`` are those of :func:`redist.save`.
    """
    if os.fspath(out).endswith((".npz", *TORCH_ENDS)):
        raise ArgumentError(
            f"cannot write {os.fspath(out)!r}: need a name that ends in .safetensors, or a folder's"
        )
    comm = comm_or_world(None)
    if comm.size > 1:
        raise RequestError(f"cannot convert on {comm.size} ranks: one process does it")
    source = read_source(path)
    mesh = Mesh(x=1)
    arrays = {
        name: (tile, ArrayType(mesh, kind, tile.shape, ((),) * tile.ndim))
        for name, (tile, kind) in source.arrays.items()
    }
    if not arrays:
        raise ArgumentError(f"cannot convert {os.fspath(path)!r}: it has no arrays")
    save(
        out, arrays, meta=source.meta or None, dtype=dtype, names=names, shard_bytes=shard_bytes,
        comm=comm, progress=progress,
    )  # fmt: skip
    return source


def read_source(path: File) -> Source:
    """**Local.** Read the arrays of a file of any supported kind."""
    kind = kind_of(path)
    if kind == "safetensors":
        return _of_stored(stored(path))
    if kind == "npz":
        return _of_npz(os.fspath(path))
    try:
        from redist.torch.checkpoints import read_dcp, read_pt
    except ImportError as problem:
        raise ReadError(f"cannot read {os.fspath(path)!r}: {problem}") from None
    arrays, meta, left_out = (read_pt if kind == "torch" else read_dcp)(os.fspath(path))
    return Source(arrays, meta, tuple(left_out))


def _of_stored(found: Stored) -> Source:
    """Arrays mapped out of safetensors files whose checksums, if any, are right."""
    wrong = next(wrong_blocks(found), None)
    if wrong is not None:
        raise ReadError(f"cannot convert {found.path!r}: {wrong}")
    files = [np.memmap(file, np.uint8, "r") for file in found.files]
    arrays = {}
    for name, entry in found.items():
        data: NDArray[Any] = np.asarray(files[entry.file])[entry.begin : entry.end]
        raw = entry.dtype.to_numpy()
        # An array may begin at any byte of the file.
        arrays[name] = (np.ndarray(entry.shape, raw, data.data if data.size else b""), entry.dtype)
    meta = dict(found.meta or {})
    for file in found.files:
        for key, value in read_header(file).metadata.items():
            if key != "format" and key.partition(".")[0] != OWN_METADATA:
                meta.setdefault(key, value)
    return Source(arrays, meta)


def _of_npz(path: str) -> Source:
    """Arrays of NumPy's file; objects, which would be unpickled, are refused."""
    arrays: dict[str, tuple[NDArray[Any], DType]] = {}
    name = ""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            for name in found.files:
                tile = np.asarray(found[name])
                tile = tile.astype(tile.dtype.newbyteorder("="), copy=False)
                arrays[name] = (tile, DType.parse(tile.dtype))
    except LayoutError as problem:
        raise ReadError(f"cannot read {name!r} of {path!r}: {problem}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
        where = f"{name!r} of {path!r}" if name else repr(path)
        why = getattr(problem, "strerror", None) or problem
        raise ReadError(f"cannot read {where}: {why}") from None
    return Source(arrays)
