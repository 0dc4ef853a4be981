"""Reading PyTorch files: what ``torch.save`` wrote, and folders of distributed checkpoints (DCP)."""

from __future__ import annotations

import math
import pickle
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from numpy.typing import NDArray
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata

from redist.check.boxes import Boxes, BoxRow, BufferRow, c_strides
from redist.check.run_rows import copied
from redist.errors import ArgumentError, LayoutError, ReadError
from redist.layout.dtype import DType
from redist.text.columns import one_line
from redist.torch.layouts import from_torch

Arrays = dict[str, tuple[NDArray[Any], DType]]
Read = tuple[Arrays, dict[str, Any], list[str]]
"""Arrays by name; numbers and texts beside them; names of what is neither."""
BITS = {1: torch.uint8, 2: torch.int16}


def read_pt(path: str) -> Read:
    """**Local.** What ``torch.save`` wrote, read with ``weights_only=True``: no other objects are made.

    Keys of nested dicts and indices of lists are joined by dots: ``optimizer.state.0.step``.
    """
    try:
        found = _load(path)
    except pickle.UnpicklingError as problem:
        told = one_line(problem)
        what = re.search(r"Unsupported \w+: (?:GLOBAL )?(\S+)", told)
        raise ReadError(
            f"cannot read {path!r}: it has more than weights ({what[1] if what else told[:200]}); "
            "save its state_dict alone"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, AttributeError) as problem:
        why = getattr(problem, "strerror", None) or one_line(problem)[:300]
        raise ReadError(f"cannot read {path!r}: {why}") from None
    arrays: Arrays = {}
    meta: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in _leaves(found):
        if name in arrays or name in meta:
            raise ReadError(f"cannot read {path!r}: two values have the name {name!r}")
        if isinstance(value, torch.Tensor):
            arrays[name] = _as_numpy(path, name, value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            meta[name] = value
        else:
            left_out.append(name)
    return arrays, meta, left_out


def _load(path: str) -> Any:
    """Map the file if it is of the form that can be."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as problem:
        if "mmap can only be used" not in str(problem):
            raise
    return torch.load(path, map_location="cpu", weights_only=True)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What is neither a dict nor a list in these, with names."""
    inside: Any = None
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        inside = enumerate(value)
    if inside is None:
        yield name or "value", value
        return
    for key, one in inside:
        yield from _leaves(one, f"{name}.{key}" if name else str(key))


def _as_numpy(path: str, name: str, tensor: torch.Tensor) -> tuple[NDArray[Any], DType]:
    """The bytes of a tensor as NumPy's array, which shares them."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        what = "quantized" if tensor.is_quantized else f"of layout {tensor.layout}"
        raise ReadError(f"cannot read {name!r} of {path!r}: it is {what}, on {tensor.device}")
    try:
        kind = from_torch(tensor.dtype)
    except LayoutError as problem:
        raise ReadError(f"cannot read {name!r} of {path!r}: {problem}") from None
    plain = tensor.detach().resolve_conj().resolve_neg()
    if kind.extended_name is not None:
        plain = plain.view(BITS[kind.itemsize])
    made: NDArray[Any] = plain.numpy().view(kind.to_numpy())
    return made, kind


def read_dcp(folder: str) -> Read:
    """**Local.** The tensors of a distributed checkpoint, whole, in memory.

    Its ``.metadata`` is a pickle, so reading it can run code. Entries that are not tensors are pickles too;
    they are left out and not read.
    """
    reader = dcp.FileSystemReader(folder)
    try:
        metadata = reader.read_metadata()
        tensors, left_out = {}, []
        for name, one in metadata.state_dict_metadata.items():
            if isinstance(one, TensorStorageMetadata):
                tensors[name] = torch.empty(one.size, dtype=one.properties.dtype)
            else:
                left_out.append(name)
        with warnings.catch_warnings():  # it says that there is one process
            warnings.simplefilter("ignore", UserWarning)
            dcp.load(tensors, storage_reader=reader, no_dist=True)
    except Exception as problem:  # PyTorch raises many kinds
        raise ReadError(f"cannot read {folder!r}: {one_line(problem)[:300]}") from problem
    return {name: _as_numpy(folder, name, one) for name, one in tensors.items()}, {}, left_out


def checkpoint_transfer(folder: str) -> tuple[list[tuple[int, ...]], Boxes, Boxes]:
    """**Local.** What loading a distributed checkpoint copies, for :func:`redist.check_runs`.

    The source is the chunks in the files, one buffer each, on the ranks that wrote them. The target is every
    tensor, whole, on one more rank after all of these. Gaps and overlaps of chunks, and chunks without a
    file, therefore show as faults. Only ``.metadata`` is read; it is a pickle, so reading it can run code.
    """
    reader = dcp.FileSystemReader(folder)
    try:
        metadata = reader.read_metadata()
        stored = metadata.storage_data or {}
        files = {at.relative_path for at in stored.values()}
    except Exception as problem:  # PyTorch raises many kinds
        raise ReadError(f"cannot read {folder!r}: {one_line(problem)[:300]}") from problem
    rank_of = {file: int((re.findall(r"\d+", file) or [0])[0]) for file in files}
    reading = max(rank_of.values(), default=-1) + 1
    shapes: dict[str, tuple[int, ...]] = {}
    chunks: list[BufferRow] = []
    held: list[BoxRow] = []
    wholes: list[BufferRow] = []
    asked: list[BoxRow] = []
    runs: list[tuple[int, ...]] = []
    for name, one in metadata.state_dict_metadata.items():
        if not isinstance(one, TensorStorageMetadata):
            continue
        whole, item = tuple(one.size), one.properties.dtype.itemsize
        shapes[name] = whole
        strides = c_strides(whole, item)
        for chunk in one.chunks:
            lo, shape = tuple(chunk.offsets), tuple(chunk.sizes)
            file = stored.get(MetadataIndex(name, chunk.offsets))
            rank = 0 if file is None else rank_of[file.relative_path]
            if file is not None:
                held.append((len(chunks), name, lo, shape, 0, None, item))
            begin = sum(a * b for a, b in zip(lo, strides, strict=True))
            for at, to, *rest in copied(shape, item, (0, c_strides(shape, item)), (begin, strides)):
                here, there = rest[2], rest[3]
                runs.append((0, len(chunks), at, len(wholes), to, *rest[:2], here, there))
            chunks.append((rank, f"{name}{list(lo)}", math.prod(shape) * item))
        asked.append((len(wholes), name, (0,) * len(whole), whole, 0, None, item))
        wholes.append((reading, name, math.prod(whole) * item))
    try:
        return runs, Boxes.of(shapes, chunks, held), Boxes.of(shapes, wholes, asked)
    except ArgumentError as problem:
        raise ReadError(f"cannot judge {folder!r}: {problem}") from None
