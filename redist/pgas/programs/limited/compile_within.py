"""Compile a program within a limit: in layouts planned for it, or in others that fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from redist.errors import CaptureError, NoPlanError
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.limit_in_force import current_limit
from redist.pgas.programs.body import ProgramBody
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.places import LayoutsFor, RunLimit
from redist.pgas.programs.prepare import ProgramOptions
from redist.pgas.programs.signature import Signature
from redist.text.units import format_bytes

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
