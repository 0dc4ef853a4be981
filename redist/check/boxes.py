"""One side of a transfer: buffers of ranks, and which boxes of named tensors lie where in them.

A box is a block of a tensor and the place of its elements in a buffer::

    tensor w, 4 x 6                  buffer 'qkv' of rank 1, rows of 8 elements
    . . . . . .                      . . . . . . . .
    . . . . . .                      . . . . . a b c
    . . . a b c   lo (2, 3)          . . . . . d e f
    . . . d e f   shape (2, 3)       offset of a, strides (8, 1) times the itemsize

All that a type with rules, a loader or a checkpoint can say of memory is a list of boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError

Ints = NDArray[np.int64]
Rows = NDArray[np.void]

BufferRow = tuple[int, str, int]
"""Rank, name, bytes."""
BoxRow = tuple[int, str, Sequence[int], Sequence[int], int, "Sequence[int] | None", int]
"""Number of the buffer, tensor, lo, shape, offset, strides (None: in C order), itemsize; bytes."""
MOST = 2**62
"""Addresses, and what is added to them, stay within 64 bits."""


def box_dtype(n_dims: int) -> np.dtype[np.void]:
    """What a box is among those of tensors of so many dims; tensors of fewer have dims of 1 before theirs.

    >>> box_dtype(2).names
    ('buffer', 'tensor', 'itemsize', 'offset', 'lo', 'shape', 'strides')
    """
    plain = [(name, "<i8") for name in ("buffer", "tensor", "itemsize", "offset")]
    return np.dtype([*plain, *((name, "<i8", (n_dims,)) for name in ("lo", "shape", "strides"))])


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Buffers and the boxes in them; ``names``, ``ranks`` and ``sizes`` have one entry a buffer.

    >>> rows = [(0, "w", (0, 0), (2, 6), 0, None, 2), (1, "w", (2, 0), (2, 6), 0, None, 2)]
    >>> print(Boxes.of({"w": (4, 6)}, [(0, "w", 24), (1, "w", 24)], rows))
    2 boxes of 1 tensor in 2 buffers on 2 ranks, 48 B

    ``rows`` is an array of :func:`box_dtype`; its ``tensor`` counts the keys of ``tensors``. Offsets and
    strides are bytes.
    """

    tensors: Mapping[str, tuple[int, ...]]
    names: Sequence[str]
    ranks: Ints
    sizes: Ints
    rows: Rows

    def __post_init__(self) -> None:
        rows, n_dims = self.rows, self.n_dims
        if any(rows.dtype[name].shape != (n_dims,) for name in ("lo", "shape", "strides")):
            raise ArgumentError(
                f"cannot use boxes of {rows.dtype['lo'].shape[0]} dims: tensors have up to {n_dims}; "
                "use box_dtype of the tensor that has most"
            )
        if not len(self.names) == len(self.ranks) == len(self.sizes):
            raise ArgumentError(
                f"cannot use {len(self.names)} names, {len(self.ranks)} ranks and {len(self.sizes)} sizes "
                "of buffers: give one of each for every buffer"
            )
        if (self.sizes < 0).any() or float(self.sizes.sum(dtype=np.float64)) >= MOST:
            raise ArgumentError("cannot use buffers: sizes are bytes, 0 or more, 2**62 in all")
        self.check_boxes("there is no such buffer", _outside(rows["buffer"], len(self.names)))
        self.check_boxes("there is no such tensor", _outside(rows["tensor"], len(self.tensors)))
        self.check_boxes("its itemsize is not 1 or more", rows["itemsize"] < 1)
        shapes = np.ones((max(1, len(self.tensors)), n_dims), dtype=np.int64)
        for number, sizes in enumerate(self.tensors.values()):
            shapes[number, n_dims - len(sizes) :] = sizes
        whole, lo, shape = shapes[rows["tensor"]], rows["lo"], rows["shape"]
        outside = (lo < 0) | (shape < 1) | (lo > whole) | (shape > whole - lo)
        self.check_boxes("it is empty or not inside its tensor", outside.any(axis=1))
        self.check_boxes("it is not inside its buffer", self._reaches_out())

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Sequence[int]],
        buffers: Iterable[BufferRow],
        boxes: Iterable[BoxRow],
    ) -> Boxes:
        """Make a side from plain rows; a box of no elements is left out."""
        shapes = {name: tuple(shape) for name, shape in tensors.items()}
        n_dims = _dims_of(shapes)
        number = {name: k for k, name in enumerate(shapes)}
        found = list(buffers)
        made = []
        for buffer, name, lo, shape, offset, strides, itemsize in boxes:
            if name not in number:
                raise ArgumentError(f"cannot use a box of {name!r}: there is no such tensor")
            steps = c_strides(shape, itemsize) if strides is None else strides
            if not len(lo) == len(shape) == len(steps) == len(shapes[name]):
                raise ArgumentError(
                    f"cannot use a box of {name!r}: lo {list(lo)}, shape {list(shape)} and strides "
                    f"{list(steps)} need {len(shapes[name])} numbers each"
                )
            if 0 in shape:
                continue
            front = n_dims - len(shape)
            sizes = ((0,) * front + tuple(lo), (1,) * front + tuple(shape))
            row = (buffer, number[name], itemsize, offset, *sizes, (0,) * front + tuple(steps))
            made.append(row)
        try:
            numbers: list[Sequence[int]] = [(*row[:4], *row[4], *row[5], *row[6]) for row in made]
            numbers += [*shapes.values(), *((rank, size) for rank, _, size in found)]
            for one in numbers:
                tuple(index(n) for n in one)  # so that nothing is rounded
            rows = np.array(made, dtype=box_dtype(n_dims))
            ranks = np.array([rank for rank, _, _ in found], dtype=np.int64)
            n_bytes = np.array([size for _, _, size in found], dtype=np.int64)
        except (OverflowError, TypeError, ValueError) as problem:
            raise ArgumentError(f"cannot use boxes: {problem}; give whole numbers") from None
        return cls(shapes, [str(name) for _, name, _ in found], ranks, n_bytes, rows)

    def __str__(self) -> str:
        from redist.text.units import count_of, format_bytes

        ranks = count_of(len(np.unique(self.ranks)), "rank")
        boxes = "1 box" if len(self.rows) == 1 else f"{len(self.rows)} boxes"
        within = f"{count_of(len(self.tensors), 'tensor')} in {count_of(len(self.names), 'buffer')}"
        return f"{boxes} of {within} on {ranks}, {format_bytes(int(self.bytes_of_boxes().sum()))}"

    @property
    def n_dims(self) -> int:
        """The dims of the tensor that has most; 1 at least."""
        return _dims_of(self.tensors)

    def bytes_of_boxes(self) -> Ints:
        """Bytes of the elements of every box."""
        elems = np.prod(self.rows["shape"], axis=1, dtype=np.int64)
        return np.asarray(elems * self.rows["itemsize"], dtype=np.int64)

    def _reaches_out(self) -> NDArray[np.bool_]:
        """Which boxes have an element outside their buffer; no number here can grow out of 64 bits."""
        rows = self.rows
        room = self.sizes[rows["buffer"]] - rows["itemsize"] - rows["offset"]
        out = (rows["offset"] < 0) | (rows["offset"] > MOST) | (room < 0)
        for dim in range(self.n_dims):
            more, stride = rows["shape"][:, dim] - 1, rows["strides"][:, dim]
            out |= (more > 0) & ((stride < 0) | (stride > room // np.maximum(more, 1)))
            room = room - np.where(out, 0, more * np.where(more > 0, stride, 0))
        return np.asarray(out)

    def check_boxes(self, reason: str, wrong: NDArray[np.bool_]) -> None:
        """Raise if something is wrong with a box; the first is named."""
        if wrong.any():
            at = int(np.argmax(wrong))
            row = self.rows[at]
            names = list(self.tensors)
            of = names[row["tensor"]] if 0 <= row["tensor"] < len(names) else row["tensor"]
            into = self.names[row["buffer"]] if 0 <= row["buffer"] < len(self.names) else ""
            raise ArgumentError(
                f"cannot use box {at}, of {of!r} in buffer {row['buffer']} {into!r}, lo "
                f"{row['lo'].tolist()}, shape {row['shape'].tolist()}, offset {row['offset']}, strides "
                f"{row['strides'].tolist()}: {reason}"
            )


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order.

    >>> c_strides((4, 6), 2)
    (12, 2)
    """
    out = [itemsize] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        out[dim - 1] = out[dim] * max(1, shape[dim])
    return tuple(out)


def side_of(given: Any) -> Boxes:
    """The boxes of what somebody gave as a side."""
    side = given if isinstance(given, Boxes) else getattr(given, "boxes", None)
    side = side() if callable(side) else side
    if not isinstance(side, Boxes):
        raise ArgumentError(
            f"cannot use {type(given).__name__} as a side of a transfer: need Boxes, or an object whose "
            "boxes() makes them"
        )
    return side


def _dims_of(tensors: Mapping[str, Sequence[int]]) -> int:
    return max([1, *map(len, tensors.values())])


def _outside(number: NDArray[Any], n: int) -> NDArray[np.bool_]:
    return np.asarray((number < 0) | (number >= n))
