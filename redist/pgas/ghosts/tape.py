"""The tape on which ghosts leave what they would do: tasks of this rank, and the nodes they belong to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from types import FrameType
from typing import Any, NoReturn

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.watch.call_site import Line, public_call

GIVE_VIEWS = frozenset(
    {"permute_dims", "matrix_transpose", "moveaxis", "expand_dims", "squeeze", "T", "mT", "reshape"}
)
"""Functions whose results may look at the memory of their operand."""


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
    BATCH = auto()
    """**Collective.** Several moves as one operation; gives all their tiles."""
    START = auto()
    """**Collective.** Begins a move."""
    WAIT = auto()
    """Waits for a move that was begun."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value in the place of which a task has a number."""

    number: int


@dataclass(frozen=True, slots=True)
class MoveOf:
    """What a move brings where; ``asked`` says that the program wrote it as such."""

    source: ArrayType
    target: ArrayType
    shape: tuple[int, ...] | None
    line: Line


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A call of this rank: ``out`` has its result, memory in ``writes`` is changed, ``reads`` looked at.

    Memory is numbered by the value that it was first: views of it have the same.
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
    move: MoveOf | None = None


@dataclass(slots=True, eq=False)
class CapturedNode:
    """A call of a public function: its name, where it stands, what it made or changed, what it moved."""

    name: str
    line: Line
    types: list[ArrayType] = field(default_factory=list)
    moves: list[MoveOf] = field(default_factory=list)
    updates: bool = False

    def __str__(self) -> str:
        made = f" -> {self.types[-1]}" if self.types else ""
        return f"{self.name}{made} ({self.line})"


class Tape:
    """What ghosts of one rank did, in order."""

    def __init__(self, explains: bool = False) -> None:
        self.explains = explains
        """Whether nothing will run: then values that are read may be made up."""
        self.tasks: list[Task] = []
        self.nodes: list[CapturedNode] = []
        self.n_values = 0
        self.roots: dict[int, int] = {}
        """The memory of every value that has some, by the value that it was first."""
        self._views: dict[int, CapturedNode] = {}
        """By memory: the first node that made a view of it for the program."""
        self._owners: dict[int, CapturedNode | None] = {}
        """By memory: the node that made it."""
        self._frame: FrameType | None = None

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
        move: MoveOf | None = None,
    ) -> None:
        """Note a call; operands are :class:`Ref` where they are values."""
        node = self.current_node()
        task = Task(
            kind, function, tuple(args), dict(options), out, tuple(dict.fromkeys(reads)),
            tuple(dict.fromkeys(writes)), node, is_scalar, move,
        )  # fmt: skip
        self.tasks.append(task)
        if move is not None:
            self.nodes[node].moves.append(move)

    def call_later(self, function: Callable[[], Any]) -> Ref:
        """Note a call that is made in every run; a reference to what it will give."""
        number = self.new_value()
        self.record(TaskKind.EFFECT, function, (), {}, number)
        return Ref(number)

    def made(self, t: ArrayType, root: int | None) -> None:
        """Note that an array was made; ``root`` is the memory of its tile."""
        node = self.nodes[self.current_node()]
        node.types.append(t)
        if root is None:
            return
        owner = self._owners.setdefault(root, node)
        if owner is not node and node.name in GIVE_VIEWS:
            self._views.setdefault(root, node)

    def own(self, root: int) -> None:
        """Note that memory is that of an array which was there before."""
        self._owners[root] = None

    def updated(self, root: int | None) -> None:
        """Note that an array was changed; refuse it if another one looks at the same memory."""
        node = self.nodes[self.current_node()]
        node.updates = True
        view = None if root is None else self._views.get(root)
        if view is not None and view is not node:
            raise CaptureError(
                f"cannot update an array ({node.line}) of which {view.name} made a view "
                f"({view.line}): write .copy() first"
            )

    def refuse(self, why: str) -> NoReturn:
        """Raise because the call under way cannot be part of a program."""
        public, line = public_call(sys._getframe(1))
        raise CaptureError(f"cannot capture {_name_of(public)} ({line}): {why}")

    def current_node(self) -> int:
        """The number of the node under way: the call of this package that the program made."""
        public, line = public_call(sys._getframe(1))
        if public is not self._frame or not self.nodes:
            self._frame = public
            self.nodes.append(CapturedNode(_name_of(public), line))
        return len(self.nodes) - 1


def _name_of(frame: FrameType | None) -> str:
    if frame is None:
        return "?"
    name = frame.f_code.co_name
    wrapped = frame.f_locals.get("function") if name in ("checked", "anywhere") else None
    return getattr(wrapped, "__name__", name).strip("_")


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
