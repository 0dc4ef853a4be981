"""The tape on which ghosts leave what they would do: tasks of this rank, and the nodes they belong to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.structures import LEAVES, found_in
from redist.runtime.ranks.world import Comm
from redist.text.call_site import AROUND, Line, public_call, standing_at


class TaskKind(Enum):
    """What may be done with a task."""

    PURE = auto()
    """Its result depends on its operands only: it may be left out, or made once for several."""
    NEW = auto()
    """Memory without values."""
    WRITE = auto()
    """Writes into memory that was there."""
    EFFECT = auto()
    """Anything else: it runs as often, and in the order, as the program says."""
    MOVE = auto()
    """**Collective.** Brings an array to another type."""
    EXCHANGE = auto()
    """**Collective.** Passes elements between ranks without a plan."""
    INSPECT = auto()
    """**Collective.** Ranks tell each other which elements they ask for: the lists depend on indices only."""
    BATCH = auto()
    """**Collective.** Several moves as one operation; gives all their tiles."""
    START = auto()
    """**Collective.** Begins a move; gives what is waited for."""
    WAIT = auto()
    """Waits for a move that was begun."""


COLLECTIVE = (TaskKind.MOVE, TaskKind.EXCHANGE, TaskKind.INSPECT, TaskKind.BATCH)
"""What all ranks must do in one order, as captured."""
MOVING = (TaskKind.MOVE, TaskKind.BATCH, TaskKind.START)
"""What brings arrays to other types."""
RETURN_IT = "return it and decide outside, or use pgas.where"


@dataclass(frozen=True, slots=True)
class Ref:
    """A value in the place of which a task has a number."""

    number: int


@dataclass(frozen=True, slots=True)
class MoveOf:
    """What a move brings where, and the line that has it."""

    source: ArrayType
    target: ArrayType
    shape: tuple[int, ...] | None
    line: Line


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A call of this rank: ``out`` has its result, memory in ``writes`` is changed, ``reads`` looked at.

    Memory is numbered by the value that it was first: views of it have the same. Within a limit views are no
    tasks: whoever uses one takes it anew.
    """

    kind: TaskKind
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    out: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    node: int
    is_scalar: bool = False
    views: tuple[Task, ...] = ()
    """Within a limit: those that it takes."""
    parts: tuple[Task, ...] = ()
    """Within a limit: the tasks that take its result apart."""
    time_ps: int = 0
    """Within a limit: what it takes, as modelled."""

    @property
    def moves(self) -> tuple[MoveOf, ...]:
        """What it brings where, an operand each; nothing if it does something else."""
        mover: Any = self.function
        found: tuple[MoveOf, ...] = mover.moves if self.kind in MOVING else ()
        return found


@dataclass(slots=True, eq=False)
class CapturedNode:
    """A call of a public function: its name, where it stands, what it made or changed, what it moved."""

    name: str
    line: Line
    types: list[ArrayType] = field(default_factory=list)
    moves: list[MoveOf] = field(default_factory=list)
    updates: bool = False
    numbers: list[str] = field(default_factory=list)
    """Those that it was given; noted where layouts are planned."""

    def __str__(self) -> str:
        made = f" -> {self.types[-1]}" if self.types else ""
        return f"{self.name}{made} ({self.line})"


def refs_in(thing: Any) -> list[int]:
    """The numbers of all values in the operands of a task."""
    kind = thing.__class__
    if kind is Ref:
        return [thing.number]
    if kind in LEAVES:
        return []
    if kind is tuple or kind is list:
        return [number for one in thing if one.__class__ not in LEAVES for number in refs_in(one)]
    if kind is dict:
        return [number for one in thing.values() for number in refs_in(one)]
    return [ref.number for ref in found_in(thing, (Ref,))]


class Tape:
    """What ghosts of one rank did, in order."""

    def __init__(self, explains: bool = False, comm: Comm | None = None) -> None:
        self.comm = comm
        """The ranks of new arrays that name none, where they are pretended."""
        self.explains = explains
        """Whether nothing will run: then values that are read may be made up."""
        self.tasks: list[Task] = []
        self.nodes: list[CapturedNode] = []
        self.n_values = 0
        self.roots: dict[int, int] = {}
        """The memory of every value that has some, by the value that it was first."""
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.dtypes: dict[int, np.dtype[Any]] = {}
        self.n_bytes: dict[int, int] = {}
        """The bytes of every value that has some."""
        self.rooms: dict[int, int] = {}
        """By node: what its operation says that it needs, its results included."""
        self._looks: dict[int, dict[int, CapturedNode | None]] = {}
        """By memory: the tiles of arrays that look at it, and the nodes that made them."""
        self._stale: dict[int, tuple[CapturedNode | None, CapturedNode]] = {}
        """Tiles whose memory was changed through another array: who made them, who changed it."""
        self._frame: FrameType | None = None
        self._told: int | None = None
        """The node under way, if calls of a capture before are done again."""

    def new_value(self) -> int:
        """The number of another value."""
        self.n_values += 1
        return self.n_values - 1

    def record(
        self,
        kind: TaskKind,
        function: Callable[..., Any],
        args: Sequence[Any],
        options: Mapping[str, Any],
        out: int | None,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        is_scalar: bool = False,
    ) -> None:
        """Note a call; operands are :class:`Ref` where they are values."""
        node = self.current_node()
        if self._stale:
            self.check_fresh(refs_in((args, options)))
        task = Task(
            kind, function, tuple(args), dict(options), out, tuple(dict.fromkeys(reads)),
            tuple(dict.fromkeys(writes)), node, is_scalar,
        )  # fmt: skip
        self.tasks.append(task)
        self.nodes[node].moves += task.moves

    def call_later(self, function: Callable[[], Any]) -> Ref:
        """Note a call that is made in every run; a reference to what it will give."""
        number = self.new_value()
        self.record(TaskKind.EFFECT, function, (), {}, number)
        return Ref(number)

    def made(self, t: ArrayType, tile: Any) -> None:
        """Note that an array was made with a tile, or without one."""
        node = self.nodes[self.current_node()]
        node.types.append(t)
        if tile is not None:
            self._looks.setdefault(tile.root, {})[tile.number] = node

    def note_room(self, n_bytes: int) -> None:
        """Note that the call under way needs this many bytes, its results included."""
        node = self.current_node()
        self.rooms[node] = max(n_bytes, self.rooms.get(node, 0))

    def own(self, tile: Any) -> None:
        """Note the tile of an array that was there before."""
        self._looks[tile.root] = {tile.number: None}

    def updated(self, tile: Any) -> None:
        """Note that an array with this tile was changed: others that look at its memory are out of date."""
        node = self.nodes[self.current_node()]
        node.updates = True
        for number, maker in self._looks.get(getattr(tile, "root", -1), {}).items():
            if number != tile.number:
                self._stale[number] = maker, node

    def check_fresh(self, numbers: Sequence[int]) -> None:
        """Refuse to look at arrays whose memory was changed through another array."""
        for number in numbers:
            if number in self._stale:
                maker, node = self._stale[number]
                how = "it" if maker is None else f"{maker.name} made a view ({maker.line}) of what"
                raise CaptureError(
                    f"cannot use an array after {node.name} ({node.line}) has changed its memory "
                    f"through another: {how} was updated; write .copy() first"
                )

    def end(self) -> None:
        """Let go the call under way: whoever keeps a ghost must not keep what stood on the stack."""
        self._frame = None

    def refuse(self, why: str) -> NoReturn:
        """Raise because the call under way cannot be part of a program."""
        node = self.nodes[self.current_node()]
        raise CaptureError(f"cannot capture {node.name} ({node.line}): {why}")

    @contextmanager
    def standing_in(self, node: int) -> Iterator[None]:
        """Let what a block does belong to a node that is there, and count as done by its line."""
        before, self._told = self._told, node
        try:
            with standing_at(self.nodes[node].line):
                yield
        finally:
            self._told = before

    def standing_anew(self, name: str, line: Line) -> AbstractContextManager[None]:
        """Let what a block does belong to a node of its own, and count as done by a line."""
        self.nodes.append(CapturedNode(name, line))
        return self.standing_in(len(self.nodes) - 1)

    def current_node(self) -> int:
        """The number of the node under way: the call of this package that the program made."""
        if self._told is not None:
            return self._told
        public, line = public_call(sys._getframe(1))
        if public is not self._frame or not self.nodes:
            self._frame = public
            self.nodes.append(CapturedNode(_name_of(public), line))
        return len(self.nodes) - 1


BY_NUMPY = {
    "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift", "neg": "negative",
    "pos": "positive", "abs": "absolute", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
"""What NumPy calls the functions of operators."""
SIDES = {f"{side}{name}": name for side in "ri" for name in ("add", "matmul", *list(BY_NUMPY)[:11])}
"""Operators with the array on the right, and in place."""


def name_of_operator(name: str) -> str:
    """The name of a method; that of an operator as NumPy has it.

    >>> name_of_operator("__rmul__"), name_of_operator("__itruediv__"), name_of_operator("sum")
    ('multiply', 'divide', 'sum')
    """
    if not name.startswith("__"):
        return name.strip("_")
    name = name.strip("_")
    name = SIDES.get(name, name)
    return BY_NUMPY.get(name, name)


def _name_of(frame: FrameType | None) -> str:
    if frame is None:
        return "?"
    name = frame.f_code.co_name
    wrapped = frame.f_locals.get("function") if name in AROUND else None
    return name_of_operator(getattr(wrapped, "__name__", name))


_TAPE: ContextVar[Tape | None] = ContextVar("tape", default=None)


def current_tape() -> Tape | None:
    """**Local.** The tape that is written here; None if nothing is captured."""
    return _TAPE.get()


@contextmanager
def taping(tape: Tape) -> Iterator[Tape]:
    """**Local.** Let ghosts write to a tape while a block runs."""
    token = _TAPE.set(tape)
    try:
        yield tape
    finally:
        _TAPE.reset(token)
        tape.end()
