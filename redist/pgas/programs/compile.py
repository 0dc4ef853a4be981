"""Compile a function of global arrays for the arguments of a call, and keep what was compiled."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from redist.errors import CaptureError, NoPlanError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE, TaskKind
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.limit_in_force import current_limit
from redist.pgas.programs.body import ProgramBody
from redist.pgas.programs.compiled import Compiled
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.places import LayoutsFor, RunLimit
from redist.pgas.programs.prepare import PLANNED, ProgramOptions, prepare
from redist.pgas.programs.replayed import ReplayedProgram, too_large_to_keep
from redist.pgas.programs.signature import Signature
from redist.text.latest import Latest
from redist.text.units import format_bytes

MOST_COMPILED = 64
"""Compiled programs that one function keeps, for all signatures and limits together."""
MOST_TRIED = 2
"""So often layouts are planned for arguments that stay, with fewer if copies of them have no room."""
MANY_CAPTURED = 9
"""From this many captures of one function on, a warning says what differed."""


class ProgramCompiler:
    """Finds the compiled program of a call: kept from an earlier call, or made now."""

    def __init__(self, body: ProgramBody, options: ProgramOptions) -> None:
        self._body, self._options = body, options
        self.known: Latest[tuple[Hashable, RunLimit | None], Compiled | str] = Latest(MOST_COMPILED)
        """By signature and limit; a text says why the function runs as it is, under that limit."""
        self.n_captured = 0

    def call(self, signature: Signature, limit: RunLimit | None, eagerly: Callable[[], Any]) -> Any:
        """**Collective.** Run the program for a call; ``eagerly`` if it cannot be compiled."""
        found = self.find(signature, limit, runs=True)
        if isinstance(found, ReplayedProgram):
            return self._repeat(found, signature)
        if isinstance(found, LimitedProgram):
            return found.run(signature.arrays, progress=self._options.progress)
        return eagerly()

    def _repeat(self, found: ReplayedProgram, signature: Signature) -> Any:
        """**Collective.** Run a program without a limit, made anew for arguments that stay if that pays."""
        if found.should_settle and self._options.cache:
            found = self._settle(found, signature)
        result = found.run(signature.arrays)
        if found.is_over and found.changing is not None:
            self.known[signature.key, None] = found.changing
        return result

    def find(
        self, signature: Signature, limit: RunLimit | None, runs: bool = False
    ) -> Compiled | str:
        """**Collective.** The program for such arguments, or why no plan of it keeps the limit.

        If it shall run, a new program within a limit is fitted, too: then arguments may be spilled.
        """
        key = signature.key, limit
        found = self.known.get(key)
        if isinstance(found, str) or (found is not None and found.serves(signature)):
            return found
        if limit is None:
            replayed = self._replayed(signature)
            self._warn_of_many(signature)
            self.known[key] = replayed
            return replayed
        with self.planning(limit, signature):
            within = compile_within(self._body, limit, signature, self._options.progress)
            self.known[key] = within
            if runs and not isinstance(within, str):
                within.fit(within.arrays(signature.arrays))
        return within

    def planning(
        self, limit: RunLimit | None, signature: Signature
    ) -> AbstractContextManager[object]:
        """**Local.** What says, within a limit, that planning goes on: one clock for all of it."""
        if limit is None:
            return nullcontext()
        return limit.planning(self._body.name, signature.speaks, self._options.progress)

    def _replayed(self, signature: Signature) -> ReplayedProgram:
        """**Collective.** Capture, plan and make ready; copies are kept of all arguments that are moved."""
        laid = self._body.decide(signature, self._options.cache)
        ready = prepare(laid.tidied, laid.comm, self._options)
        return ReplayedProgram(laid, ready, signature, None)

    def _steady(self, signature: Signature, steady: frozenset[int]) -> ReplayedProgram | None:
        """**Collective.** The same for arguments that stay, as far as their copies have room."""
        for _ in range(MOST_TRIED):
            laid = self._body.decide(signature, self._options.cache, steady)
            tidied = laid.tidied
            too_large = too_large_to_keep(tidied.copies, tidied.captured, laid.comm)
            if not too_large:
                ready = prepare(tidied, laid.comm, self._options)
                return ReplayedProgram(laid, ready, signature, steady)
            steady = steady - too_large
            if not steady:
                break
        return None

    def _settle(self, found: ReplayedProgram, signature: Signature) -> ReplayedProgram:
        """**Collective.** Compile anew for arguments that stay, if there are others than was thought.

        What is moved of them is moved once, so that other layouts may be best.
        """
        arrays = found.arrays(signature.arrays)
        if not any(
            task.kind in COLLECTIVE or task.kind is TaskKind.START for task in found.ready.tasks
        ):
            return found
        steady = found.staying(arrays)
        found.look_later(arrays)
        if not steady:
            return found
        if steady.issuperset(found.ready.copies.values()):
            found.keep_again()
            if self._options.layouts != PLANNED:
                return found
        if not found.may_plan_again():
            return found
        again = self._steady(signature, steady)
        if again is None or not found.pays(again, steady):
            return found
        found.settle_as(again)
        self.known[signature.key, None] = again
        return again

    def _warn_of_many(self, signature: Signature) -> None:
        self.n_captured += 1
        if self.n_captured >= MANY_CAPTURED and self.known:
            before, _ = next(reversed(self.known))
            warnings.warn(
                f"{self._body.name} was captured {self.n_captured} times; the last two differ "
                f"in {_difference(before, signature.key)}",
                stacklevel=5,
            )


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


# Within a limit: in layouts planned for it, or in others that fit.


NO_ROOM = "no layouts that were planned fit into the limit"


def limit_in_force(options: ProgramOptions) -> RunLimit | None:
    """**Local.** The smaller of the limits of a program and of ``redist.memory_limit``; None without any.

    Both memories, the host's and that of a GPU, have the same.
    """
    outer = current_limit()
    limits = [one for one in (options.limit_bytes, outer.limit_bytes) if one is not None]
    if not limits:
        return None
    return RunLimit(min(limits), options.spill or outer.spill, options.spill is not None)


def compile_within(
    body: ProgramBody, limit: RunLimit, signature: Signature, progress: bool = False
) -> LimitedProgram | str:
    """**Collective.** The program within a limit, or why it cannot be planned and runs as it is instead."""
    if progress and signature.speaks:
        within = format_bytes(limit.limit_bytes)
        print(f"{body.name}: planning within {within} a rank", file=sys.stderr, flush=True)
    planned = _make(body, limit, signature)
    if isinstance(planned, str) or planned.decided is None or limit.spill is not None:
        return planned
    return _fitting(body, planned, limit, signature)


def _make(
    body: ProgramBody,
    limit: RunLimit,
    signature: Signature,
    layouts: LayoutsFor = LayoutsFor.LIMIT,
) -> LimitedProgram | str:
    """**Collective.** The program in its layouts, not yet fitted, or why it cannot be planned."""
    FAR_BYTES.clear()
    most = None  # what is spilled is no trouble
    if limit.spill is None and layouts is LayoutsFor.LIMIT:
        most = limit.limit_bytes
    as_written = NO_ROOM if layouts is LayoutsFor.NOTHING else ""
    laid = body.decide(signature, False, None, most, as_written)
    try:
        return LimitedProgram(laid, limit)
    except CaptureError as problem:
        return str(problem)


def _fitting(
    body: ProgramBody, planned: LimitedProgram, limit: RunLimit, signature: Signature
) -> LimitedProgram | str:
    """**Collective.** The program in layouts planned for the limit; in others if these do not fit.

    What is planned for another limit may need more or less than it: so the limit that the error names
    is that of layouts which are the same for all limits, or one that was tried, as was one byte less.
    """

    def least_within(limit_bytes: int) -> int | None:
        if limit_bytes < held_bytes:
            return None
        found = _make(body, replace(limit, limit_bytes=limit_bytes), signature)
        return None if isinstance(found, str) else found.least_bytes(found.arrays(given))

    given = signature.arrays
    own = _refused(planned, signature)
    if not own:
        return planned
    assert planned.decided is not None
    is_written = bool(planned.decided.why)
    held_bytes = planned.agreed.begins_with(planned.arrays(given))
    needed = {own: planned} if is_written else {}
    for layouts in (LayoutsFor.SPEED, *(() if is_written else (LayoutsFor.NOTHING,))):
        found = _make(body, limit, signature, layouts)
        if isinstance(found, str):
            continue
        least = _refused(found, signature)
        if not least:
            return found
        needed.setdefault(least, found)
    if not needed:
        return found
    least = lowest_kept(limit.limit_bytes, min(needed), least_within)
    one = needed.get(least)
    if one is None:
        made = _make(body, replace(limit, limit_bytes=least), signature)
        one = planned if isinstance(made, str) else made
    why = one.agreed.why(one.arrays(given), least)  # it is this one that needs what is named
    raise limit.refusal(body.name, least, why)


def lowest_kept(refused: int, kept: int, least_within: Callable[[int], int | None]) -> int:
    """A limit between one that is refused and one that is kept: it is kept, and one byte less is not.

    ``least_within`` says of a limit what is needed at least by what was made for it; None if it is refused.

    >>> lowest_kept(1, 90, lambda limit: 40 if limit >= 60 else None)
    60
    >>> lowest_kept(1, 90, lambda limit: 70 if limit >= 70 else None)
    70
    >>> lowest_kept(1, 90, lambda limit: None)
    90
    """
    if refused + 1 == kept or least_within(refused + 1) is not None:
        return refused + 1  # from one byte less than a limit that was named, it is named again
    low, high, next_one = refused + 1, kept, kept - 1
    while high - low > 1:
        least = least_within(next_one)
        if least is None:
            low, next_one = next_one, (next_one + high) // 2
        else:  # what needs less is likely to be made for less
            high, next_one = next_one, min(least, next_one - 1)
        if not low < next_one < high:
            next_one = (low + high) // 2
    return high


def _refused(found: LimitedProgram, signature: Signature) -> int:
    """**Collective.** Fit a program; the least limit with which it would fit, 0 if it does."""
    try:
        found.fit(found.arrays(signature.arrays))
    except NoPlanError as error:
        return error.least_bytes
    return 0
