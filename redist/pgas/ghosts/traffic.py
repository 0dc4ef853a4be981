"""Traffic between ghosts: moves and exchanges go onto the tape, and nothing passes between ranks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NoReturn

import numpy as np

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.ghost import Ghost
from redist.pgas.ghosts.memory import GhostMemory
from redist.pgas.ghosts.stand_ins import pretend
from redist.pgas.ghosts.tape import MoveOf, Ref, Tape, Task, TaskKind, refs_in
from redist.pgas.global_array import Array
from redist.pgas.kinds import number_kind, tile_dtype
from redist.pgas.memory import TileMemory, memory_for
from redist.pgas.structures import replaced
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import (
    OUTSIDE,
    RUNTIME,
    ElementExchange,
    R,
    RankTraffic,
    TileMove,
    WrappedTraffic,
    is_watched,
    traffic,
)
from redist.runtime.elements.inspected import Inspection
from redist.runtime.ranks.world import Comm
from redist.runtime.transfer import Transfer
from redist.text.call_site import Line, calling_line, standing_at

ANEW = "write a[index], which asks in every call"
FROM_OUTSIDE = "it is not part of the program; give it as an argument"


@dataclass(frozen=True, slots=True)
class TileMover:
    """Moves a tile when the program runs, or several as one operation.

    New tiles come from ``memory``. If it ``begins`` only, what it gives is waited for later.
    """

    moves: tuple[MoveOf, ...]
    comm: Comm
    memory: TileMemory
    prepared: Transfer | None = None
    begins: bool = False

    def __call__(self, *tiles: Tile | None) -> Any:
        """**Collective.** The new tile, or those of several moves."""
        if not is_watched():
            return self._run(tiles, RUNTIME)
        with standing_at(self.moves[0].line):
            return self._run(tiles, traffic())

    def _run(self, tiles: tuple[Tile | None, ...], by: RankTraffic) -> Any:
        if len(tiles) > 1:
            return self._run_together(tiles, by)
        move = self.moves[0]
        own = TileMove(tiles[0], move.source, move.target, move.shape, self.memory, self.prepared)
        if self.begins:
            return by.start(own, self.comm)
        return by.redistribute(own, self.comm, None)[0]

    def _run_together(self, tiles: tuple[Tile | None, ...], by: RankTraffic) -> Any:
        own = {
            str(number): TileMove(tile, move.source, move.target, move.shape, self.memory)
            for number, (move, tile) in enumerate(zip(self.moves, tiles, strict=True))
        }
        return tuple(by.redistribute_together(own, self.comm, self.prepared)[0].values())


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """A global array in the arguments of an exchange: its type, and the number of its tile."""

    type: ArrayType
    comm: Comm
    number: int | None
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class Exchanger:
    """Passes elements between ranks when the program runs."""

    exchange: ElementExchange
    work: Callable[..., Any]
    args: tuple[Any, ...]
    numbers: tuple[int, ...]
    """The values in ``args``, in the order in which it is called with them."""
    line: Line
    expected_bytes: Callable[[], int]

    def told(self, name: Callable[[int], Hashable]) -> Hashable:
        """**Local.** What is exchanged of which values, if these have such names: equal for equal results."""

        def of(thing: Any) -> Hashable:
            if isinstance(thing, Ref):
                return "value", name(thing.number)
            if type(thing) in (tuple, list):
                return tuple(map(of, thing))
            if isinstance(thing, np.ndarray):
                return str(thing.dtype), thing.shape, thing.tobytes()
            if is_dataclass(thing) and not isinstance(thing, (type, ArrayType)):
                own = (of(getattr(thing, one.name)) for one in fields(thing))
                return (type(thing).__name__, *own)
            if isinstance(thing, (int, str, range, ArrayType)):
                return thing
            return type(thing).__qualname__

        return self.exchange, of(self.args)

    def __call__(self, *tiles: Tile) -> Any:
        """**Collective.** What the work gives."""
        return self.run(self.values(tiles))

    def values(self, tiles: Sequence[Any]) -> tuple[Any, ...]:
        """**Local.** What the work is given, for the values that it is called with."""
        found: tuple[Any, ...] = restored(self.args, dict(zip(self.numbers, tiles, strict=True)))
        return found

    def run(self, args: tuple[Any, ...]) -> Any:
        """**Collective.** What the work gives for these arguments, at the line that has it."""
        if not is_watched():
            return traffic().perform(self.exchange, self.work, args)
        with standing_at(self.line):
            return traffic().perform(self.exchange, self.work, args)


class GhostTraffic(WrappedTraffic):
    """Writes what would pass between ranks onto a tape. Warnings are those of the traffic in force."""

    def __init__(self, inner: RankTraffic, tape: Tape) -> None:
        super().__init__(inner)
        self.tape = tape
        refuse: Any = self._refuse
        self.select = self.fetch = self.store = self.exchange = self.tell_all = refuse
        self.pass_rows = self.halo = self.inspect = self.read = self.combine = refuse

    def redistribute(
        self, move: TileMove, comm: Comm, limit_bytes: int | None
    ) -> tuple[Any, Transfer | None]:
        """Note the move."""
        return self._note([move], comm)[0], None

    def _note(self, moves: Sequence[TileMove], comm: Comm) -> list[Ghost | None]:
        """Note moves as one operation; the new tiles."""
        tape, line = self.tape, calling_line()
        given: list[Any] = [move.local for move in moves]
        for move, local in zip(moves, given, strict=True):
            if local is not None and not isinstance(local, Ghost):
                raise CaptureError(f"cannot move {move.source} ({line}): {FROM_OUTSIDE}")
        made = [self._new(move) for move in moves]
        memory = moves[0].memory
        mover = TileMover(
            tuple(MoveOf(move.source, move.target, move.shape, line) for move in moves),
            comm,
            memory.real if isinstance(memory, GhostMemory) else memory,
        )
        args = [None if local is None else Ref(local.number) for local in given]
        reads = [local.root for local in given if local is not None]
        (first, *others) = made
        if not others:
            number = tape.new_value() if first is None else first.number
            tape.record(TaskKind.MOVE, mover, args, {}, number, reads)
            return made
        whole = tape.new_value()
        tape.record(TaskKind.BATCH, mover, args, {}, whole, reads)
        for at, ghost in enumerate(made):
            if ghost is not None:
                part = Ref(whole), at
                tape.record(TaskKind.PURE, operator.getitem, part, {}, ghost.number)
        return made

    def _new(self, move: TileMove) -> Ghost | None:
        """The ghost of the tile that a move gives; None on a rank that gets none."""
        if move.shape is None:
            return None
        like = pretend(move.shape, tile_dtype(move.target.dtype))
        return _kind(move.memory)(like, self.tape)

    def start(self, move: TileMove, comm: Comm) -> NoReturn:
        """Nothing is started while a program is captured."""
        self._refuse()

    def redistribute_together(
        self, moves: Mapping[str, TileMove], comm: Comm, prepared: Transfer | None = None
    ) -> tuple[dict[str, Any], Transfer | None]:
        """Note the moves as one operation, which the program has written as one."""
        return dict(zip(moves, self._note([*moves.values()], comm), strict=True)), None

    def perform(
        self,
        exchange: ElementExchange,
        work: Callable[..., tuple[R, int]],
        args: Sequence[Any],
        instead: Callable[[], R] | None = None,
        expected_bytes: Callable[[], int] = lambda: 0,
        into: Any = None,
    ) -> R:
        """Note the exchange: its work is done when the program runs."""
        found: list[Ghost | Ref] = []
        given = tuple(stored(one, found) for one in args)
        ghosts = [one for one in found if isinstance(one, Ghost)]
        reads = [one.root for one in ghosts]
        numbers = tuple(one.number for one in found)
        exchanger = Exchanger(exchange, work, given, numbers, calling_line(), expected_bytes)
        refs = [Ref(number) for number in numbers]
        if into is not None:
            writes = () if into.tile is None else (into.tile.root,)
            self.tape.record(TaskKind.EXCHANGE, exchanger, refs, {}, None, reads, writes)
            return into.tile
        if instead is None:
            self._refuse()
        model: Any = instead()
        if isinstance(model, Inspection):
            why = _why_not_fixed(self.tape, numbers)
            if why:
                self.tape.refuse(
                    f"{why}; ranks tell each other once which elements they ask for, {ANEW}"
                )
            number = self.tape.new_value()
            self.tape.record(TaskKind.INSPECT, exchanger, refs, {}, number, reads)
            return Ref(number)  # type: ignore[return-value]
        several = isinstance(model, (tuple, list))
        made = None if model is None or several else model.__class__(model.like, self.tape)
        number = self.tape.new_value() if made is None else made.number
        self.tape.record(TaskKind.EXCHANGE, exchanger, refs, {}, number, reads)
        if several:
            return tuple(self._part(number, at, one) for at, one in enumerate(model))  # type: ignore[return-value]
        return made  # type: ignore[return-value]

    def _part(self, whole: int, at: int, model: Ghost) -> Ghost:
        """One of several results."""
        part = model.__class__(model.like, self.tape)
        self.tape.record(TaskKind.PURE, operator.getitem, (Ref(whole), at), {}, part.number)
        return part

    def require_data(self, what: str, why: str, instead: str = OUTSIDE) -> NoReturn:
        """There are no data: refuse."""
        raise CaptureError(f"cannot capture {what} ({calling_line()}): {why}; {instead}")

    def warn_of_gather(self, source: ArrayType, target: ArrayType, rank: int) -> None:
        """Warn, unless nothing will run."""
        if not self.tape.explains:
            self.inner.warn_of_gather(source, target, rank)

    def _refuse(self, *args: Any) -> NoReturn:
        self.require_data("an exchange of elements", "what is exchanged depends on values")


def _kind(memory: TileMemory) -> type[Ghost]:
    """The kind of ghosts in a memory."""
    return memory.ghost_kind if isinstance(memory, GhostMemory) else Ghost


def stored(thing: Any, found: list[Ghost | Ref]) -> Any:
    """The same structure with references to arrays, tiles and other values, which are found."""

    def change(one: Any) -> Any:
        if isinstance(one, (Ghost, Ref)):
            found.append(one)
            return Ref(one.number)
        tile: Any = one.tile
        if tile is not None and not isinstance(tile, Ghost):
            raise CaptureError(f"cannot use {one.type} ({calling_line()}): {FROM_OUTSIDE}")
        if tile is not None:
            found.append(tile)
        number = None if tile is None else tile.number
        return ArrayRef(one.type, one.comm, number, one.memory.on_device)

    return replaced(thing, (Ghost, Ref, Tiled), change, init=False)


def restored(thing: Any, tiles: Mapping[int, Any]) -> Any:
    """The same structure with arrays and tiles in the places of references."""

    def change(one: Any) -> Any:
        if isinstance(one, Ref):
            return tiles[one.number]
        tile = None if one.number is None else tiles[one.number]
        return Array(one.type, one.comm, tile, memory_for(one.on_device))

    return replaced(thing, (ArrayRef, Ref), change)


# What indices are made of: ranks tell each other once which elements they ask for, so they must stay.
#
# Indices are arguments, or made of arguments by functions of integers, wherever these lie:
#
#     i                            an argument                               fixed
#     (i + 1) % n, i[::2], i.to()  functions, slices and moves of integers   fixed
#     a.get(i), a[i]               elements that are read in the same run    not fixed
#     floor(x).astype(int)         made of numbers that are no integers      not fixed
#     i += 1, then a.get(i)        an argument that the program has changed  not fixed


FIXED = (TaskKind.PURE, TaskKind.NEW, TaskKind.WRITE, TaskKind.MOVE, TaskKind.BATCH)
"""Tasks whose results depend on their operands only, and not on which elements these name."""
SLICES = "select"
"""The exchange by which slices pass between ranks."""


def _why_not_fixed(tape: Tape, numbers: Sequence[int]) -> str:
    """**Local.** Why indices with these numbers may be others in a later call of the same arguments.

    Nothing if they are not.
    """
    makers: dict[int, Task] = {}
    writers: dict[int, list[Task]] = {}
    for task in tape.tasks:
        if task.out is not None:
            makers[task.out] = task
        for root in task.writes:
            writers.setdefault(root, []).append(task)
    seen: set[int] = set()
    left = list(numbers)
    while left:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        dtype = tape.dtypes.get(number)
        maker, root = makers.get(number), tape.roots.get(number, number)
        if dtype is not None and number_kind(dtype) not in "iub":
            where = "an argument" if maker is None else _said(tape, maker)
            return f"its index depends on values of {dtype}, of {where}"
        if root in writers and root not in makers:
            return f"its index is an argument that {_said(tape, writers[root][0])} has changed"
        tasks = [*([] if maker is None else [maker]), *writers.get(root, ())]
        for task in tasks:
            if task.kind not in FIXED and not _is_slice(task):
                return f"its index depends on what {_said(tape, task)} finds in the same run"
            left += refs_in((task.args, task.options))
        left += [root] if root != number else []
    return ""


def _said(tape: Tape, task: Task) -> str:
    node = tape.nodes[task.node]
    return f"{node.name} ({node.line})"


def _is_slice(task: Task) -> bool:
    exchange = getattr(task.function, "exchange", None)
    return task.kind is TaskKind.EXCHANGE and exchange is not None and exchange.what == SLICES
