"""The plan of a rechunk: every array of a store with its way, as a value and as a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from redist.store.chunks.grids import Shape
from redist.store.chunks.ways import ArrayPlan, Way
from redist.text.columns import table
from redist.text.units import count_of, format_bytes, format_time


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """The plan of one array, with what a reader wants to know of the array."""

    name: str
    dtype: str
    dims: tuple[str, ...] | None
    chunks: Shape | None
    new_chunks: Shape | None
    new_shards: Shape | None
    copied: bool
    plan: ArrayPlan

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The array in a line, then a table of the ways: the one that was chosen comes first."""
        request, bound = self.plan.request, self.plan.request.lower_bound_bytes
        size = format_bytes(request.array_bytes)
        yield f"{self.name or 'array'}   {self._type()}   {size}   {self._chunks()}"
        costs = ("source read", "read", "written", "/ bound", "memory", "time")
        rows: list[tuple[str, ...]] = [("  way", "block in memory", *costs)]
        for mark, way in (("> ", self.plan.way), *(("  ", one) for one in self.plan.others)):
            rows.append((mark + way.kind, *_cells(way, request.array_bytes, bound)))
        yield from table(rows, left=(0, 1), indent="  ")

    def _type(self) -> str:
        shape = self.plan.request.shape
        names = self.dims or ("",) * len(shape)
        dims = (f"{name}={n}" if name else f"{n}" for name, n in zip(names, shape, strict=True))
        return f"{self.dtype}[{', '.join(dims)}]"

    def _chunks(self) -> str:
        was = "raw" if self.chunks is None else f"chunks {_by(self.chunks)}"
        new = "raw" if self.new_chunks is None else _by(self.new_chunks)
        return f"{was} -> {new}" + (f" in shards {_by(self.new_shards)}" if self.new_shards else "")


@dataclass(frozen=True, slots=True)
class RechunkPlan:
    """How a store is rechunked, before a byte moves. Equal on every rank, without a message.

    ``print(plan)`` shows every array that gets other chunks, with the ways that were compared: how often
    the source is read, bytes read and written, compared with the lower bound (each byte once in, once out),
    memory of a rank, and modelled time. Bytes are those before compression.
    """

    source: str
    target: str
    ranks: int
    limit_bytes: int
    arrays: tuple[NamedPlan, ...]

    @property
    def to_npy(self) -> bool:
        """Whether the target is a NumPy file."""
        return self.target.endswith(".npy")

    @property
    def read_bytes(self) -> int:
        """Bytes read, of the source and of scratch files."""
        return sum(one.plan.way.read_bytes for one in self.arrays)

    @property
    def written_bytes(self) -> int:
        """Bytes written, to scratch files and to the target."""
        return sum(one.plan.way.written_bytes for one in self.arrays)

    @property
    def lower_bound_bytes(self) -> int:
        """What every way reads and writes at least."""
        return sum(one.plan.request.lower_bound_bytes for one in self.arrays)

    @property
    def scratch_bytes(self) -> int:
        """The largest scratch file; there is one at a time."""
        return max((one.plan.way.scratch_bytes for one in self.arrays), default=0)

    @property
    def target_bytes(self) -> int:
        """The target before compression."""
        return sum(one.plan.way.target_bytes for one in self.arrays)

    @property
    def peak_bytes(self) -> int:
        """The most memory that a rank uses, in addition to that of Python."""
        return max((one.plan.way.peak_bytes for one in self.arrays), default=0)

    @property
    def time_ps(self) -> int:
        """Modelled time."""
        return sum(one.plan.way.time_ps for one in self.arrays)

    @property
    def digest(self) -> str:
        """A short text that is the same for equal plans."""
        every = "".join(f"{one.name!r}{one.plan.digest}" for one in self.arrays)
        return hashlib.sha256(f"{self.source!r}{self.target!r}{every}".encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        limit = format_bytes(self.limit_bytes)
        yield f"{self.source} -> {self.target}      {count_of(self.ranks, 'rank')}, {limit} each"
        for one in self.arrays:
            if not one.copied:
                yield from one.lines()
        copied = [one for one in self.arrays if one.copied]
        if copied:
            size = format_bytes(sum(one.plan.request.array_bytes for one in copied))
            yield f"copied     {', '.join(one.name for one in copied)}: {size}"
        total, bound = self.read_bytes + self.written_bytes, self.lower_bound_bytes
        ratio = f" = {total / bound:.2f} x lower bound" if bound else ""
        scratch = f", scratch file {format_bytes(self.scratch_bytes)}" if self.scratch_bytes else ""
        read, written = format_bytes(self.read_bytes), format_bytes(self.written_bytes)
        yield f"moved      {read} read + {written} written{ratio}"
        yield f"memory     {format_bytes(self.peak_bytes)} on a rank{scratch}"
        yield f"modelled   {_long(self.time_ps)}; bytes are those before compression"


def _cells(way: Way, array_bytes: int, bound: int) -> tuple[str, ...]:
    times = f"{way.source_bytes / array_bytes:.1f} x" if array_bytes else "-"
    ratio = f"{way.total_bytes / bound:.2f}" if bound else "-"
    read, written = format_bytes(way.read_bytes), format_bytes(way.written_bytes)
    memory = format_bytes(way.peak_bytes)
    return _by(way.block), times, read, written, ratio, memory, _long(way.time_ps)


def _long(time_ps: int) -> str:
    """A time that may be hours.

    >>> _long(5 * 10**12), _long(3600 * 10**12), _long(10**17)
    ('5 s', '60 min', '28 h')
    """
    minutes = round(time_ps / 60e12)
    if minutes < 3:
        return format_time(time_ps)
    return f"{minutes} min" if minutes < 180 else f"{round(minutes / 60)} h"


def _by(shape: Shape) -> str:
    """A shape in words.

    >>> _by((4096, 16, 16))
    '4096 x 16 x 16'
    """
    return " x ".join(map(str, shape)) or "1"
