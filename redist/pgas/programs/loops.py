"""Loops of programs: a step repeated this many times, or until the values say that it is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.programs.program import Program, call_step
from redist.pgas.shapes import repeat as repeated_elements
from redist.pgas.tiles.tiled import Tiled


def repeat(x: Any, repeats: Any, /, *state: Any, axis: int | None = None) -> Any:
    """**Collective** if elements must move. Repeat elements of an array, or a step of a program.

    ``pgas.repeat(x, 3, axis=0)`` repeats each element along a dim, as the standard says.
    ``pgas.repeat(step, 30, state)`` calls ``step`` 30 times, each time with what it gave before: an array,
    or a tuple of its arguments. The ends of a program in planned layouts are joined: the state lies where a
    round after another costs least.
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
    if isinstance(x, Program) and repeats > 1 and current_tape() is None:
        step, now = x.joined(now)
    for _ in range(repeats):
        now = call_step(step, now)
    return now


def repeat_until(
    step: Callable[..., Any], state: Any, stop: Callable[..., Any], most: int = 1000
) -> tuple[Any, int]:
    """**Collective.** Call a step with what it gave before until ``stop`` is true of it; also how often.

    ``(centres, moved), n = pgas.repeat_until(step, (centres, moved), lambda c, m: m < 1e-6)``: the stop value
    is an array without dims, the same on every rank, so that all ranks stop together. After ``most`` times
    the loop ends in any case.
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


def _short(given: Any) -> str:
    """**Local.** What stands in the place of a number, without the elements of an array."""
    return str(given.type) if isinstance(given, Tiled) else repr(given)
