"""Blocks between numbered buffers, cast where dtypes differ: prepared once, run at every refit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.layout.casts import cast, check_cast
from redist.layout.dtype import DType
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.kernels import MAX_DIMS

BLOCKS = np.dtype(
    [
        (name, "<i8")
        for name in ("dst", "dst_offset", "dst_step", "dst_type", "src", "src_offset", "src_step",
                     "src_type", "elems", "count")
    ]
)  # fmt: skip
"""``count`` blocks of ``elems`` elements, from buffer ``src`` to buffer ``dst``: numbers of a table of
addresses. Offsets and steps count bytes; types are numbers of a list of dtypes."""
Blocks = NDArray[Any]

GATHERED, CASTED, FIRST = 0, 1, 2
"""Buffers of every table: elements to be cast, the same as another dtype; the first of a user."""
CAST_ELEMS, CAST_ELEMS_ON_GPU = 2**17, 2**22
"""Elements that are cast at once: few enough for the cache, or enough for a launch."""
STREAM_BYTES = 2**22
"""Lists of copies from this size on are written past the cache, if what they write is not read at once."""


@dataclass(frozen=True, slots=True, eq=False)
class CastBatch:
    """Elements brought together, cast, and taken apart."""

    gather: Any
    scatter: Any
    source: DType
    target: DType
    n_elems: int


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Blocks as lists of copies for the host's kernels, or for those of a GPU.

    >>> from redist.runtime.copies.addresses import addresses
    >>> a, b = np.arange(8, dtype="f4"), np.zeros(4, "u2")
    >>> dtypes = [DType.parse("f32"), DType.parse("bf16")]
    >>> every_second = np.array([(3, 0, 2, 1, 2, 0, 8, 0, 1, 4)], BLOCKS)
    >>> table = np.zeros(4, np.uintp)
    >>> table[2:] = addresses([a, b])
    >>> Copies.of(every_second, dtypes).run(table)
    >>> cast(b, dtypes[1], dtypes[0]).tolist()
    [0.0, 2.0, 4.0, 6.0]
    """

    plain: Any
    casts: tuple[CastBatch, ...]
    on_gpu: bool
    waits: bool = False

    @staticmethod
    def of(
        blocks: Blocks,
        dtypes: Sequence[DType],
        on_gpu: bool = False,
        streams: bool = False,
        waits: bool = False,
    ) -> Copies:
        """Prepare blocks.

        With ``streams`` what they write is not read again at once; with ``waits`` a GPU is waited for.
        """
        sizes = np.array([dtype.itemsize for dtype in dtypes] or [1], np.int64)
        same = blocks["src_type"] == blocks["dst_type"]
        plain = _list_of(blocks[same], sizes, on_gpu, streams)
        casts = tuple(_batches(blocks[~same], dtypes, sizes, on_gpu))
        return Copies(plain, casts, on_gpu, waits and on_gpu)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy."""
        return not len(self.plain) and not self.casts

    def run(self, bases: Addresses) -> None:
        """**Local.** Copy; on a GPU, start to, on CuPy's current stream. Two entries of ``bases`` change."""
        if len(self.plain):
            self._copy(self.plain, bases)
        for batch in self.casts:
            values = self._room(batch)
            bases[GATHERED] = begin_of(values)
            self._copy(batch.gather, bases)
            made = cast(values, batch.source, batch.target)
            bases[CASTED] = begin_of(made)
            self._copy(batch.scatter, bases)
        if self.waits and not self.is_empty:
            from redist.runtime.cuda.arrays import current_stream

            current_stream().synchronize()

    def _copy(self, moves: Any, bases: Addresses) -> None:
        if not self.on_gpu:
            moves.run(bases)
            return
        from redist.runtime.cuda.arrays import current_stream

        moves.run(bases, current_stream().ptr)

    def _room(self, batch: CastBatch) -> Any:
        dtype = batch.source.to_numpy()
        if not self.on_gpu:
            return np.empty(batch.n_elems, dtype)
        from redist.runtime.cuda.arrays import empty_on_device

        return empty_on_device((batch.n_elems,), dtype)


def begin_of(array: Any) -> int:
    """The address of the first element, in memory or on a GPU."""
    if isinstance(array, np.ndarray):
        return address_of(array)
    from redist.runtime.cuda.arrays import device_address

    return device_address(array)


def _list_of(blocks: Blocks, sizes: NDArray[np.int64], on_gpu: bool, streams: bool) -> Any:
    """The copies of blocks that need no cast."""
    table = rows_of(blocks, sizes)
    if not on_gpu:
        n_bytes = int(np.sum(table[:, 4] * np.where(table[:, 5], table[:, 6], 1)))
        return CopyList(table, address_of(table), streams and n_bytes >= STREAM_BYTES)
    from redist.runtime.cuda.kernels.rounds import CudaCopyList

    return CudaCopyList.of(CopyList(table, 0).moves())


def rows_of(blocks: Blocks, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Blocks as the rows that the compiled kernel reads: see :class:`CopyList`.

    >>> rows_of(np.array([(2, 0, 8, 0, 3, 4, 8, 0, 2, 5)], BLOCKS), np.array([4]))[0, :7].tolist()
    [2, 0, 3, 4, 40, 0, 0]
    """
    blocks = blocks[blocks["elems"] * blocks["count"] > 0]
    block = blocks["elems"] * sizes[blocks["dst_type"]]
    count, to, of = blocks["count"], blocks["dst_step"], blocks["src_step"]
    joined = (count == 1) | ((to == block) & (of == block))
    table = np.zeros((len(blocks), 6 + 3 * MAX_DIMS), np.int64)
    for column, name in enumerate(("dst", "dst_offset", "src", "src_offset")):
        table[:, column] = blocks[name]
    table[:, 4] = np.where(joined, block * count, block)
    table[:, 5] = ~joined
    for column, values in ((6, count), (6 + MAX_DIMS, to), (6 + 2 * MAX_DIMS, of)):
        table[:, column] = np.where(joined, 0, values)
    return table


# Casts.


def check_casts(name: str, source: DType, target: DType, on_gpu: bool) -> None:
    """**Local.** Raise if the elements of a tensor cannot be cast, or not by a GPU."""
    check_cast(name, source, target)
    for one in (source, target):
        if on_gpu and source != target and one.extended_name and one.name != "bf16":
            raise RequestError(
                f"cannot cast {name!r} from {source} to {target} on a GPU: {one} is not known there; "
                "cast it before the refit"
            )


def _batches(
    blocks: Blocks, dtypes: Sequence[DType], sizes: NDArray[np.int64], on_gpu: bool
) -> Iterator[CastBatch]:
    """Blocks that are cast, in batches of one pair of dtypes each."""
    most = CAST_ELEMS_ON_GPU if on_gpu else CAST_ELEMS
    pairs = np.unique(blocks[["src_type", "dst_type"]])
    for source, target in pairs.tolist():
        alike = blocks[(blocks["src_type"] == source) & (blocks["dst_type"] == target)]
        pieces = _cut(alike, sizes, most)
        n_elems: NDArray[np.int64] = pieces["elems"] * pieces["count"]
        ends = np.cumsum(n_elems)
        start = before = 0
        while start < len(pieces):
            stop = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
            yield _batch(pieces[start:stop], dtypes[source], dtypes[target], sizes, on_gpu)
            start, before = stop, int(ends[stop - 1])


def _batch(
    pieces: Blocks, source: DType, target: DType, sizes: NDArray[np.int64], on_gpu: bool
) -> CastBatch:
    """Pieces that are gathered one behind another, cast, and scattered."""
    n_elems = pieces["elems"] * pieces["count"]
    starts = np.cumsum(n_elems) - n_elems
    gather, scatter = pieces.copy(), pieces.copy()
    gather["dst"], gather["dst_type"] = GATHERED, pieces["src_type"]
    gather["dst_offset"] = starts * source.itemsize
    gather["dst_step"] = pieces["elems"] * source.itemsize
    scatter["src"], scatter["src_type"] = CASTED, pieces["dst_type"]
    scatter["src_offset"] = starts * target.itemsize
    scatter["src_step"] = pieces["elems"] * target.itemsize
    lists = [_list_of(one, sizes, on_gpu, False) for one in (gather, scatter)]
    return CastBatch(lists[0], lists[1], source, target, int(n_elems.sum()))


def _cut(blocks: Blocks, sizes: NDArray[np.int64], most: int) -> Blocks:
    """Blocks of at most so many elements each: fewer blocks a piece, or parts of long ones."""
    out = [blocks[blocks["elems"] * blocks["count"] <= most]]
    for one in blocks[blocks["elems"] * blocks["count"] > most]:
        elems, count = int(one["elems"]), int(one["count"])
        if elems <= most:
            at, size = np.arange(0, count, most // elems), most // elems
            parts = np.repeat(one, len(at))
            parts["count"] = np.minimum(size, count - at)
            for side in ("dst", "src"):
                parts[f"{side}_offset"] += at * one[f"{side}_step"]
        else:
            number, at = (
                axis.ravel()
                for axis in np.meshgrid(np.arange(count), np.arange(0, elems, most), indexing="ij")
            )
            parts = np.repeat(one, len(at))
            parts["count"], parts["elems"] = 1, np.minimum(most, elems - at)
            for side in ("dst", "src"):
                itemsize = sizes[one[f"{side}_type"]]
                parts[f"{side}_offset"] += number * one[f"{side}_step"] + at * itemsize
        out.append(parts)
    return np.concatenate(out)
