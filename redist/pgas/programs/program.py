"""Programs: functions of global arrays that are captured at their first call and repeated after it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE, TaskKind, current_tape
from redist.pgas.programs.body import ProgramBody
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.limited.calls import LimitedCalls, limit_in_force
from redist.pgas.programs.limited.limited_graph import limited_graph
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.run_limit import RunLimit
from redist.pgas.programs.limited.run_timeline import RunTimeline, named_spans
from redist.pgas.programs.planning.plan_report import make_program_plan
from redist.pgas.programs.prepare import ALWAYS, AS_WRITTEN, PLANNED, ProgramOptions, prepare
from redist.pgas.programs.prepared import Prepared, too_large_to_keep
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.spill.limit import memory_limit
from redist.pgas.spill.spill_store import spill_folder
from redist.pgas.structures import replaced
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.plan.plan import Plan
from redist.runtime.lanes.timeline import live_bytes
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.text.latest import Latest
from redist.text.units import room_from

P = ParamSpec("P")
R = TypeVar("R")
MOST_CAPTURED = 64
"""Captured programs that one function keeps."""
MOST_TRIED = 2
"""So often layouts are planned for arguments that stay, with fewer if copies of them have no room."""
MANY_CAPTURED = 9
"""From this many captures of one function on, a warning says what differed."""
EAGER = "REDIST_EAGER"
"""The variable that switches programs off."""


class Program(Generic[P, R]):
    """A function whose calls are captured, one for every kind of arguments, and repeated."""

    def __init__(
        self, function: Callable[P, R], options: ProgramOptions, body: ProgramBody | None = None
    ) -> None:
        self.function, self.options = function, options
        self.name = getattr(function, "__name__", type(function).__name__)
        self._body = body or ProgramBody(self.name, function, options.layouts == PLANNED)
        self._prepared: Latest[Any, Prepared] = Latest(MOST_CAPTURED)
        self._captured = 0
        self._limited = LimitedCalls(self.name, self._body.decide)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """**Collective.** Run the program; the first call of a kind captures it."""
        if current_tape() is not None:
            return self.function(*args, **options)
        limit = limit_in_force(self.options)
        signature = None if os.environ.get(EAGER) else sign(args, options)
        if signature is None or signature.has_aliases:  # written through one, seen through another
            return self._eagerly(limit, args, options)
        if limit is not None:
            within = self._limited.find(limit, signature, self.options.progress, fits=True)
            if isinstance(within, str):
                return self._eagerly(limit, args, options)
            kept: R = within.run(signature.arrays, progress=self.options.progress)
            return kept
        found = self._found(signature)
        if found.should_settle and self.options.cache:
            found = self._settle(found, signature)
        result: R = found.run(signature.arrays)
        if found.is_over and found.changing is not None:
            self._prepared[signature.key] = found.changing
        return result

    def _eagerly(self, limit: RunLimit | None, args: Any, options: Any) -> R:
        """**Collective.** Run the function as it is, within the limit."""
        if limit is None or self.options.limit_bytes is None:
            return self.function(*args, **options)
        with memory_limit(limit.limit_bytes, spill=limit.spill):
            return self.function(*args, **options)

    def _found(self, signature: Signature) -> Prepared:
        found = self._prepared.get(signature.key)
        if found is None or not found.still_holds():
            found = self._prepare(signature)
            self._remember(signature, found)
        return found

    def _within(self, signature: Signature, fits: bool = False) -> LimitedProgram | str | None:
        """**Collective.** The program within its limit, or why it runs as it is; None without a limit."""
        limit = limit_in_force(self.options)
        if limit is None or signature.has_aliases:
            return None if limit is None else "two arguments may lie in one memory"
        return self._limited.find(limit, signature, self.options.progress, fits)

    def _planning(
        self, limit: RunLimit | None, signature: Signature
    ) -> AbstractContextManager[None]:
        """**Local.** What says, within a limit, that planning goes on: one clock for all of it."""
        if limit is None:
            return nullcontext()
        return self._limited.planning(limit, signature, self.options.progress)

    def graph(self, *args: P.args, **options: P.kwargs) -> ProgramGraph:
        """**Collective.** The program for such arguments as a value; nothing runs, nothing is changed.

        It prints as a table of its calls, with lines, types, what needs what, and what becomes of every
        move; ``to_json()``, ``svg()`` and ``html()`` give it to others.
        """
        signature, limit = sign(args, options), limit_in_force(self.options)
        with self._planning(limit, signature):
            within = self._within(signature)
            if isinstance(within, LimitedProgram):
                return limited_graph(within, signature.arrays)[0]
        found = self._found(signature)
        arrays = [*signature.arrays, *(one.array for one in found.outside)]

        def plan(source: ArrayType, target: ArrayType) -> Plan:
            return plan_move(source, target, found.comm, None)

        ready, types = found.ready, [array.type for array in arrays]
        graph = graph_of(self.name, found.captured, types, plan, ready.fates.words, ready.figures)
        if within is None:
            return graph
        return replace(graph, memory=(f"memory     runs as it is under the limit: {within}",))

    explain = graph

    def plan(self, *args: P.args, **options: P.kwargs) -> ProgramPlan:
        """**Collective.** The layouts of the program for such arguments as a value; nothing runs.

        It prints as a table: the types in which every call is done, work and its balance, moves, modelled
        time beside that of the layouts as written, memory, and bounds that no layouts are below.
        ``to_json()``, ``svg()`` and ``html()`` give it to others.
        """
        signature, limit = sign(args, options), limit_in_force(self.options)
        with self._planning(limit, signature):
            within = self._within(signature)
            if isinstance(within, LimitedProgram) and limit is not None:
                decided = self._limited.decide(limit, signature, within.layouts)[1]
                layouts = None if decided is None else decided.plan
                need = 0 if layouts is None else layouts.peak_bytes
                graph, figures = limited_graph(within, signature.arrays, need)
                return replace(make_program_plan(graph, decided), **figures)
        found = self._found(signature)
        return make_program_plan(self.graph(*args, **options), found.decided)

    def timeline(self, *args: P.args, **options: P.kwargs) -> RunTimeline:
        """**Collective.** Call the program within its limit, and note what lanes of ranks do when.

        ``print(step.timeline(x, w))`` gives a table, ``svg(file)`` a picture, ``result`` that of the call.
        """
        signature = sign(args, options)
        within = self._within(signature, fits=True)
        if within is None or signature.has_aliases:
            raise RequestError(
                f"cannot note the lanes of {self.name}: it has no limit or two arguments may lie in one "
                "memory; give @pgas.program(limit=...), or use redist.trace() for its moves"
            )
        if isinstance(within, str):
            raise RequestError(
                f"cannot note the lanes of {self.name}: it runs as it is under the limit, because {within}"
            )
        result = within.run(signature.arrays, records=True, progress=self.options.progress)
        assert within.fitted is not None
        graph = within.fitted.graph
        told = named_spans(graph, within.spans), live_bytes(graph, within.spans)
        spans, memory = zip(*gather(within.comm, told, TIMEOUT_S), strict=True)
        return RunTimeline(spans, result, memory, graph.places[0].limit_bytes)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of a class: called with the object, which counts as an argument."""
        return self if instance is None else MethodType(self, instance)

    def _prepare(self, signature: Signature) -> Prepared:
        """**Collective.** Capture, plan and make ready; copies are kept of all arguments that are moved."""
        tidied, decided, outside, comm = self._body.decide(signature, self.options.cache)
        ready = prepare(tidied, comm, self.options)
        return Prepared(tidied.captured, ready, outside, signature, comm, decided, None)

    def _prepare_steady(self, signature: Signature, steady: frozenset[int]) -> Prepared | None:
        """**Collective.** The same for arguments that stay, as far as their copies have room."""
        for _ in range(MOST_TRIED):
            tidied, decided, outside, comm = self._body.decide(
                signature, self.options.cache, steady
            )
            too_large = too_large_to_keep(tidied.copies, tidied.captured, comm)
            if not too_large:
                ready = prepare(tidied, comm, self.options)
                return Prepared(tidied.captured, ready, outside, signature, comm, decided, steady)
            steady = steady - too_large
            if not steady:
                break
        return None

    def arrange(self, *args: P.args, **options: P.kwargs) -> tuple[Any, ...]:
        """**Collective.** Move arguments to where the program wants them; they are given back, as a tuple.

        ``x, w = step.arrange(x, w)``: then no call has to move them again. Arrays that the program updates
        in place stay where they are.
        """
        signature = sign(args, options)
        pairs = zip(signature.arrays, self._body.wanted_types(signature) or (), strict=True)
        moved = {id(x): move(x, t, asked=True) for x, t in pairs}
        return tuple(replaced(args, (Tiled,), lambda x: moved[id(x)]))

    def joined(self, state: Any) -> tuple[Callable[..., Any], Any]:
        """**Collective.** A program whose results lie as its arguments do, and a state to begin with.

        Types are those of a plan in which results go round as arguments; the program itself, and the state as
        it is, if results are not such a state, or layouts are as written.
        """
        args = state if isinstance(state, tuple) else (state,)
        if self.options.layouts != PLANNED or not all(isinstance(x, Tiled) for x in args):
            return self, state
        if len({id(x) for x in args}) < len(args):
            return self, state
        found = self._body.joined(sign(args, {}))
        if found is None:
            return self, state
        body, begin = found
        step: Program[P, R] = Program(self.function, self.options, body)
        return step, tuple(begin) if isinstance(state, tuple) else begin[0]

    def _settle(self, found: Prepared, signature: Signature) -> Prepared:
        """**Collective.** Prepare anew for arguments that stay, if there are others than was thought.

        What is moved of them is moved once, so that other layouts may be best.
        """
        arrays = [*signature.arrays, *(one.array for one in found.outside)]
        if not any(
            task.kind in COLLECTIVE or task.kind is TaskKind.START for task in found.ready.tasks
        ):
            return found
        steady = found.staying(arrays)
        found.look_later(arrays)
        if not steady:
            return found
        kept = {one.argument for one in found.ready.kept_moves}
        if kept <= steady:
            found.keep_again()
            if self.options.layouts != PLANNED:
                return found
        if not found.may_plan_again():
            return found
        again = self._prepare_steady(signature, steady)
        if again is None or not found.pays(again, steady):
            return found
        found.settle_as(again)
        self._prepared[signature.key] = again
        return again

    def _remember(self, signature: Signature, prepared: Prepared) -> None:
        self._captured += 1
        if self._captured >= MANY_CAPTURED and self._prepared:
            before = next(reversed(self._prepared.values()))
            warnings.warn(
                f"{self.name} was captured {self._captured} times; the last two differ "
                f"in {_difference(before.key, signature.key)}",
                stacklevel=3,
            )
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


@overload
def program(function: Callable[P, R], /) -> Program[P, R]: ...


@overload
def program(
    *,
    layouts: str = PLANNED,
    prefetch: bool | str = True,
    cache: bool = True,
    limit: int | float | str | None = None,
    spill: str | None = None,
    progress: bool = False,
) -> Callable[[Callable[P, R]], Program[P, R]]: ...


def program(
    function: Any = None,
    /,
    *,
    layouts: str = PLANNED,
    prefetch: bool | str = True,
    cache: bool = True,
    limit: int | float | str | None = None,
    spill: str | None = None,
    progress: bool = False,
) -> Any:
    """**Local.** Make a function of global arrays a program: captured for a kind of arguments, then repeated.

    In an SPMD program::

        @pgas.program
        def step(x, w):
            return pgas.tanh(x @ w) + x

        y = step(x, w)              # the first call captures, checks and prepares; later ones repeat

    Results equal those of the function itself, bit for bit. Loops and branches over values of Python
    are unrolled; what depends on values of arrays is refused. ``REDIST_EAGER=1`` switches programs off.

    ``@pgas.program(prefetch=False, cache=False)`` begins no move before its place and keeps no moved copies
    of arguments, for comparison; ``prefetch="always"`` begins moves within a node early, too.

    ``@pgas.program(limit="8GiB", spill="/scratch")`` keeps a limit on every rank, in every order of its work:
    tiles that have no room are written to a file of that folder and loaded before they are needed. Without
    ``spill`` the limit is only checked, before anything runs: :class:`~redist.errors.NoPlanError` says the
    least that would do. ``spill="host"`` is for arrays on GPUs: their tiles go to pinned memory of the host.
    Inside ``redist.memory_limit`` programs take limit and folder from there; ``spill`` without any limit
    changes nothing. With ``progress`` rank 0 says when it plans and how far a run within a limit has come: a
    bar on a terminal, a line every second elsewhere. Planning that takes long says so in any case.
    """
    if layouts not in (PLANNED, AS_WRITTEN):
        known = f"{PLANNED!r}, {AS_WRITTEN!r}"
        raise ArgumentError(f"cannot use layouts {layouts!r}: known are {known}")
    if prefetch not in (True, False, ALWAYS):
        raise ArgumentError(f"cannot use prefetch {prefetch!r}: known are True, False, {ALWAYS!r}")
    for name, value in (("cache", cache), ("progress", progress)):
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentError(f"cannot use {name}={value!r}: need True or False")
    if function is not None and not callable(function):
        raise ArgumentTypeError(
            f"cannot make a program of {function!r}: need a function; options have names, as in "
            "@pgas.program(cache=False)"
        )
    options = ProgramOptions(
        prefetch,
        bool(cache),
        layouts,
        room_from(limit, "limit"),
        spill_folder(spill),
        bool(progress),
    )
    if function is not None:
        return Program(function, options)
    return lambda given: Program(given, options)


def call_step(step: Callable[..., Any], state: Any) -> Any:
    """Call a function with a state: a tuple has its arguments."""
    return step(*state) if isinstance(state, tuple) else step(state)
