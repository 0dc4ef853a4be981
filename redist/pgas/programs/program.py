"""Programs: functions of global arrays that are captured at their first call and repeated after it."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from redist.errors import ArgumentError, CaptureError, RequestError, TransferError
from redist.graph.nodes import ProgramGraph
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.ghost_array import GhostArray
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.memory import BUFFERS
from redist.pgas.programs.agree import agree_on_nodes, union_of
from redist.pgas.programs.capture import ArrayEnd, Capture, capture, ends_in, map_ends
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.outside import Outside, find_outside
from redist.pgas.programs.plan_program import plan_program
from redist.pgas.programs.prepare import (
    ALWAYS,
    AS_WRITTEN,
    PLANNED,
    KeptMove,
    ProgramOptions,
    Ready,
    prepare,
    tidy_up,
)
from redist.pgas.programs.recorder import CallRecorder
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.programs.strides import laid_out, lie_alike
from redist.pgas.tiles.arranging import Arranger
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import plan_move, traffic
from redist.plan.plan import Plan
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.world import Comm, comm_or_world, world_of

P = ParamSpec("P")
R = TypeVar("R")
MOST_CAPTURED = 64
"""Captured programs that one function keeps."""
MANY_CAPTURED = 9
"""From so many captures of one function on, a warning says what differed."""
MOST_MISSES = 3
"""A program whose arguments were others so many times in a row keeps no copies of them any more."""
EAGER = "REDIST_EAGER"
"""The variable that switches programs off."""


class Prepared:
    """A captured program of one signature, ready to run."""

    def __init__(
        self,
        captured: Capture,
        ready: Ready,
        outside: Outside,
        signature: Signature,
        comm: Comm,
    ) -> None:
        self.captured, self.ready, self.outside = captured, ready, outside.arrays
        self.things, self.comm = outside.things, comm
        self.key, self.kept = signature.key, signature.kept
        self._outside_types = [one.array.type for one in self.outside]
        self._aliases = _aliases(captured, comm)
        self._misses = 0

    def still_holds(self) -> bool:
        """**Local.** Whether the arrays that it reaches are those of the capture, as they were."""
        pairs = zip(self.outside, self._outside_types, strict=True)
        return all(one.array.type == t and one.still_stands() for one, t in pairs) and all(
            one.still_stands() for one in self.things
        )

    def run(self, given: Sequence[Tiled]) -> Any:
        """**Collective** if anything moves. Run the program on the arrays of a call."""
        arrays = [*given, *(one.array for one in self.outside)] if self.outside else given
        tiles = [array.tile for array in arrays]
        copied = self._lay_out(tiles)
        ready = self.ready
        if ready.short_replay is None or self._misses >= MOST_MISSES:
            values = ready.replay(*tiles)
        else:
            values = self._run_with_copies(arrays, tiles)
        if ready.fates.spared:
            traffic().note_spared(ready.fates.spared)
        by_number = dict(zip(ready.outputs, values, strict=False))
        captured = self.captured
        for array, end, is_changed in zip(arrays, captured.ends, captured.changed, strict=True):
            if is_changed:
                tile = None if end.tile is None else by_number[end.tile]
                if copied and id(tile) in copied:
                    own = copied[id(tile)]
                    own[...] = tile
                    tile = own
                array.tile = tile
                array._type = end.type
                array.version += 1

        results: dict[int, Tiled] = {}

        def made(end: ArrayEnd) -> Tiled:
            if end.argument is not None:
                return arrays[end.argument]
            if id(end) not in results:
                kind: Any = Tiled._kinds[end.on_device]
                tile = None if end.tile is None else by_number[end.tile]
                results[id(end)] = kind(end.type, end.comm, tile)
            return results[id(end)]

        result = map_ends(captured.result, made)
        if self._aliases:  # arrays in one memory, as the function would have left them
            everyone = [*arrays, *(results[id(end)] for end in _new_ends(captured))]
            for several in self._aliases:
                token = everyone[several[0]].share()
                for number in several[1:]:
                    everyone[number]._is_shared = token
        return result

    def _lay_out(self, tiles: list[Any]) -> dict[int, Any]:
        """**Local.** Put copies in the places of tiles that lie otherwise than captured; theirs, by id."""
        copied: dict[int, Any] = {}
        for k, (tile, strides) in enumerate(zip(tiles, self.captured.strides, strict=True)):
            if tile is None or strides is None or tile.strides == strides:
                continue
            if not lie_alike(tile.shape, tile.strides, strides):
                tiles[k] = laid_out(tile, strides)
                copied[id(tiles[k])] = tile
        return copied

    def _run_with_copies(self, arrays: Sequence[Tiled], tiles: list[Any]) -> tuple[Any, ...]:
        """**Collective.** Use copies of moved arguments if all ranks have all of them; else keep them."""
        ready = self.ready
        assert ready.short_replay is not None
        copies = [
            None
            if arrays[one.argument].is_shared
            else FAR_BYTES.get(_key(arrays[one.argument], one))
            for one in ready.kept_moves
        ]
        has_all = all(copy is not None for copy in copies)
        world = world_of(self.comm)
        with world.operation(world.failure.timeout_s):
            met = world.meet(Token.PROGRAM, int(has_all))
        if met is Met.DISAGREE:
            raise TransferError("ranks run different programs: all must make one call")
        if has_all and met is Met.SAME:
            self._misses = 0
            traffic().note_spared(ready.fates.kept)
            return ready.short_replay(*tiles, *(copy.tile for copy in copies if copy is not None))
        self._misses += 1
        values = ready.replay(*tiles)
        by_number = dict(zip(ready.outputs, values, strict=True))
        for one in ready.kept_moves:
            _keep(arrays[one.argument], one, by_number[one.value])
        return values


class _KeptTile:
    """A moved copy of an argument; the tile is None on a rank that has none."""

    __slots__ = ("tile",)

    def __init__(self, tile: Tile | None) -> None:
        self.tile = tile


def _key(array: Tiled, one: KeptMove) -> Any:
    assert one.move is not None
    return id(array), array.version, array.type, one.move.target


def _keep(array: Tiled, one: KeptMove, tile: Tile | None) -> None:
    """**Local.** Keep a moved copy for as long as the array lives, unless others may write to it unseen."""
    if array.is_shared:
        return
    key = _key(array, one)
    n_bytes = 0 if tile is None else tile.nbytes
    if not FAR_BYTES.put(key, _KeptTile(tile), n_bytes):
        return
    keys = _KEYS.get(id(array))
    if keys is None:
        keys = _KEYS[id(array)] = {}
        weakref.finalize(array, _drop_all, id(array)).atexit = False
    before = keys.get(key[-1])
    if before is not None and before != key:
        FAR_BYTES.drop(before)
    keys[key[-1]] = key


_KEYS: dict[int, dict[Any, Any]] = {}
"""By array: what is kept of it, by the type that it was moved to."""


def _drop_all(array: int) -> None:
    for key in _KEYS.pop(array, {}).values():
        FAR_BYTES.drop(key)


def _aliases(captured: Capture, comm: Comm) -> list[tuple[int, ...]]:
    """**Collective.** Groups of arrays that lie in one memory at the end: arguments, then results, by number.

    A rank without tiles cannot see it: what one rank says holds for all.
    """
    groups: dict[int, list[int]] = {}
    for number, end in enumerate((*captured.ends, *_new_ends(captured))):
        if end.tile is not None:
            groups.setdefault(captured.roots[end.tile], []).append(number)
    found = [tuple(group) for group in groups.values() if len(group) > 1]
    return union_of(comm, found)


def _new_ends(captured: Capture) -> list[ArrayEnd]:
    """The results that are no arguments, each once."""
    ends = {id(end): end for end in ends_in(captured.result) if end.argument is None}
    return list(ends.values())


class Program(Generic[P, R]):
    """A function whose calls are captured, one for every kind of arguments, and repeated."""

    def __init__(self, function: Callable[P, R], options: ProgramOptions) -> None:
        self.function, self.options = function, options
        self.name = getattr(function, "__name__", type(function).__name__)
        self._prepared: dict[Any, Prepared] = {}
        self._captured = 0
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """**Collective.** Run the program; the first call of a kind captures it."""
        if os.environ.get(EAGER) or BUFFERS.limit_bytes is not None or current_tape() is not None:
            return self.function(*args, **options)
        signature = sign(args, options)
        if signature.has_aliases:  # what is written through one is seen through another
            return self.function(*args, **options)
        found = self._prepared.get(signature.key)
        if found is None or not found.still_holds():
            found = self._prepare(signature, args, options)
            self._remember(signature, found)
        result: R = found.run(signature.arrays)
        return result

    def graph(self, *args: P.args, **options: P.kwargs) -> ProgramGraph:
        """**Collective.** The program for such arguments as a value; nothing runs, nothing is changed.

        It prints as a table of its calls, with lines, types, what needs what, and what becomes of every
        move; ``to_json()``, ``svg()`` and ``html()`` give it to others.
        """
        signature = sign(args, options)
        found = self._prepared.get(signature.key)
        if found is None or not found.still_holds():
            found = self._prepare(signature, args, options)
            self._remember(signature, found)
        arrays = [*signature.arrays, *(one.array for one in found.outside)]

        def plan(source: ArrayType, target: ArrayType) -> Plan:
            return plan_move(source, target, found.comm, None)

        ready, types = found.ready, [array.type for array in arrays]
        return graph_of(self.name, found.captured, types, plan, ready.fates.words, ready.figures)

    explain = graph

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of a class: called with the object, which counts as an argument."""
        return self if instance is None else MethodType(self, instance)

    def _prepare(
        self, signature: Signature, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Prepared:
        given = {id(array) for array in signature.arrays}
        found = find_outside(self.function, (*args, *options.values()))
        outside = Outside(
            tuple(one for one in found.arrays if id(one.array) not in given), found.things
        )
        arrays = [*signature.arrays, *(one.array for one in outside.arrays)]
        comm = _comm_of(arrays)
        name = self.name
        try:
            for array in arrays:
                if isinstance(array, GhostArray):
                    raise CaptureError(
                        f"cannot use {array.type}: it was made while a program was captured and has no "
                        "values; return it from the program"
                    )
            recorder = CallRecorder() if self.options.layouts == PLANNED else None
            captured = capture(self.function, args, options, arrays, arranger=recorder)
        except Exception as problem:
            agree_on_nodes(name, comm, (), problem)
            raise
        agree_on_nodes(name, comm, captured.nodes, None)

        def capture_again(arranger: Arranger) -> Capture:
            return capture(self.function, args, options, arrays, arranger=arranger)

        tidied = tidy_up(captured, comm)
        planned = None
        if recorder is not None:
            planned = plan_program(tidied, recorder, capture_again, comm)
            tidied = tidied if planned is None else planned.tidied
        ready = prepare(tidied, comm, self.options)
        return Prepared(tidied.captured, ready, outside, signature, comm)

    def _remember(self, signature: Signature, prepared: Prepared) -> None:
        self._captured += 1
        if self._captured >= MANY_CAPTURED and self._prepared:
            before = next(reversed(self._prepared.values()))
            warnings.warn(
                f"{self.name} was captured {self._captured} times; the last two differ "
                f"in {_difference(before.key, signature.key)}",
                stacklevel=3,
            )
        if len(self._prepared) >= MOST_CAPTURED:
            self._prepared.pop(next(iter(self._prepared)))
        self._prepared[signature.key] = prepared

    def __repr__(self) -> str:
        return f"<program {self.name}: captured {self._captured} times>"


def _difference(one: Any, other: Any, where: str = "arguments") -> str:
    """Where two keys differ first, in words."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                is_array = one[0] == "array"
                return _difference(a, b, where if is_array else f"{where}[{i}]")
    if isinstance(one, ArrayType) and isinstance(other, ArrayType) and one.shape != other.shape:
        return f"{where}.shape: {one.shape} and {other.shape}"
    return f"{where}: {one} and {other}"


def _comm_of(arrays: Sequence[Tiled]) -> Comm:
    comms = [array.comm for array in arrays]
    if any(one != comms[0] for one in comms[1:]):
        raise RequestError("cannot run a program of arrays over several communicators")
    return comms[0] if comms else comm_or_world(None)


@overload
def program(function: Callable[P, R], /) -> Program[P, R]: ...


@overload
def program(
    *, layouts: str = PLANNED, prefetch: bool | str = True, cache: bool = True
) -> Callable[[Callable[P, R]], Program[P, R]]: ...


def program(
    function: Any = None,
    /,
    *,
    layouts: str = PLANNED,
    prefetch: bool | str = True,
    cache: bool = True,
) -> Any:
    """**Local.** Make a function of global arrays a program: captured once, then repeated.

    In an SPMD program::

        @pgas.program
        def step(x, w):
            return pgas.tanh(x @ w) + x

        y = step(x, w)              # the first call captures, checks and prepares; later ones repeat

    Results equal those of the function itself, bit for bit. Loops and branches over values of Python
    are unrolled; what depends on values of arrays is refused. ``REDIST_EAGER=1`` switches programs off.

    ``@pgas.program(prefetch=False, cache=False)`` begins no move before its place and keeps no moved copies
    of arguments, for comparison; ``prefetch="always"`` begins moves within a node early, too.
    """
    if layouts not in (PLANNED, AS_WRITTEN):
        known = f"{PLANNED!r}, {AS_WRITTEN!r}"
        raise ArgumentError(f"cannot use layouts {layouts!r}: known are {known}")
    if prefetch not in (True, False, ALWAYS):
        raise ArgumentError(f"cannot use prefetch {prefetch!r}: known are True, False, {ALWAYS!r}")
    options = ProgramOptions(prefetch, bool(cache), layouts)
    if function is not None:
        return Program(function, options)
    return lambda given: Program(given, options)
