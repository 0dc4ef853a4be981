"""Datatypes of MPI as a list of strided blocks, in as few as can be.

Whatever a datatype is made of, its type map is a sequence of blocks of bytes. A repetition of one block is a
block with one dim more; what lies side by side on both sides is one run. So a vector of vectors is one
block of few dims, however many elements it has::

    hvector(2, vector(3, 1, stride 4, double))     2 times 3 times 8 bytes
    packed   at 0, strides 24, 8                   source   at 0, strides 104, 32
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mpi4py import MPI

from redist.errors import RequestError
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided, canonical

PACKED, BUFFER = 0, 1
"""The buffers of a copy: packed bytes, and the memory that a datatype describes."""
_LEAST_ROW = 3
"""Blocks in a row become a dim from this many on; two may be neighbours by chance."""

Blocks = tuple[BufferCopy, ...]


@dataclass(frozen=True, slots=True)
class StridedType:
    """A datatype: copies from the memory that it describes into packed bytes, in the order of its type map.

    ``n_bytes`` is what one element packs, ``extent`` how far the next one lies, and ``low`` and ``high``
    where the bytes of one begin and end.

    >>> made = StridedType.of(MPI.DOUBLE.Create_vector(3, 1, 4).Create_hvector(2, 1, 104))
    >>> made.n_bytes, made.low, made.high, [block.form for block in made.blocks]
    (48, 0, 176, [Strided(block=8, dims=((2, 24, 104), (3, 8, 32)))])
    """

    blocks: Blocks
    n_bytes: int
    extent: int
    low: int
    high: int

    @staticmethod
    def of(datatype: MPI.Datatype) -> StridedType:
        """**Local.** Read a datatype; it need not be committed."""
        blocks = _joined(_read(datatype))
        low = min((_ends(block)[0] for block in blocks), default=0)
        high = max((_ends(block)[1] for block in blocks), default=0)
        return StridedType(blocks, datatype.Get_size(), datatype.Get_extent()[1], low, high)

    def times(self, count: int) -> Blocks:
        """So many elements, one after another."""
        if count == 1:
            return self.blocks
        return _joined(_repeat(self.blocks, count, self.n_bytes, self.extent))

    def span(self, count: int) -> tuple[int, int]:
        """Where the bytes of so many elements begin and end.

        >>> StridedType.of(MPI.INT.Create_resized(0, -8)).span(3)
        (-16, 4)
        """
        if not count or not self.n_bytes:
            return 0, 0
        far = (count - 1) * self.extent
        return self.low + min(0, far), self.high + max(0, far)


def turned(blocks: Iterable[BufferCopy]) -> Blocks:
    """The copies back, from packed bytes into the memory that a datatype describes."""
    return tuple(
        BufferCopy(one.src, one.src_offset, one.dst, one.dst_offset, _turned(one.form))
        for one in blocks
    )


def _turned(form: Strided) -> Strided:
    return _form(form.block, [(count, of, to) for count, to, of in form.dims])


def _form(block: int, dims: Sequence[tuple[int, int, int]]) -> Strided:
    """The canonical form of blocks over dims of (count, stride in packed bytes, in memory)."""
    counts, to, of = zip(*dims, strict=True) if dims else ((), (), ())
    return canonical(counts, block, to, of)


def _ends(block: BufferCopy) -> tuple[int, int]:
    """Where the bytes of a block begin and end in the memory that is described."""
    low = high = block.src_offset
    for count, _, step in block.form.dims:
        low += min(0, (count - 1) * step)
        high += max(0, (count - 1) * step)
    return low, high + block.form.block


# What datatypes are made of, one kind after another


class _Base(NamedTuple):
    """The datatype that another one is made of: its blocks, its size and its extent."""

    blocks: Blocks
    n_bytes: int
    extent: int

    def row(self, count: int) -> Blocks:
        """So many side by side."""
        return _repeat(self.blocks, count, self.n_bytes, self.extent)


def _read(datatype: MPI.Datatype) -> Blocks:
    """The blocks of a datatype in the order of its type map, packed without gaps."""
    base, kind, how = datatype.decode()
    if kind == "NAMED" or kind.startswith("F90_"):
        return _named(datatype)
    if kind == "STRUCT":
        bases = [_base(one) for one in how["datatypes"]]
        rows = [base.row(n) for base, n in zip(bases, how["blocklengths"], strict=True)]
        sizes = [base.n_bytes * n for base, n in zip(bases, how["blocklengths"], strict=True)]
        return _in_turn(rows, sizes, how["displacements"])
    read = _KINDS.get(kind)
    if read is None:
        known = ", ".join(("NAMED", "STRUCT", *_KINDS)).lower()
        raise RequestError(f"cannot read a datatype made by {kind.lower()}; known: {known}")
    made = _base(base)
    return read(made, how, 1 if kind.startswith("H") else made.extent)


def _base(datatype: MPI.Datatype) -> _Base:
    """**Local.** Read what another datatype is made of, and free what MPI has made of it for us."""
    try:
        return _Base(_read(datatype), datatype.Get_size(), datatype.Get_extent()[1])
    finally:
        if not datatype.is_predefined:
            datatype.Free()


def _named(datatype: MPI.Datatype) -> Blocks:
    """A number; or two with a gap between or behind them, as ``MPI.DOUBLE_INT`` has."""
    size, (low, extent) = datatype.Get_size(), datatype.Get_true_extent()
    if size == extent:
        return _runs([size], [low])
    index = MPI.INT.Get_size()
    return _runs([size - index, index], [low, low + extent - index])


def _runs(sizes: Sequence[int], places: Sequence[int]) -> Blocks:
    rows: list[Blocks] = [(BufferCopy(PACKED, 0, BUFFER, 0, Strided(n, ())),) for n in sizes]
    return _in_turn(rows, sizes, places)


# ``unit``: the bytes in which a kind counts distances, those of an element; 1 where its name begins with h.


def _vector(base: _Base, how: dict[str, Any], unit: int) -> Blocks:
    length = how["blocklength"]
    return _repeat(base.row(length), how["count"], base.n_bytes * length, how["stride"] * unit)


def _indexed(base: _Base, how: dict[str, Any], unit: int) -> Blocks:
    places = [n * unit for n in how["displacements"]]
    lengths = how["blocklengths"] if "blocklengths" in how else [how["blocklength"]] * len(places)
    rows = {n: base.row(n) for n in set(lengths)}
    return _in_turn([rows[n] for n in lengths], [base.n_bytes * n for n in lengths], places)


def _subarray(base: _Base, how: dict[str, Any], unit: int) -> Blocks:
    """A box of an array, whose dims are repetitions, from the fastest one on."""
    dims = list(zip(how["sizes"], how["subsizes"], how["starts"], strict=True))
    return _box(base, [(size, [(start, n, 0, 1)]) for size, n, start in dims], how["order"])


def _darray(base: _Base, how: dict[str, Any], unit: int) -> Blocks:
    """What one process has of an array that is cut in blocks, or dealt out, along every dim."""
    place, parts = how["rank"], []
    coordinates: list[int] = []
    for n in reversed(how["psizes"]):  # processes are numbered in C order, whatever the array's is
        coordinates.insert(0, place % n)
        place //= n
    rows = zip(
        how["gsizes"], how["distribs"], how["dargs"], how["psizes"], coordinates, strict=True
    )
    for size, way, length, n, at in rows:
        if way == MPI.DISTRIBUTE_NONE:
            n, at, length = 1, 0, size
        elif length == MPI.DISTRIBUTE_DFLT_DARG:
            length = -(-size // n) if way == MPI.DISTRIBUTE_BLOCK else 1
        parts.append((size, _dealt(size, length, n, at)))
    return _box(base, parts, how["order"])


Comb = tuple[int, int, int, int]
"""Indices along a dim: the first, how many lie together, how far on the next of them, how many times."""


def _dealt(size: int, length: int, n: int, at: int) -> list[Comb]:
    """The indices of one of ``n`` among whom blocks are dealt in turn; the last one may be short.

    >>> _dealt(11, 2, 2, 0), _dealt(11, 2, 2, 1), _dealt(3, 2, 2, 1)
    ([(0, 2, 4, 3)], [(2, 2, 4, 2), (10, 1, 0, 1)], [(2, 1, 0, 1)])
    """
    starts = range(at * length, size, n * length)
    whole = sum(start + length <= size for start in starts)
    found = [(starts[0], length, n * length, whole)] if whole else []
    if whole < len(starts):
        found.append((starts[-1], size - starts[-1], 0, 1))
    return found


def _box(base: _Base, dims: Sequence[tuple[int, list[Comb]]], order: int) -> Blocks:
    """The product of indices along dims, each with its size; packed as the array is stored."""
    if order == MPI.ORDER_C:
        dims = list(reversed(dims))
    blocks, step, packed = base.blocks, base.extent, base.n_bytes
    for size, combs in dims:
        rows, sizes, places = [], [], []
        for start, length, far, times in combs:
            inner = _repeat(blocks, length, packed, step)
            rows.append(_repeat(inner, times, packed * length, step * far))
            sizes.append(packed * length * times)
            places.append(start * step)
        blocks = _in_turn(rows, sizes, places)
        step, packed = step * size, sum(sizes)
    return blocks


_KINDS: dict[str, Callable[[_Base, dict[str, Any], int], Blocks]] = {
    "DUP": lambda base, how, unit: base.blocks,
    "RESIZED": lambda base, how, unit: base.blocks,
    "CONTIGUOUS": lambda base, how, unit: base.row(how["count"]),
    "VECTOR": _vector,
    "HVECTOR": _vector,
    "INDEXED": _indexed,
    "HINDEXED": _indexed,
    "INDEXED_BLOCK": _indexed,
    "HINDEXED_BLOCK": _indexed,
    "SUBARRAY": _subarray,
    "DARRAY": _darray,
}


# Blocks put together


def _repeat(blocks: Blocks, count: int, packed: int, step: int) -> Blocks:
    """Blocks so many times, so far apart in packed bytes and in memory."""
    if count == 1 or not blocks:
        return blocks
    if not count:
        return ()
    outer = count, packed, step
    return tuple(replace(b, form=_form(b.form.block, (outer, *b.form.dims))) for b in blocks)


def _in_turn(rows: Sequence[Blocks], sizes: Sequence[int], places: Sequence[int]) -> Blocks:
    """Blocks of these sizes packed one behind another, from places in memory."""
    out, packed = [], 0
    for blocks, n_bytes, place in zip(rows, sizes, places, strict=True):
        for one in blocks:
            at = one.dst_offset + packed, one.src_offset + place
            out.append(BufferCopy(PACKED, at[0], BUFFER, at[1], one.form))
        packed += n_bytes
    return _joined(tuple(out))


def _joined(blocks: Blocks) -> Blocks:
    """Fewer blocks: those side by side become one, those in a row one with a dim more.

    >>> near = [BufferCopy(0, 8 * k, 1, 8 * k, Strided(8, ())) for k in range(3)]
    >>> apart = [BufferCopy(0, 8 * k, 1, 24 * k, Strided(8, ())) for k in range(3)]
    >>> [[one.form for one in _joined(tuple(blocks))] for blocks in (near, apart)]
    [[Strided(block=24, dims=())], [Strided(block=8, dims=((3, 8, 24),))]]
    """
    while len(blocks) > 1:
        found = _in_rows(_side_by_side(blocks))
        if len(found) == len(blocks):
            break
        blocks = found
    return blocks


def _side_by_side(blocks: Blocks) -> Blocks:
    out = [blocks[0]]
    for one in blocks[1:]:
        last = out[-1]
        n = last.form.block
        step = one.dst_offset - last.dst_offset, one.src_offset - last.src_offset
        if step == (n, n) and one.form.dims == last.form.dims:
            out[-1] = replace(last, form=_form(n + one.form.block, one.form.dims))
        else:
            out.append(one)
    return tuple(out)


def _in_rows(blocks: Blocks) -> Blocks:
    out: list[BufferCopy] = []
    at = 0
    while at < len(blocks):
        end = at + 1
        steps = _apart(blocks, at)
        while end < len(blocks) and _apart(blocks, end - 1) == steps and steps is not None:
            end += 1
        n = end - at
        if steps is not None and (n >= _LEAST_ROW or n == len(blocks)):
            dims = (n, *steps), *blocks[at].form.dims
            out.append(replace(blocks[at], form=_form(blocks[at].form.block, dims)))
            at = end
        else:
            out.append(blocks[at])
            at += 1
    return tuple(out)


def _apart(blocks: Blocks, at: int) -> tuple[int, int] | None:
    """How far the next block lies from one, in packed bytes and in memory; None if it has another form."""
    if at + 1 >= len(blocks) or blocks[at + 1].form != blocks[at].form:
        return None
    one, two = blocks[at], blocks[at + 1]
    return two.dst_offset - one.dst_offset, two.src_offset - one.src_offset
