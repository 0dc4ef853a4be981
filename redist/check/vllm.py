"""Transfers of vLLM's weight transfer engines: tensors packed one behind another into buffers.

The trainer sends tensors in the order in which it has them. Workers know of a buffer only what
``update_info`` says: ``names``, ``dtype_names`` and ``shapes``. If the two do not agree, tensors are cut out
of the wrong bytes, and nobody notices. The engines fill a buffer in two ways:

* ``nccl``: until it holds more than ``packed_buffer_size_bytes``; both sides count for themselves, so one
  ``update_info`` is enough;
* ``ipc``: as long as it holds no more than that; there is one ``update_info`` for each buffer, with
  ``tensor_sizes``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from redist.check.boxes import Boxes, BoxRow, BufferRow
from redist.errors import ArgumentError

Run = tuple[int, ...]
Tensor = tuple[str, tuple[int, ...], int, int]
"""Name, shape, itemsize, bytes in a buffer."""
GIB = 2**30


def transfer_of(
    sent: Mapping[str, Any],
    update_infos: Sequence[Mapping[str, Any]],
    *,
    engine: str = "nccl",
    workers: int = 1,
    packed_buffer_size_bytes: int = GIB,
) -> tuple[list[Run], Boxes, Boxes]:
    """Runs, source and target of an update, for :func:`redist.check_runs`; the trainer is rank 0.

    ``sent`` has the tensors as the trainer sends them, with the keys of an ``update_info``.

    >>> import redist
    >>> sent = {"names": ["a", "b"], "dtype_names": ["bfloat16", "bfloat16"], "shapes": [[4, 6], [6, 4]]}
    >>> redist.check_runs(*transfer_of(sent, [sent])).is_right
    True
    >>> told = {**sent, "names": ["b", "a"], "shapes": [[6, 4], [4, 6]]}
    >>> print(redist.check_runs(*transfer_of(sent, [told])).faults[0])
    wrong bytes: byte 0 of 'b' on rank 1, b[0, 0], comes from byte 0 of 'packed 0' on rank 0, a[0, 0] (2 runs)
    """
    if engine not in ("nccl", "ipc"):
        raise ArgumentError(f"cannot use engine={engine!r}: need 'nccl' or 'ipc'")
    beyond = engine == "nccl"
    have = _tensors(sent)
    shapes = {name: shape for name, shape, _, _ in have}
    packed = _packed(have, packed_buffer_size_bytes, beyond)
    told = [_tensors(info) for info in update_infos]
    if beyond:
        told = _packed([one for info in told for one in info], packed_buffer_size_bytes, beyond)
    filled: list[BufferRow] = []
    boxes: list[BoxRow] = []
    for number, tensors in enumerate(packed):
        at = 0
        for name, shape, item, n_bytes in tensors:
            boxes.append((number, name, (0,) * len(shape), shape, at, None, item))
            at += n_bytes
        filled.append((0, f"packed {number}", at))
    filled += [(0, f"packed {k}, never sent", 0) for k in range(len(packed), len(told))]
    buffers: list[BufferRow] = []
    asked: list[BoxRow] = []
    runs: list[Run] = []
    for worker in range(1, workers + 1):
        places = {name: len(buffers) + k for k, (name, *_) in enumerate(have)}
        for name, shape, item, n_bytes in have:
            asked.append((places[name], name, (0,) * len(shape), shape, 0, None, item))
            buffers.append((worker, name, n_bytes))
        for number, tensors in enumerate(told):
            at = 0
            for name, _, _, n_bytes in tensors:
                if name not in places:
                    places[name] = len(buffers)
                    buffers.append((worker, name, n_bytes))
                if n_bytes:
                    runs.append((number, number, at, places[name], 0, n_bytes))
                at += n_bytes
    return runs, Boxes.of(shapes, filled, boxes), Boxes.of(shapes, buffers, asked)


def _tensors(info: Mapping[str, Any]) -> list[Tensor]:
    """What an ``update_info`` lists."""
    try:
        names, dtypes, shapes = (list(info[key]) for key in ("names", "dtype_names", "shapes"))
        sizes = info.get("tensor_sizes") or [None] * len(names)
        out = []
        for name, dtype, shape, size in zip(names, dtypes, shapes, sizes, strict=True):
            item = itemsize_of(dtype)
            n_bytes = math.prod(shape) * item if size is None else int(size)
            out.append((str(name), tuple(shape), item, n_bytes))
        return out
    except (KeyError, TypeError, ValueError) as problem:
        raise ArgumentError(
            f"cannot read an update_info: {type(problem).__name__} {problem}; it has names, dtype_names "
            "and shapes, equally many"
        ) from None


def _packed(tensors: list[Tensor], most: int, beyond: bool) -> list[list[Tensor]]:
    """Tensors by buffer, which ends ``beyond`` its size, with the tensor that is too much, or before it."""
    out: list[list[Tensor]] = []
    room = -1
    for one in tensors:
        if room < 0 or (not beyond and one[3] > room and out[-1]):
            out.append([])
            room = most
        out[-1].append(one)
        room -= one[3]
    return out


def itemsize_of(dtype: str) -> int:
    """Bytes of an element of a dtype, as PyTorch names it.

    >>> [itemsize_of(name) for name in ("bfloat16", "float8_e4m3fn", "bool", "float4_e2m1fn_x2")]
    [2, 1, 1, 1]
    """
    bits = re.match(r"(?:torch\.)?(?:[a-z]+)(\d+)", dtype)
    if dtype.removeprefix("torch.") == "bool":
        return 1
    if bits is None:
        raise ValueError(f"unknown dtype {dtype!r}")
    return max(1, int(bits[1]) // 8)
