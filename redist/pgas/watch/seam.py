"""The seam to the runtime: all elements that pass between ranks pass through one ``RankTraffic`` object.

:func:`traffic` says which one is in force. The first one moves data; a trace wraps the one in force and notes
what it did; an explanation puts one in its place that only notes what would be done.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from operator import add
from typing import Any, NamedTuple, TypeVar

from redist.errors import GatherWarning
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import Ints
from redist.pgas.kinds import tile_dtype
from redist.pgas.memory import Tile, TileMemory
from redist.plan.plan import Plan
from redist.planner import synthesize
from redist.runtime import passing
from redist.runtime.halo import exchange_halo
from redist.runtime.ranks import collectives
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import Comm, world_of
from redist.runtime.redistribute import redistribute_with_transfer
from redist.runtime.transfer import Transfer
from redist.text.call_site import Line, calling_line
from redist.text.units import format_bytes

R = TypeVar("R")
OUTSIDE = "call it outside, or use pgas.where"
"""What to do where a program cannot have a call."""
Parts = tuple[Ints, Ints]
"""For each rank, how many elements and where they start."""
Wait = Callable[[], Tile | None]
"""Waits for a move under way; gives the new tile."""


class TileMove(NamedTuple):
    """The move of one array as a rank sees it: its tile, both types, and where the new tile comes from."""

    local: Tile | None
    source: ArrayType
    target: ArrayType
    shape: tuple[int, ...] | None
    memory: TileMemory
    prepared: Transfer | None = None
    """What will move it, where that is known."""
    out: Tile | None = None
    """Where it goes, if nobody needs what was there; else a new tile is made."""

    def new_tile(self) -> Tile | None:
        """**Local.** A tile of the target to be filled; None on a rank that gets none."""
        if self.shape is None or self.out is not None:
            return self.out
        return self.memory.empty(self.shape, tile_dtype(self.target.dtype), self.target.tile_bytes)


class FarRead(NamedTuple):
    """What one-sided reads of a line found near, and what they fetched from other nodes."""

    hits: int = 0
    misses: int = 0
    kept_bytes: int = 0
    """That were there already."""
    fetched_bytes: int = 0
    wasted_bytes: int = 0
    """That were fetched ahead, and nobody read."""


class VisitCounts(NamedTuple):
    """What visits to the tiles of all ranks did here: tiles read in place, fetched, and kept from before."""

    visits: int = 0
    in_place: int = 0
    fetched: int = 0
    ahead: int = 0
    """Of those fetched, how many were under way before they were asked for."""
    kept: int = 0
    in_place_bytes: int = 0
    fetched_bytes: int = 0
    kept_bytes: int = 0
    waited_s: float = 0.0


class ByLists(NamedTuple):
    """What was read, or combined, at indices by lists that ranks tell each other once."""

    inspected: int = 0
    """How often ranks told each other what they ask for."""
    exchanges: int = 0
    received_bytes: int = 0
    messages: int = 0
    """That this rank sent, with values alone."""


class CopiedRows(NamedTuple):
    """Rows or arrays on a GPU that were copied to memory, because a work has no loops for GPUs."""

    times: int = 0
    copied_bytes: int = 0


class SparedMove(NamedTuple):
    """A move that a program has at a line and did not make, and why."""

    line: Line
    source: ArrayType
    target: ArrayType
    why: str


Counts = TypeVar("Counts", FarRead, VisitCounts, ByLists, CopiedRows)
Note = FarRead | VisitCounts | ByLists | CopiedRows | SparedMove
"""What is noted of a line besides its moves."""


def plus(one: Counts, other: Counts) -> Counts:
    """Both together.

    >>> plus(CopiedRows(1, 64), CopiedRows(1, 32))
    CopiedRows(times=2, copied_bytes=96)
    """
    return type(one)._make(map(add, one, other))


INSPECT, READ = "inspect", "read"
"""Exchanges in which ranks tell each other which elements they ask for, and in which these are read."""


class ElementExchange(NamedTuple):
    """An operation in which elements pass between ranks without a plan: its name and both types."""

    what: str
    source: ArrayType
    target: ArrayType


def _nothing() -> int:
    return 0


class RankTraffic:
    """What global arrays ask of the runtime. Here data moves; others look on, or note what would be done.

    Calls with a ``comm`` are **collective over** it. Remembers which lines of the program it has warned of.
    """

    def __init__(self) -> None:
        self._warned: set[Line] = set()

    def redistribute(
        self, move: TileMove, comm: Comm, limit_bytes: int | None
    ) -> tuple[Tile | None, Transfer | None]:
        """Move one array: its new tile, and the transfer that did it if one did."""
        memory = move.memory
        by_plan = memory.on_device and memory.limit_bytes is not None  # made when it has room
        out = None if by_plan else move.new_tile()
        if move.prepared is not None:
            return move.prepared(move.local, out), move.prepared
        return redistribute_with_transfer(
            move.local, move.source, move.target, comm, limit_bytes, out=out
        )

    def start(self, move: TileMove, comm: Comm) -> Wait:
        """Begin to move an array whose transfer is prepared, and say how to wait; its tile is left alone."""
        assert move.prepared is not None
        return move.prepared.start(move.local, move.new_tile()).wait

    def redistribute_together(
        self, moves: Mapping[str, TileMove], comm: Comm, prepared: Transfer | None = None
    ) -> tuple[dict[str, Tile | None], Transfer | None]:
        """Move several arrays as one operation, in one staging budget."""
        memory = next(iter(moves.values())).memory
        memory.check_room(sum(move.target.tile_bytes for move in moves.values()))
        tiles = {name: move.new_tile() for name, move in moves.items()}
        if prepared is not None:
            prepared({name: move.local for name, move in moves.items()}, tiles)
            return tiles, prepared
        _, transfer = redistribute_with_transfer(
            {name: move.local for name, move in moves.items()},
            {name: move.source for name, move in moves.items()},
            {name: move.target for name, move in moves.items()},
            comm,
            out=tiles,
        )
        return tiles, transfer

    select = staticmethod(passing.select)
    halo = staticmethod(exchange_halo)
    fetch = staticmethod(passing.fetch)
    store = staticmethod(passing.store)
    inspect = staticmethod(passing.inspect)
    read = staticmethod(passing.read)
    combine = staticmethod(passing.combine)
    exchange = staticmethod(passing.exchange)
    """This and those before give the bytes that this rank received, or more."""
    pass_rows = staticmethod(collectives.pass_rows)
    tell_all = staticmethod(collectives.tell_all)

    def perform(
        self,
        exchange: ElementExchange,
        work: Callable[..., tuple[R, int]],
        args: Sequence[Any],
        instead: Callable[[], R] | None = None,
        expected_bytes: Callable[[], int] = _nothing,
        into: Any = None,
    ) -> R:
        """**Collective.** The result of ``work(*args)``, which also gives the bytes that this rank received.

        Where nothing shall move, what ``instead`` gives, and a note of the bytes expected. Work that
        depends on data has no ``instead``: it asks by :meth:`require_data` first. All arrays that it
        reads are in ``args``; ``into`` is the one whose tile it writes, if it does.
        """
        return work(*args)[0]

    def note(self, line: Line, what: Note) -> None:
        """**Local.** Note what was done for a line, or spared, besides moves."""

    def require_data(self, what: str, why: str, instead: str = OUTSIDE) -> None:
        """**Local.** An error if nothing moves, because an operation needs real values or changes some."""

    def warn_of_gather(self, source: ArrayType, target: ArrayType, rank: int) -> None:
        """**Local.** Warn once of a line whose move brings much of an array onto every rank, unasked.

        Rank 0 speaks for all; where warnings are errors all ranks raise.
        """
        n_bytes = gathered_bytes(source, target)
        if not n_bytes:
            return
        line = calling_line()
        if line in self._warned:
            return
        self._warned.add(line)
        if rank != 0 and not _is_error(line):
            return
        share = 100 * target.tile_bytes // (source.global_elems * source.dtype.itemsize)
        warnings.warn_explicit(
            f"this gathers {format_bytes(n_bytes)} onto each of {target.mesh.n_devices} ranks: "
            f"{source} -> {target}, {share} % of the array everywhere; cut the operands alike with "
            f".to(type), or reduce before you combine; if every rank shall have it, "
            f'write .to("{target}") and keep the result',
            GatherWarning,
            line.file,
            line.number,
        )


# What gathers much of an array, so that users are warned.


SMALL_BYTES = 2**20
"""Smaller arrays may be anywhere."""
SHARE = 10
"""A tenth of an array is much."""


@lru_cache(maxsize=4096)
def gathered_bytes(source: ArrayType, target: ArrayType) -> int:
    """What every rank must receive of an array that gets more copies; 0 if that is little.

    >>> from redist.layout.mesh import Mesh
    >>> cut, whole = (ArrayType.parse(t, Mesh(x=4)) for t in ("f64[1024{x}, 1024]", "f64[1024, 1024]"))
    >>> gathered_bytes(cut, whole), gathered_bytes(whole, cut)
    (6291456, 0)
    """
    n_bytes = source.global_elems * source.dtype.itemsize
    if n_bytes < SMALL_BYTES or _copies(target) <= _copies(source):
        return 0
    received = lower_bound_bytes(source, target) // target.mesh.n_devices
    return received if received * SHARE > n_bytes else 0


def _copies(t: ArrayType) -> int:
    """How many devices hold each element, or a part of its pending value."""
    return t.mesh.n_devices // math.prod(t.cuts)


def _is_error(line: Line) -> bool:
    with warnings.catch_warnings(record=True):
        try:
            warnings.warn_explicit("", GatherWarning, line.file, line.number)
        except GatherWarning:
            return True
    return False


class WrappedTraffic(RankTraffic):
    """The start of one that looks on: what it does not do itself, another does."""

    def __init__(self, inner: RankTraffic) -> None:
        super().__init__()
        self.inner = inner
        for name, own in vars(RankTraffic).items():
            if not name.startswith("_") and getattr(type(self), name) is getattr(
                own, "__func__", own
            ):
                setattr(self, name, getattr(inner, name))


def plan_move(source: ArrayType, target: ArrayType, comm: Comm, limit_bytes: int | None) -> Plan:
    """**Collective over** ``comm`` the first time. The plan of a move, the same on all ranks."""
    n_bytes = max(source.tile_bytes, target.tile_bytes)
    found = find_topology(world_of(comm), None, n_bytes, limit_bytes)
    return synthesize(source, target, limit_bytes=limit_bytes, topology=found.topology)


RUNTIME = RankTraffic()
"""The traffic in force where nobody looks on."""
_TRAFFIC: ContextVar[RankTraffic] = ContextVar("traffic", default=RUNTIME)


def is_watched() -> bool:
    """**Local.** Whether another traffic than the runtime's own is in force here."""
    return _TRAFFIC.get() is not RUNTIME


def traffic() -> RankTraffic:
    """**Local.** The traffic in force here."""
    return _TRAFFIC.get()


@contextmanager
def through(other: RankTraffic) -> Iterator[None]:
    """**Local.** Let everything pass through another traffic while a block runs."""
    token = _TRAFFIC.set(other)
    try:
        yield
    finally:
        _TRAFFIC.reset(token)
