"""Random datatypes of MPI, nested from all constructors, and what MPI itself packs by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.runtime.datatypes.across import PACKS, UNPACKS

NAMED = (
    MPI.BYTE, MPI.SHORT, MPI.INT, MPI.DOUBLE, MPI.DOUBLE_COMPLEX, MPI.DOUBLE_INT, MPI.SHORT_INT, MPI.FLOAT,
)  # fmt: skip
MOST_BYTES = 40_000
KINDS = (
    "contiguous", "vector", "hvector", "indexed", "hindexed", "indexed_block", "hindexed_block", "struct",
    "subarray", "resized", "dup", "darray",
)  # fmt: skip


def random_datatype(rng: Random) -> MPI.Datatype:
    """A committed datatype of up to five constructors whose bytes lie in some ten thousand."""
    while True:
        try:
            made = _nested(rng, rng.randint(1, 5)).Commit()
        except MPI.Exception:  # Open MPI makes no darray of elements without bytes
            continue
        low, length = made.Get_true_extent()
        sizes = made.Get_size(), abs(made.Get_extent()[1]), (abs(low) + length) // 4
        if max(sizes) <= MOST_BYTES:
            return made
        made.Free()


def _nested(rng: Random, depth: int) -> MPI.Datatype:
    if not depth:
        return rng.choice(NAMED)
    base = _nested(rng, depth - 1)
    made = _made(rng, rng.choice(KINDS), base)
    if not base.is_predefined:
        base.Free()
    return made


def _made(rng: Random, kind: str, base: MPI.Datatype) -> MPI.Datatype:
    n, low, extent = _few(rng), *base.Get_extent()
    lengths = [_few(rng) for _ in range(n)]
    far = [rng.randint(-3, 12) for _ in range(n)]
    if rng.random() < 0.4:  # at equal distances
        far = [5 * k for k in range(n)]
    bytes_far = [one * max(1, abs(extent)) + rng.choice((0, 0, 3)) for one in far]
    match kind:
        case "contiguous":
            return base.Create_contiguous(n)
        case "vector":
            return base.Create_vector(n, _few(rng), rng.randint(-4, 6))
        case "hvector":
            return base.Create_hvector(n, _few(rng), rng.choice((-40, -8, 3, 16, 24, 60, 100)))
        case "indexed":
            return base.Create_indexed(lengths, far)
        case "hindexed":
            return base.Create_hindexed(lengths, bytes_far)
        case "indexed_block":
            return base.Create_indexed_block(_few(rng), far)
        case "hindexed_block":
            return base.Create_hindexed_block(_few(rng), bytes_far)
        case "struct":
            others = [rng.choice((base, *NAMED)) for _ in range(n)]
            return MPI.Datatype.Create_struct(lengths, bytes_far, others)
        case "subarray":
            sizes = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
            inner = [rng.randint(1, size) for size in sizes]
            starts = [rng.randint(0, size - m) for size, m in zip(sizes, inner, strict=True)]
            return base.Create_subarray(sizes, inner, starts, rng.choice(ORDERS))
        case "resized":
            return base.Create_resized(
                low + rng.randint(-9, 9), extent + rng.choice((-8, 0, 8, 16))
            )
        case "dup":
            return base.Dup()
    grid = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    ways = [rng.choice(DEALT) for _ in grid]
    grid = [1 if way == MPI.DISTRIBUTE_NONE else k for k, way in zip(grid, ways, strict=True)]
    sizes = [rng.randint(1, 9) for _ in grid]
    lengths = [
        rng.choice((MPI.DISTRIBUTE_DFLT_DARG, -(-size // k) + rng.randint(0, 1)))
        if way == MPI.DISTRIBUTE_BLOCK
        else rng.choice((MPI.DISTRIBUTE_DFLT_DARG, rng.randint(1, 3)))
        for size, k, way in zip(sizes, grid, ways, strict=True)
    ]
    lengths = [
        MPI.DISTRIBUTE_DFLT_DARG if way == MPI.DISTRIBUTE_NONE else length
        for way, length in zip(ways, lengths, strict=True)
    ]
    size = int(np.prod(grid))
    order = rng.choice(ORDERS)
    return base.Create_darray(size, rng.randrange(size), sizes, ways, lengths, grid, order)


def _few(rng: Random) -> int:
    """Mostly more than one, seldom none."""
    return rng.randint(1, 4) if rng.random() < 0.97 else 0


ORDERS = (MPI.ORDER_C, MPI.ORDER_F)
DEALT = (MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC, MPI.DISTRIBUTE_NONE)


def reach(datatype: MPI.Datatype, count: int) -> tuple[int, int]:
    """Where the bytes of so many elements begin and end, as MPI says."""
    if not count or not datatype.Get_size():
        return 0, 0
    low, length = datatype.Get_true_extent()
    far = (count - 1) * datatype.Get_extent()[1]
    return low + min(0, far), low + length + max(0, far)


class ByMpi:
    """What MPI packs and unpacks by so many elements, whatever their extent."""

    def __init__(self, datatype: MPI.Datatype, count: int) -> None:
        many = datatype.Create_contiguous(count)
        self._one = many.Create_resized(0, 1).Commit()
        many.Free()
        self.n_bytes = self._one.Get_size()

    def packed(self, memory: Any, offset: int) -> Any:
        """The packed bytes of memory in which displacement 0 is at an offset."""
        out = np.zeros(self.n_bytes, np.uint8)
        there = MPI.memory.fromaddress(memory.ctypes.data + offset, 1)
        self._one.Pack(there, out, 0, MPI.COMM_SELF)
        return out

    def unpacked(self, packed: Any, memory: Any, offset: int) -> Any:
        """The memory after packed bytes were put there."""
        out = memory.copy()
        there = MPI.memory.fromaddress(out.ctypes.data + offset, 1)
        self._one.Unpack(packed, 0, there, MPI.COMM_SELF)
        return out

    def overlaps(self, n_bytes: int, offset: int) -> bool:
        """Whether some byte is named twice: then nobody may unpack."""
        numbers = np.arange(n_bytes, dtype=np.uint32)
        parts = [((numbers >> shift) & 255).astype(np.uint8) for shift in (0, 8, 16)]
        found = [self.packed(part, offset).astype(np.uint32) for part in parts]
        places = found[0] + (found[1] << 8) + (found[2] << 16)
        return len(np.unique(places)) < len(places)

    def free(self) -> None:
        """**Local.** Free what was made."""
        self._one.Free()


FILLER = 0xA5


class Drawn:
    """A random datatype, memory that it fits into, and what MPI makes of both."""

    def __init__(self, seed: int) -> None:
        rng, random = Random(seed), np.random.default_rng(seed)
        self.datatype, self.count = random_datatype(rng), rng.choice((0, 1, 1, 2, 3))
        low, high = reach(self.datatype, self.count)
        self.offset = max(0, -low) + rng.randint(0, 9)
        n_bytes = self.offset + max(0, high) + rng.randint(0, 9)
        self.memory = random.integers(0, 256, n_bytes, np.uint8)
        by_mpi = ByMpi(self.datatype, self.count)
        self.packed = by_mpi.packed(self.memory, self.offset)
        self.given = random.integers(0, 256, self.packed.size, np.uint8)
        self.unpacked: Any = None
        """None where a byte is named twice."""
        if not by_mpi.overlaps(n_bytes, self.offset):
            self.unpacked = by_mpi.unpacked(self.given, self.memory, self.offset)
        by_mpi.free()

    def agree(
        self, there: Callable[[Any], Any], here: Callable[[Any], Any], **how: Any
    ) -> Iterator[bool]:
        """Whether both agree with MPI; values go ``there``, and come back ``here``."""
        args: Any = {"count": self.count, "offset": self.offset}
        memory = there(self.memory)
        yield bool(np.array_equal(here(redist.pack(memory, self.datatype, **args)), self.packed))
        yield bool(np.array_equal(here(memory), self.memory))
        if self.unpacked is not None:
            out = redist.unpack(there(self.given), self.datatype, there(self.memory), **args)
            yield bool(np.array_equal(here(out), self.unpacked))

    def free(self) -> None:
        """Free the datatype."""
        self.datatype.Free()


def ways_agree(drawn: Drawn, cupy: Any, empty: Callable[[int], Any]) -> Iterator[bool]:
    """Whether every way between a GPU and memory of the host, made by ``empty``, agrees with MPI."""
    args: Any = {"count": drawn.count, "offset": drawn.offset}
    memory = cupy.asarray(drawn.memory)
    for way in (*PACKS, None):
        out = empty(drawn.packed.size)
        out[...] = FILLER
        yield redist.pack(memory, drawn.datatype, out=out, way=way, **args) is out
        yield bool(np.array_equal(out, drawn.packed))
    for way in (*UNPACKS, None) if drawn.unpacked is not None else ():
        given = empty(drawn.packed.size)
        given[...] = drawn.given
        to = cupy.asarray(drawn.memory)
        redist.unpack(given, drawn.datatype, to, way=way, **args)
        given[...] = FILLER  # it may be written to again
        yield bool(np.array_equal(cupy.asnumpy(to), drawn.unpacked))
