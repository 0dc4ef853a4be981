"""The ways to rechunk one array, and what each costs: bytes, memory of a rank, time. Nothing is read here."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from redist.errors import NoPlanError
from redist.store.chunks.grids import Grid, Shape, meetings
from redist.text.units import ceil_div, format_bytes

READ_PS, WRITE_PS = 500, 1000
"""A byte from and to a disk, in picoseconds; scratch files too."""
DECODE_PS, ENCODE_PS = 700, 3000
"""A byte through a codec, on one core."""
COPY_PS = 150
CALL_PS, RUN_PS = 300_000_000, 4_000_000
"""A chunk that is read or written, and a run of bytes in a raw or a scratch file."""
OVERHEAD_BYTES = 24 * 2**20
"""What libraries and the allocator take beside the buffers that are counted one by one."""
STAGES = 3
"""Copies of a chunk on its way through codecs: encoded, decoded, and one between."""
SLAB_BYTES = 4 * 2**20
"""A raw file has no chunks; it is read in slabs of this size."""


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """An array as it lies and as it shall lie, and what may be used on the way.

    ``parts`` is the shape of the smallest part of the source that can be decoded by itself: a chunk, an inner
    chunk of a shard. None means a raw file, of which any bytes can be read; ``by_columns`` says that it is in
    Fortran order. ``index_bytes`` is read beside each part: its entry in the index of a shard.

    ``units`` is what is written at once: shards, or chunks where there are no shards.
    """

    shape: Shape
    itemsize: int
    parts: Shape | None
    units: Shape
    limit_bytes: int
    ranks: int = 1
    threads: int = 1
    decodes: bool = True
    encodes: bool = True
    by_columns: bool = False
    index_bytes: int = 0

    @property
    def array_bytes(self) -> int:
        """The bytes of the elements."""
        return math.prod(self.shape) * self.itemsize

    @property
    def lower_bound_bytes(self) -> int:
        """What every way reads and writes at least: each element once."""
        return 2 * self.array_bytes

    def bytes_of(self, part: Sequence[int]) -> int:
        """The bytes of a box of this shape."""
        return math.prod(part) * self.itemsize

    def held_bytes(self, block: Sequence[int]) -> int:
        """The bytes of a block in memory: what lies beyond the edge of the array is not there."""
        return self.bytes_of(tuple(map(min, block, self.shape)))


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do it. ``block`` is what a rank assembles in memory at a time.

    Blocks of ``direct`` (one unit of the target) and ``grouped`` (several) are boxes of units; those of
    ``scratch`` are boxes of parts of the source, and go to a scratch file in the order of units.
    ``part`` is what is read at once: None where exactly the box is read.
    """

    kind: str
    block: Shape
    part: Shape | None
    threads: int
    source_bytes: int
    scratch_bytes: int
    target_bytes: int
    peak_bytes: int
    time_ps: int

    @property
    def read_bytes(self) -> int:
        """Bytes read in all, before compression."""
        return self.source_bytes + self.scratch_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes written in all, before compression."""
        return self.scratch_bytes + self.target_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """How one array is rechunked: the way that was chosen, and the others beside it.

    >>> plan = plan_array(ArrayRequest((4096, 256, 256), 4, (1, 256, 256), (4096, 16, 16), 2**28))
    >>> plan.way.kind, plan.way.total_bytes / plan.request.array_bytes
    ('scratch', 4.0)
    >>> plan.way.peak_bytes <= 2**28
    True
    """

    request: ArrayRequest
    way: Way
    others: tuple[Way, ...]

    @property
    def blocks(self) -> Grid:
        """The boxes that are assembled in memory, one task each."""
        return Grid(self.request.shape, self.way.block)

    @property
    def units(self) -> Grid:
        """The boxes that are written at once, each by one rank."""
        return Grid(self.request.shape, self.request.units)

    @property
    def digest(self) -> str:
        """A short text that is the same for equal plans."""
        return hashlib.sha256(repr((self.request, self.way)).encode()).hexdigest()[:32]


def plan_array(request: ArrayRequest) -> ArrayPlan:
    """Choose the way that takes the least time within the limit; the same on every rank.

    Among ways of the same time, the one that moves fewer bytes wins, then the one that takes less memory.
    """
    found = [one for one in every_way(request) if one.peak_bytes <= request.limit_bytes]
    if not found:
        least = least_bytes(request)
        unit = format_bytes(request.bytes_of(request.units))
        raise NoPlanError(
            f"cannot rechunk within {format_bytes(request.limit_bytes)} on a rank: a chunk or shard of the "
            f"target ({unit}), a part of the source and codecs need "
            f"{format_bytes(least, round_up=True)} together; give limit_bytes={least}, or smaller chunks "
            "or shards",
            least,
        )
    best = min(found, key=_by_time)
    kinds = dict.fromkeys(one.kind for one in found)
    each = [min((one for one in found if one.kind == kind), key=_by_time) for kind in kinds]
    return ArrayPlan(request, best, tuple(one for one in each if one.kind != best.kind))


def least_bytes(request: ArrayRequest) -> int:
    """The least limit that some way keeps."""
    alone = replace(request, limit_bytes=0, threads=1)
    return min(one.peak_bytes for one in every_way(alone))


def every_way(request: ArrayRequest) -> Iterator[Way]:
    """All kinds of ways, at their best within the limit; with single units and parts also beyond it."""
    threads = max(1, request.threads)
    while threads:
        given = replace(request, threads=threads)
        for part in _parts(given):
            yield _direct(given, part, given.units)
            yield _direct(given, part, _best_block(given, part))
            if part is not None:
                yield _scratch(given, part, _best_source_block(given, part))
        threads //= 2


def _by_time(way: Way) -> tuple[int, int, int]:
    return way.time_ps, way.total_bytes, way.peak_bytes


def _parts(request: ArrayRequest) -> tuple[Shape | None, ...]:
    """What of the source may be read at once: its parts; of a raw file exact boxes, or slabs."""
    if request.parts is not None:
        return (request.parts,)
    return None, slab(request.shape, request.itemsize, request.by_columns)


def slab(
    shape: Sequence[int], itemsize: int, by_columns: bool = False, most_bytes: int = SLAB_BYTES
) -> Shape:
    """A box that lies in one run in a raw file, of about 4 MiB.

    >>> slab((1000, 1000, 1000), 4), slab((10, 2**30), 4), slab((1000, 1000, 1000), 4, by_columns=True)
    ((1, 1000, 1000), (1, 1048576), (1000, 1000, 1))
    """
    if by_columns:
        return slab(shape[::-1], itemsize, most_bytes=most_bytes)[::-1]
    room, found = max(1, most_bytes // itemsize), []
    for n in reversed(shape):
        found.append(max(1, min(n, room)))
        room //= max(1, n)
    return tuple(reversed(found))


# Each kind of way.


def _direct(request: ArrayRequest, part: Shape | None, block: Shape) -> Way:
    """Read, for each block of units, every part that it meets; encode and write its units."""
    shape, size = request.shape, request.bytes_of
    blocks, n_units = Grid(shape, block).n_boxes, Grid(shape, request.units).n_boxes
    if part is None:
        source, calls_ps = request.array_bytes, _runs(request, block) * RUN_PS
        staging = request.held_bytes(block) if request.by_columns else 0
    else:
        reads = math.prod(map(meetings, shape, block, part))
        source = reads * (size(part) + request.index_bytes)
        calls_ps = reads * CALL_PS
        staging = min(request.threads, reads) * _stages(part, request, request.decodes)
    target = n_units * size(request.units)
    units = math.prod(map(ceil_div, block, request.units))
    writing = min(request.threads, units) * _stages(request.units, request, request.encodes)
    peak = request.held_bytes(block) + max(staging, writing) + OVERHEAD_BYTES
    time = (
        source * READ_PS + target * WRITE_PS
        + _codec_ps(request, source, target) + calls_ps // request.threads
        + n_units * CALL_PS // request.threads
    )  # fmt: skip
    kind = "direct" if units == 1 else "grouped"
    time = _shared_out(time, blocks, request)
    return Way(kind, block, part, request.threads, source, 0, target, peak, time)


def _scratch(request: ArrayRequest, part: Shape, block: Shape) -> Way:
    """Decode each part once into a scratch file, in the order of units; encode each unit once from there."""
    shape, size = request.shape, request.bytes_of
    grid, n_units = Grid(shape, block), Grid(shape, request.units).n_boxes
    n_parts = Grid(shape, part).n_boxes
    pieces = math.prod(map(meetings, shape, block, request.units))
    piece = size(tuple(map(min, block, request.units)))
    source = n_parts * (size(part) + request.index_bytes)
    target, scratch = n_units * size(request.units), request.array_bytes
    staging = request.threads * _stages(part, request, request.decodes)
    filling = request.held_bytes(block) + max(staging, request.threads * piece)
    unit = size(request.units) + max(piece, _stages(request.units, request, request.encodes))
    peak = max(filling, min(request.threads, n_units) * unit) + OVERHEAD_BYTES
    codecs = _codec_ps(request, source, target)
    calls = (2 * pieces * RUN_PS + (n_parts + n_units) * CALL_PS) // request.threads
    time = (source + scratch) * READ_PS + (target + scratch) * WRITE_PS + codecs + calls
    time = _shared_out(time, min(grid.n_boxes, n_units), request)
    return Way("scratch", block, part, request.threads, source, scratch, target, peak, time)


def _stages(part: Sequence[int], request: ArrayRequest, coded: bool) -> int:
    """Bytes that a part takes on its way through codecs, beside the buffer it comes from or goes to."""
    return (STAGES if coded else STAGES - 1) * request.bytes_of(part)


def _codec_ps(request: ArrayRequest, source: int, target: int) -> int:
    decode = DECODE_PS if request.decodes else COPY_PS
    encode = ENCODE_PS if request.encodes else COPY_PS
    return (source * decode + target * encode) // request.threads


def _shared_out(time_ps: int, tasks: int, request: ArrayRequest) -> int:
    """Time if tasks of one size are dealt to ranks."""
    return time_ps * ceil_div(tasks, request.ranks) // max(1, tasks)


def _runs(request: ArrayRequest, block: Shape) -> int:
    """How many runs of bytes of a raw file all blocks have."""
    dims = [*range(len(block))]
    if request.by_columns:
        dims.reverse()
    inner = next((i for i in reversed(dims) if block[i] < request.shape[i]), None)
    if inner is None:
        return 1
    outer = dims[: dims.index(inner)]
    rows = math.prod(request.shape[i] for i in outer)
    return rows * ceil_div(request.shape[inner], block[inner])


# The best block.


def _best_block(request: ArrayRequest, part: Shape | None) -> Shape:
    """Units that are assembled together, so that parts of the source are read least often."""
    other = request.units if part is None else part
    return _search(request, request.units, other, lambda block: _direct(request, part, block))


def _best_source_block(request: ArrayRequest, part: Shape) -> Shape:
    """Parts of the source that are decoded together, so that pieces of a scratch file are long."""
    return _search(request, part, request.units, lambda block: _scratch(request, part, block))


def _search(request: ArrayRequest, unit: Shape, other: Shape, way: Callable[[Shape], Way]) -> Shape:
    """The box of units whose way takes least time within the limit, among those tried; else one unit."""
    shape = request.shape

    def fits(block: Shape) -> bool:
        return way(block).peak_bytes <= request.limit_bytes

    def price(block: Shape) -> tuple[int, Shape]:
        return way(block).time_ps, block

    dims = [*zip(shape, unit, other, strict=True)]
    most = {0: 1, 1: 64, 2: 24, 3: 14, 4: 8, 5: 5}.get(len(shape), 3)
    tried = [_multiples(n, a, b, most) for n, a, b in dims]
    boxes = (tuple(map(int.__mul__, unit, one)) for one in product(*tried))
    sized = [box for box in boxes if fits(box)]
    best = min(sized, key=price, default=unit)
    for dim in range(len(shape)) if sized else ():
        longer = _longest(best, dim, shape[dim], unit[dim], fits)
        best = min(best, longer, key=price)
    return best


def _longest(block: Shape, dim: int, n: int, unit: int, fits: Callable[[Shape], bool]) -> Shape:
    """A block with as many units along a dim as fit."""

    def of(count: int) -> Shape:
        return (*block[:dim], count * unit, *block[dim + 1 :])

    low, high = block[dim] // unit, max(1, ceil_div(n, unit))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(of(middle)) else (low, middle - 1)
    return of(low)


@lru_cache(maxsize=1000)
def _multiples(n: int, unit: int, other: int, most: int) -> tuple[int, ...]:
    """How many units to try along a dim: one, all, such as end where other parts end, powers of two.

    >>> _multiples(100, 10, 25, 14)
    (1, 2, 3, 4, 5, 8, 10)
    """
    count = max(1, ceil_div(n, unit))
    aligned = math.lcm(unit, other) // unit
    wanted = [1, count, aligned, *(ceil_div(count, k) for k in (2, 3, 4))]
    powers = [2**k for k in range(1, count.bit_length())]
    step = max(1, ceil_div(len(powers), max(1, most - 6)))
    wanted += [*powers[::step], *(aligned * k for k in (2, 4, 8))]
    return tuple(sorted([*dict.fromkeys(m for m in wanted if m <= count)][:most]))
