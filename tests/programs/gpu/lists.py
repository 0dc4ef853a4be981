"""Random lists of moves between buffers of bytes, and what they must leave there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.dtype import DType
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.reduce import combine_into
from redist.runtime.copies.strided import Strided, c_strides, canonical

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """Copies, the buffers before, and how many bytes past a multiple of 16 each begins."""

    moves: list[BufferCopy]
    buffers: list[Bytes]
    phases: list[int]

    def wanted(self) -> list[Bytes]:
        """The buffers after the moves."""
        out = [buffer.copy() for buffer in self.buffers]
        CopyList.of(self.moves).run(addresses(out))
        return out


def random_case(rng: Random, most: int = 20000, least: int = 1) -> Case:
    """A few moves, each into a buffer of its own or beside others, from anywhere."""
    moves: list[BufferCopy] = []
    sizes: list[int] = []
    for _ in range(rng.randint(1, 4)):
        kinds = (_interleaving, _transpose, _fan, _single)
        (add,) = rng.choices(kinds, weights=(30, 15, 10, 45))
        add(rng, moves, sizes, most, least)
    if rng.random() < 0.05:  # more buffers than are passed by value
        for _ in range(80):
            _single(rng, moves, sizes, 100, least)
    random = np.random.default_rng(rng.randrange(2**32))
    buffers = [random.integers(0, 256, size, np.uint8) for size in sizes]
    return Case(
        moves, buffers, [rng.choice([0, 0, 0, 8, 4, 2, 1, 12, 5]) // least * least for _ in sizes]
    )


@dataclass(frozen=True)
class Reduction:
    """Copies, and what is combined with them in order: ``case`` has the latter."""

    case: Case
    copies: list[BufferCopy]

    def after_copies(self, taken: Collection[BufferCopy] = ()) -> Case:
        """The buffers after the copies, but for those taken."""
        return replace(
            self.case,
            buffers=replace(
                self.case, moves=[move for move in self.copies if move not in taken]
            ).wanted(),
        )

    def wanted(self, op: str, dtype: DType) -> list[Bytes]:
        """The buffers after all, by NumPy."""
        return combined(self.after_copies(), op, dtype)


def random_reduction(rng: Random, most: int, dtype: DType) -> Reduction:
    """Copies of a random case and, for most of their places, up to 4 more partial values.

    Most of those lie as the first one does, some further apart, some otherwise, some are a part.
    """
    first = random_case(rng, most, dtype.itemsize)
    buffers, phases = list(first.buffers), list(first.phases)
    random = np.random.default_rng(rng.randrange(2**32))
    moves: list[BufferCopy] = []

    def another(size: int) -> int:
        buffers.append(random.integers(0, 256, size, np.uint8))
        phases.append(rng.choice([0, 0, 0, 0, 8, 4, 1]) // dtype.itemsize * dtype.itemsize)
        return len(buffers) - 1

    unlike = rng.choice([0, 0, 0.05, 0.3])
    for _ in range(rng.choice([1, 2, 4])):
        there: dict[int, int] = {}
        apart = rng.choice([1, 1, 2])
        for move in first.moves:
            form = move.form
            if rng.random() < unlike:
                counts = [n for n, _, _ in form.dims]
                of = c_strides(counts, form.block)
                dims = [(n, to, at) for (n, to, _), at in zip(form.dims, of, strict=True)]
                form = Strided(form.block, tuple(dims))
                move = replace(move, src=another(form.n_bytes), src_offset=0, form=form)
            else:
                if move.src not in there:
                    there[move.src] = another(apart * buffers[move.src].size)
                move = replace(move, src=there[move.src], src_offset=apart * move.src_offset)
            if form.n_bytes and form.dims and rng.random() < unlike:
                (n, to, at), *rest = form.dims
                part = (max(1, n // 2), to, at)
                move = replace(move, form=Strided(form.block, (part, *rest)))
            moves.append(move)
    if dtype.name == "bool":
        buffers = [buffer & np.uint8(1) for buffer in buffers]
    return Reduction(Case(moves, buffers, phases), first.moves)


CHUNK = 4096
SPREAD = 3 * 2**30 + 16
"""Where emulate.cpp spreads buffers, chunks of this many bytes begin so many bytes apart."""


def spread(number: int) -> int:
    """An offset or a stride in buffers that are spread."""
    return number // CHUNK * SPREAD + number % CHUNK


def spread_move(move: BufferCopy) -> BufferCopy:
    """The same move between buffers that are spread; what is within a chunk stays there."""
    dims = [
        (n, *(step if abs(step) < CHUNK else spread(step) for step in steps))
        for n, *steps in move.form.dims
    ]
    form = Strided(move.form.block, tuple((n, to, of) for n, to, of in dims))
    return BufferCopy(move.dst, spread(move.dst_offset), move.src, spread(move.src_offset), form)


def far_case(rng: Random) -> Case:
    """Copies of boxes of some chunks of a buffer to chunks of another, in any order."""
    insides = (
        (1000, ()),
        (512, ((4, 600, 512),)),
        (4, ((9, 4, 100), (25, 36, 4))),
        (8, ((100, 16, 8),)),
        (1, ((60, 60, 1), (60, 1, 60))),
    )
    moves = []
    for k in range(3):
        block, dims = rng.choice(insides)
        item = min(block, 4)
        n, of = rng.choice([(4, CHUNK), (3, 2 * CHUNK), (4, -CHUNK), (2, 3 * CHUNK)])
        first = (n - 1) * CHUNK if of < 0 else 0
        start = [rng.choice([0, item, 4 * item]) for _ in range(2)]
        form = Strided(block, ((n, CHUNK, of), *dims))
        moves.append(BufferCopy(2 * k, CHUNK + start[0], 2 * k + 1, first + start[1], form))
    random = np.random.default_rng(rng.randrange(2**32))
    buffers = [random.integers(0, 256, 5 * CHUNK, np.uint8) for _ in range(6)]
    return Case(moves, buffers, [0] * 6)


def _shape(rng: Random, most: int) -> list[int]:
    shape: list[int] = []
    for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4, 6, 7])):
        count = rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64, 65, 100, 257, 1000])
        if count == 0 and rng.random() < 0.8:
            continue
        if int(np.prod([max(1, n) for n in shape])) * count <= most:
            shape.append(count)
    return shape


def _layout(
    rng: Random, shape: list[int], item: int, grain: int, permute: bool
) -> tuple[list[int], int, int]:
    """Strides of distinct places, the offset of the first and the bytes that hold all."""
    order = list(range(len(shape)))
    if permute:
        rng.shuffle(order)
    strides = [0] * len(shape)
    step = item
    low = high = 0
    for k in reversed(order):
        if rng.random() < 0.25:
            step += grain * rng.randint(1, 4)
        strides[k] = step if rng.random() < 0.9 else -step
        low += min(0, strides[k] * (shape[k] - 1))
        high += max(0, strides[k] * (shape[k] - 1))
        step *= max(1, shape[k])
    return strides, -low, max(0, high) - low + item


def _single(rng: Random, moves: list[BufferCopy], sizes: list[int], most: int, least: int) -> None:
    item = rng.choice([1, 2, 3, 4, 4, 4, 8, 8, 12, 16, 24, 40]) * least
    if rng.random() < 0.2:
        item = rng.randint(1, 3000) * least
    shape = _shape(rng, max(1, most // item))
    grain = rng.choice([item, item, least, 16])
    to, to_at, to_size = _layout(rng, shape, item, grain, rng.random() < 0.6)
    of, of_at, of_size = _layout(rng, shape, item, grain, rng.random() < 0.6)
    if shape and rng.random() < 0.1 and all(shape):
        k = rng.randrange(len(shape))
        of_at += min(0, of[k] * (shape[k] - 1))
        of[k] = 0
    pad, more = rng.choice([0, 0, 16, 4, 1]) * least, rng.choice([0, 0, 16, 4, 1]) * least
    n = len(sizes)
    moves.append(BufferCopy(n, to_at + pad, n + 1, of_at + more, canonical(shape, item, to, of)))
    sizes += [to_size + pad + 7 * least, of_size + more + 5 * least]


def _interleaving(
    rng: Random, moves: list[BufferCopy], sizes: list[int], most: int, least: int
) -> None:
    """Cyclic columns, of one buffer to many, many to one, or one to one."""
    parts, item = rng.choice([2, 3, 4, 5, 8, 70]), rng.choice([1, 2, 4, 4, 8, 12, 16]) * least
    inner = rng.randint(1, 60)
    outer = rng.randint(1, max(1, most // (parts * item * inner)))
    shape = (outer, inner)
    strides = (outer * 0 + inner * parts * item, parts * item)
    own = c_strides(shape, item)
    form = canonical(shape, item, own, strides)
    n = len(sizes)
    apart, pack = rng.random() < 0.5, rng.random() < 0.5
    part_size = inner * outer * item
    gap = part_size + rng.choice([0, 0, least])
    order = list(range(parts))
    rng.shuffle(order)
    sizes.append(part_size * parts)
    sizes += [part_size] * parts if apart else [gap * parts]
    for k in order:
        there = (n + 1 + k, 0) if apart else (n + 1, gap * k)
        here = (n, item * k)
        if pack:
            moves.append(BufferCopy(*there, *here, form))
        else:
            moves.append(BufferCopy(*here, *there, Strided(form.block, form.swapped().dims)))


def _transpose(
    rng: Random, moves: list[BufferCopy], sizes: list[int], most: int, least: int
) -> None:
    """A matrix, or some of them, of elements of a byte or two, turned; rows may be longer than needed."""
    item = rng.choice([1, 1, 2]) * least
    rows = rng.randint(1, 200)
    columns = rng.randint(1, max(1, min(200, most // item // rows)))
    if rng.random() < 0.7:
        rows, columns = rows // 4 * 4 + 4, columns // 4 * 4 + 4
    count = rng.choice([1, 1, 2])
    wide, high = ((n + rng.choice([0, 0, 4, 8, 1, 3])) * item for n in (columns, rows))
    to, of = (columns * high, item, high), (rows * wide, wide, item)
    starts = [rng.choice([0, 0, 1, 2, 4]) * least for _ in range(2)]
    n = len(sizes)
    form = canonical((count, rows, columns), item, to, of)
    moves.append(BufferCopy(n, starts[0], n + 1, starts[1], form))
    sizes += [count * columns * high + starts[0], count * rows * wide + starts[1]]


def _fan(rng: Random, moves: list[BufferCopy], sizes: list[int], most: int, least: int) -> None:
    """The same bytes to several buffers."""
    here: list[BufferCopy] = []
    made: list[int] = []
    rng.choice((_single, _transpose))(rng, here, made, most // 3, least)
    (move,), n = here, len(sizes)
    sizes += made
    moves.append(replace(move, dst=move.dst + n, src=move.src + n))
    for _ in range(rng.choice([1, 2, 3, 7])):
        moves.append(replace(moves[-1], dst=len(sizes)))
        sizes.append(made[move.dst])


def as_file(cases: list[Case], launches: list[list[Any]], blocks: list[int]) -> bytes:
    """What emulate.cpp reads: buffers, and one launch after another."""
    out = [np.int64(len(cases)).tobytes()]
    for case, tables, grid in zip(cases, launches, blocks, strict=True):
        out.append(np.int64(len(case.buffers)).tobytes())
        for buffer, phase in zip(case.buffers, case.phases, strict=True):
            out += [np.array([buffer.size, phase], np.int64).tobytes(), buffer.tobytes()]
        out.append(np.int64(len(tables)).tobytes())
        for table in tables:
            out.append(np.array([grid, table.hint_shift, table.n_tiles], np.int64).tobytes())
            for array in (table.rows, table.shapes, table.members, table.hints):
                out += [np.int64(array.nbytes).tobytes(), array.tobytes()]
    return b"".join(out)


def combined(case: Case, op: str, dtype: DType) -> list[Bytes]:
    """The buffers after combining, by NumPy."""
    out = [buffer.copy() for buffer in case.buffers]
    with np.errstate(all="ignore"):
        for to, of in CopyList.of(case.moves).views(addresses(out), dtype.to_numpy()):
            combine_into(op, dtype, to, of)
    return out


def same_values(a: Bytes, b: Bytes, dtype: DType) -> bool:
    """Equal bit for bit, but any NaN for any other."""
    whole = a.size // dtype.itemsize * dtype.itemsize
    if not np.array_equal(a[whole:], b[whole:]):
        return False
    parts = {"c64": "f32", "c128": "f64"}.get(dtype.name, dtype.name)
    real = DType.parse(parts).to_numpy()
    x, y = a[:whole].copy().view(real), b[:whole].copy().view(real)
    same = x == y
    if dtype.name == "bf16":
        same |= ((x & 0x7FFF) > 0x7F80) & ((y & 0x7FFF) > 0x7F80)
    elif real.kind == "f":
        bits = np.dtype(f"u{real.itemsize}")
        same = (x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y))
    return bool(same.all())
