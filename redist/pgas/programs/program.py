"""Programs: functions of global arrays that are captured at their first call and repeated after it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.gradients.api import Argnums, grad, value_and_grad
from redist.pgas.gradients.recorder import records_gradients
from redist.pgas.programs.body import ProgramBody
from redist.pgas.programs.compile import ProgramCompiler, limit_in_force
from redist.pgas.programs.compiled import Compiled
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.report import RunTimeline, live_bytes, named_spans
from redist.pgas.programs.prepare import ALWAYS, AS_WRITTEN, PLANNED, ProgramOptions
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.shapes import repeat as repeated_elements
from redist.pgas.spill.memory_limit import memory_limit
from redist.pgas.spill.spill_store import spill_folder
from redist.pgas.structures import replaced
from redist.pgas.tiles.move import move, paid
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.text.units import room_from

# Loops of programs: a step repeated this many times, or until the values say that it is enough.


def repeat(x: Any, repeats: Any, /, *state: Any, axis: int | None = None) -> Any:
    """**Collective** if elements must move. Repeat elements of an array, or a step of a program.

    ``pgas.repeat(x, 3, axis=0)`` repeats each element along a dim, as the standard says.
    ``pgas.repeat(step, 30, state)`` calls ``step`` 30 times, each time with what it returned before: an
    array, or a tuple of its arguments. If ``step`` is a program in planned layouts, its results lie as its
    arguments do, in the layouts in which repeated rounds cost least.
    """
    if not callable(x):
        if state:
            raise ArgumentTypeError("cannot repeat elements: name the dim with axis=")
        return repeated_elements.repeat(x, repeats, axis=axis)
    if len(state) != 1 or axis is not None:
        raise ArgumentTypeError("cannot repeat a step: give it, how often, and one state")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise ArgumentError(f"cannot repeat a step {_short(repeats)} times: need an int >= 0")
    (now,) = state
    step = x
    if isinstance(x, Program) and repeats > 1 and not _is_seen():
        step, now = x.joined(now)
    for _ in range(repeats):
        now = call_step(step, now)
    return now


def repeat_until(
    step: Callable[..., Any], state: Any, stop: Callable[..., Any], most: int = 1000
) -> tuple[Any, int]:
    """**Collective.** Repeat a step until ``stop`` is true; return the state and how often it ran.

    ``(centres, moved), n = pgas.repeat_until(step, (centres, moved), lambda c, m: m < 1e-6)``: each time,
    ``step`` and then ``stop`` are called with the latest state. The value of ``stop`` must be an array
    without dims, the same on every rank, so that all ranks stop together. After ``most`` times the loop ends
    in any case.
    """
    if current_tape() is not None:
        raise ArgumentTypeError(
            "cannot repeat until something in a program: how often depends on values; "
            "let the program be the step, and repeat it outside"
        )
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ArgumentError(f"cannot repeat a step at most {_short(most)} times: need an int >= 0")
    now = state
    for number in range(most):
        now = call_step(step, now)
        if bool(call_step(stop, now)):
            return now, number + 1
    return now, most


def _is_seen() -> bool:
    """**Local.** Whether the calls of a function are captured, or recorded for gradients: then it runs."""
    return current_tape() is not None or records_gradients()


def _short(given: Any) -> str:
    """**Local.** What stands in the place of a number, without the elements of an array."""
    return str(given.type) if isinstance(given, Tiled) else repr(given)


P = ParamSpec("P")
R = TypeVar("R")
EAGER = "REDIST_EAGER"
"""The variable that switches programs off."""


class Program(Generic[P, R]):
    """A function that is captured once for every kind of arguments, and then repeated."""

    def __init__(
        self, function: Callable[P, R], options: ProgramOptions, body: ProgramBody | None = None
    ) -> None:
        self.function, self.options = function, options
        self.name = getattr(function, "__name__", type(function).__name__)
        self._body = body or ProgramBody(self.name, function, options.layouts == PLANNED)
        self.compiler = ProgramCompiler(self._body, options)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """**Collective.** Run the program; the first call of a kind captures it."""
        if _is_seen():
            return self.function(*args, **options)
        limit = limit_in_force(self.options)

        def eagerly() -> R:
            if limit is None or self.options.limit_bytes is None:
                return self.function(*args, **options)
            with memory_limit(limit.limit_bytes, spill=limit.spill):
                return self.function(*args, **options)

        signature = None if os.environ.get(EAGER) else sign(args, options)
        if signature is not None and any(x._owes is not None for x in signature.arrays):
            now = {
                id(x): paid(x) for x in signature.arrays
            }  # a program knows arrays by their types
            args, options = replaced((args, options), (Tiled,), lambda x: now[id(x)])
            signature = sign(args, options)
        if signature is None or signature.has_aliases:  # written through one, seen through another
            return eagerly()
        result: R = self.compiler.call(signature, limit, eagerly)
        return result

    def grad(self, argnums: Argnums = 0, has_aux: bool = False) -> Program[..., Any]:
        """**Local.** A program that returns the gradients of this one, with its options: :func:`pgas.grad`.

        ``slopes = loss.grad(argnums=(0, 1))``. Forward and backward calls are planned together.
        """
        return Program(grad(self.function, argnums, has_aux), self.options)

    def value_and_grad(self, argnums: Argnums = 0, has_aux: bool = False) -> Program[..., Any]:
        """**Local.** Like :meth:`grad`, with the value before the gradients: :func:`pgas.value_and_grad`."""
        return Program(value_and_grad(self.function, argnums, has_aux), self.options)

    def _look(self, signature: Signature) -> tuple[Compiled, str]:
        """**Collective.** What such a call would run, and why it does not keep its limit by a plan, if so."""
        limit = limit_in_force(self.options)
        if limit is None:
            why = ""
        elif signature.has_aliases:
            why = "two arguments may lie in one memory"
        else:
            found = self.compiler.find(signature, limit)
            if not isinstance(found, str):
                return found, ""
            why = found
        replayed = self.compiler.find(signature, None)
        assert not isinstance(replayed, str)
        return replayed, why

    def graph(self, *args: P.args, **options: P.kwargs) -> ProgramGraph:
        """**Collective.** Return the program for such arguments as a graph; nothing runs, nothing is changed.

        It prints as a table of its calls, with their lines, types, dependencies, and what becomes of every
        move; ``to_json()``, ``svg()`` and ``html()`` export it.
        """
        signature = sign(args, options)
        with self.compiler.planning(limit_in_force(self.options), signature):
            found, why = self._look(signature)
            return _runs_as_it_is(found.graph(signature.arrays), why)

    explain = graph

    def plan(self, *args: P.args, **options: P.kwargs) -> ProgramPlan:
        """**Collective.** Return the layouts of the program for such arguments as a plan; nothing runs.

        It prints as a table: the types in which every call is done, the work and its balance, the moves, the
        modelled time compared with that of the layouts as written, the memory, and lower bounds for any
        layouts. ``to_json()``, ``svg()`` and ``html()`` export it.
        """
        signature = sign(args, options)
        with self.compiler.planning(limit_in_force(self.options), signature):
            found, why = self._look(signature)
            plan = found.plan(signature.arrays)
            return replace(plan, graph=_runs_as_it_is(plan.graph, why))

    def timeline(self, *args: P.args, **options: P.kwargs) -> RunTimeline:
        """**Collective.** Call the program within its limit, and record what the lanes of each rank do when.

        ``print(step.timeline(x, w))`` prints a table, ``svg(file)`` draws a picture, and ``result`` is the
        result of the call.
        """
        signature, limit = sign(args, options), limit_in_force(self.options)
        if limit is None or signature.has_aliases:
            raise RequestError(
                f"cannot note the lanes of {self.name}: it has no limit or two arguments may lie in one "
                "memory; give @pgas.program(limit=...), or use redist.trace() for its moves"
            )
        within = self.compiler.find(signature, limit, runs=True)
        if isinstance(within, str):
            raise RequestError(
                f"cannot note the lanes of {self.name}: it runs as it is under the limit, because {within}"
            )
        assert isinstance(within, LimitedProgram)
        result = within.run(signature.arrays, records=True, progress=self.options.progress)
        assert within.fitted is not None
        graph = within.fitted.graph
        told = named_spans(graph, within.spans), live_bytes(graph, within.spans)
        spans, memory = zip(*gather(within.comm, told, TIMEOUT_S), strict=True)
        return RunTimeline(spans, result, memory, graph.places[0].limit_bytes)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method of a class to its object, which counts as an argument."""
        return self if instance is None else MethodType(self, instance)

    def arrange(self, *args: P.args, **options: P.kwargs) -> tuple[Any, ...]:
        """**Collective.** Move arguments to the layouts that the program prefers, and return them as a tuple.

        After ``x, w = step.arrange(x, w)``, no call has to move them again. Arrays that the program updates
        in place stay where they are.
        """
        signature = sign(args, options)
        pairs = zip(signature.arrays, self._body.wanted_types(signature) or (), strict=True)
        moved = {id(x): move(x, t, asked=True) for x, t in pairs}
        return tuple(replaced(args, (Tiled,), lambda x: moved[id(x)]))

    def joined(self, state: Any) -> tuple[Callable[..., Any], Any]:
        """**Collective.** Return a program whose results lie as its arguments do, and a state to begin with.

        The types are those of a plan in which results become the next arguments. If results are not such a
        state, or layouts are as written, this returns the program itself and the state as it is.
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

    def __repr__(self) -> str:
        return f"<program {self.name}: captured {self.compiler.n_captured} times>"


def _runs_as_it_is(graph: ProgramGraph, why: str) -> ProgramGraph:
    """The graph of a program that keeps no plan of its limit, with the reason."""
    if not why:
        return graph
    return replace(graph, memory=(f"memory     runs as it is under the limit: {why}",))


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
    """**Local.** Turn a function of global arrays into a program: captured once, then repeated.

    In an SPMD program::

        @pgas.program
        def step(x, w):
            return pgas.tanh(x @ w) + x

        y = step(x, w)              # the first call captures, checks and prepares; later ones repeat

    Results equal those of the function itself, bit for bit. Each kind of arguments is captured once. Loops
    and branches over Python values are unrolled; those that depend on the values of arrays are refused.
    ``REDIST_EAGER=1`` switches programs off.

    ``@pgas.program(prefetch=False, cache=False)`` begins no move early and keeps no moved copies of
    arguments, for comparison; ``prefetch="always"`` begins all moves early: also moves within a node, small
    moves, and moves between ranks that share a GPU.

    ``@pgas.program(limit="8GiB", spill="/scratch")`` keeps a limit on every rank, in whatever order its work
    is done: tiles for which there is no room are written to a file in that folder and loaded before they are
    needed. Without ``spill``, the limit is only checked before anything runs:
    :class:`~redist.errors.NoPlanError` names a limit that is enough. ``spill="host"`` is for arrays on GPUs:
    their tiles go to pinned memory of the host. Inside ``redist.memory_limit``, programs take limit and
    folder from there; ``spill`` without any limit changes nothing. With ``progress``, rank 0 reports when it
    plans and how far a run within a limit has come: by a bar on a terminal, or by a line every second
    elsewhere. Planning that takes long is reported in any case.
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
