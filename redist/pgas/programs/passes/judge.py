"""Judge a tidied program against what was captured: every result must be made of the same things.

Both are run on symbols in the place of tiles: a symbol says how a value came about. Memory has the symbol of
what was written last; a view is the way from memory to it. This shares nothing with what it judges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from redist.errors import CaptureError
from redist.pgas.ghosts.tape import MOVING, Ref, Task, TaskKind

Symbol = str


def judge(
    captured: Sequence[Task],
    tidied: Sequence[Task],
    inputs: Iterable[int | None],
    kept: Iterable[int],
    roots: Mapping[int, int],
    moved: Sequence[Task] = (),
) -> None:
    """**Local.** Raise if a tidied program gives, leaves or moves anything but what was captured.

    What ``moved`` would give is there before it begins.
    """
    ends = list(kept)
    given = [number for number in inputs if number is not None]
    whole, short = _Symbols(given, roots), _Symbols(given, roots)
    for task in captured:
        whole.run(task)
    for task in (*moved, *tidied):
        short.run(task)
    if short.started:
        raise CaptureError("internal error: a move was begun and not waited for")
    for number in ends:
        if whole.look(number) != short.look(number):
            raise CaptureError(f"internal error: value {number} of a tidied program is another")
    for number in given:
        if whole.memory[roots[number]] != short.memory[roots[number]]:
            raise CaptureError(
                f"internal error: a tidied program leaves argument {number} otherwise"
            )
    if not set(short.moved) <= set(whole.moved):
        raise CaptureError("internal error: a tidied program moves what the captured one does not")
    if whole.effects != short.effects:
        raise CaptureError("internal error: a tidied program has other effects")


class _Symbols:
    """Values as symbols while tasks run one after another."""

    def __init__(self, inputs: Sequence[int], roots: Mapping[int, int]) -> None:
        self.roots = roots
        self.memory: dict[int, Symbol] = {roots[n]: f"input {n}" for n in inputs}
        self.ways: dict[int, tuple[int, Symbol]] = {n: (roots[n], "") for n in inputs}
        """Of values in memory: which memory, and how they look at it."""
        self.plain: dict[int, Symbol] = {}
        """Of values without memory."""
        self.moved: list[Symbol] = []
        self.effects: list[Symbol] = []
        self.started: dict[int, tuple[Symbol, dict[int, Symbol]]] = {}
        """Moves under way: what they give, and what the memory that they read had in it."""
        self.batches: dict[int, list[Symbol]] = {}

    def look(self, number: int) -> Symbol:
        """What a value is now."""
        if number in self.ways:
            root, way = self.ways[number]
            return f"{self.memory[root]}{way}"
        if number not in self.plain:
            raise CaptureError(f"internal error: value {number} is used before it is there")
        return self.plain[number]

    def run(self, task: Task) -> None:
        """Let a task happen."""
        if hasattr(task.function, "tasks"):
            self._run_inner(task)
            return
        if task.kind is TaskKind.WAIT:
            self._end(task)
            return
        said = _digest(task.function, self._say(task.args), self._say(task.options))
        if task.kind in MOVING:
            several = [
                _digest(move.source, move.target, self._say(source))
                for move, source in zip(task.moves, task.args, strict=True)
            ]
            self.moved += several
            said = several[0]
        elif task.kind is TaskKind.INSPECT:
            inspector: Any = task.function
            said = _digest("inspect", inspector.told(self.look))
        if task.kind in (TaskKind.EXCHANGE, TaskKind.INSPECT):
            self.moved.append(said)
        if task.kind is TaskKind.BATCH:
            assert task.out is not None
            self.batches[task.out] = several
            return
        if task.kind is TaskKind.START:
            assert task.out is not None
            self.started[task.out] = said, {root: self.memory[root] for root in task.reads}
            return
        if task.kind is TaskKind.EFFECT:
            said = f"{said} {len(self.effects)}"
            self.effects.append(said)
        for root in task.writes:
            self.memory[root] = _digest("written", said, self.memory.get(root))
        out = task.out
        if out is None:
            return
        first = task.args[0] if task.args else None
        if isinstance(first, Ref) and first.number in self.batches:
            said = self.batches[first.number][task.args[1]]
        its = self.roots.get(out)
        if its is None:
            self.plain[out] = said
        elif its == out:
            self.memory[its] = said
            self.ways[out] = its, ""
        else:
            base, way = self._base(task, its)
            self.ways[out] = (
                base,
                f"{way}/{_digest(task.function, self._say(task.args[1:]), task.options)}",
            )

    def _run_inner(self, task: Task) -> None:
        """A join in blocks, which gives one value, or a run on a GPU, which gives several."""
        inner: Any = task.function
        for one in inner.tasks:
            self.run(one)
        if hasattr(inner, "outputs"):
            assert task.out is not None
            self.batches[task.out] = [self.look(number) for number in inner.outputs]

    def _end(self, task: Task) -> None:
        """A move is there: what it read must not have changed since it began."""
        said, before = self.started.pop(task.args[0].number)
        if any(self.memory[root] != one for root, one in before.items()):
            raise CaptureError("internal error: what a move under way reads was changed")
        assert task.out is not None
        if task.out in self.roots:
            self.memory[task.out] = said
            self.ways[task.out] = task.out, ""
        else:
            self.plain[task.out] = said

    def _base(self, task: Task, root: int) -> tuple[int, Symbol]:
        """The memory that a view looks at, and how its operand does."""
        first = task.args[0]
        if isinstance(first, Ref) and first.number in self.ways:
            return self.ways[first.number]
        return root, ""

    def _say(self, thing: Any) -> Symbol:
        if isinstance(thing, Ref):
            return "batch" if thing.number in self.batches else self.look(thing.number)
        if isinstance(thing, (tuple, list)):
            return f"({', '.join(map(self._say, thing))})"
        if isinstance(thing, dict):
            return f"({', '.join(f'{key}={self._say(one)}' for key, one in thing.items())})"
        if isinstance(thing, slice):
            return f"{thing.start}:{thing.stop}:{thing.step}"
        if isinstance(thing, (np.ndarray, np.generic)):
            return _digest(str(thing.dtype), thing.shape, thing.tobytes())
        return f"{type(thing).__name__} {thing!r}"


def _digest(*parts: Any) -> Symbol:
    """A short name for what something is made of."""
    return hashlib.sha1(repr(parts).encode()).hexdigest()[:20]
