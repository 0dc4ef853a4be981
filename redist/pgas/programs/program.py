"""Programs: functions of global arrays that are captured at their first call and repeated after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from redist.errors import RequestError
from redist.pgas.array import Array
from redist.pgas.memory import BUFFERS
from redist.pgas.programs.agree import agree_on_nodes, common_classes, union_of
from redist.pgas.programs.capture import ArrayEnd, Capture, capture, map_ends
from redist.pgas.programs.judge import judge
from redist.pgas.programs.outside import OutsideArray, find_outside
from redist.pgas.programs.replay import Replay, write_replay
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.programs.tidy import drop_dead, needed_moves, share_equal
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world

P = ParamSpec("P")
R = TypeVar("R")
MOST_CAPTURED = 64
"""Captured programs that one function keeps."""
EAGER = "REDIST_EAGER"
"""The variable that switches programs off."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A captured program of one signature, ready to run."""

    capture: Capture
    outside: tuple[OutsideArray, ...]
    replay: Replay
    kept: tuple[int, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    signature: Signature

    def still_holds(self) -> bool:
        """**Local.** Whether the arrays that it reaches are those of the capture."""
        return all(one.still_stands() for one in self.outside)

    def run(self, given: Sequence[Tiled]) -> Any:
        """**Collective** if anything moves. Run the program on the arrays of a call."""
        arrays = [*given, *(one.array for one in self.outside)] if self.outside else given
        tiles = [array.tile for array in arrays]
        values = self.replay(*tiles)
        by_number = dict(zip(self.kept, values, strict=True))
        for array, end, is_changed in zip(
            arrays, self.capture.ends, self.capture.changed, strict=True
        ):
            if is_changed:
                array.tile = None if end.tile is None else by_number[end.tile]
                array._type = end.type
                array.version += 1

        def made(end: ArrayEnd) -> Tiled:
            if end.argument is not None:
                return arrays[end.argument]
            return Array(end.type, end.comm, None if end.tile is None else by_number[end.tile])

        return map_ends(self.capture.result, made)


class Program(Generic[P, R]):
    """A function whose calls are captured, one for every kind of arguments, and repeated."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._prepared: dict[Any, Prepared] = {}
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """**Collective.** Run the program; the first call of a kind captures it."""
        if os.environ.get(EAGER) or BUFFERS.limit_bytes is not None:
            return self.function(*args, **options)
        signature = sign(args, options)
        found = self._prepared.get(signature.key)
        if found is None or not found.still_holds():
            if any(array.__class__ is not Array for array in signature.arrays):
                return self.function(*args, **options)
            found = self._prepare(signature, args, options)
            if len(self._prepared) >= MOST_CAPTURED:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[signature.key] = found
        result: R = found.run(signature.arrays)
        return result

    def _prepare(
        self, signature: Signature, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Prepared:
        given = {id(array) for array in signature.arrays}
        outside = [one for one in find_outside(self.function) if id(one.array) not in given]
        arrays = [*signature.arrays, *(one.array for one in outside)]
        comm = _comm_of(arrays)
        name = self.function.__name__
        try:
            captured = capture(self.function, args, options, arrays)
        except Exception as problem:
            agree_on_nodes(name, comm, (), problem)
            raise
        agree_on_nodes(name, comm, captured.nodes, None)
        return _prepare(captured, comm, tuple(outside), signature)

    def __repr__(self) -> str:
        return f"<program {self.function.__name__}: captured {len(self._prepared)} times>"


def _comm_of(arrays: Sequence[Tiled]) -> Comm:
    comms = [array.comm for array in arrays]
    if any(one != comms[0] for one in comms[1:]):
        raise RequestError("cannot run a program of arrays over several communicators")
    return comms[0] if comms else comm_or_world(None)


def _prepare(
    captured: Capture, comm: Comm, outside: tuple[OutsideArray, ...], signature: Signature
) -> Prepared:
    """**Collective.** Leave out what need not be done, and write the rest as one function."""
    kept = sorted(captured.kept)
    roots = captured.roots
    live = [roots[n] for n in captured.inputs if n is not None]
    tasks: Sequence[Any] = captured.tasks
    allowed: list[int] | None = None
    while True:
        _, firsts = share_equal(tasks, kept, roots, allowed)
        common = common_classes(comm, firsts)
        if common == allowed or not firsts:
            break
        allowed = common
    tasks, _ = share_equal(tasks, kept, roots, allowed)
    needed = union_of(comm, needed_moves(tasks, kept, roots, live))
    tasks = drop_dead(tasks, kept, roots, live, needed)
    judge(captured.tasks, tasks, captured.inputs, kept, roots)
    replay = write_replay(tasks, captured.inputs, kept)
    strides = tuple(
        None if array.tile is None else array.tile.strides
        for array in (*signature.arrays, *(one.array for one in outside))
    )
    return Prepared(captured, outside, replay, tuple(kept), strides, signature)


def program(function: Callable[P, R]) -> Program[P, R]:
    """**Local.** Make a function of global arrays a program: captured once, then repeated.

    In an SPMD program::

        @pgas.program
        def step(x, w):
            return pgas.tanh(x @ w) + x

        y = step(x, w)              # the first call captures, checks and prepares; later ones repeat

    Results equal those of the function itself, bit for bit. Loops and branches over values of Python
    are unrolled; what depends on values of arrays is refused. ``REDIST_EAGER=1`` switches programs off.
    """
    return Program(function)
