"""Calls of a program under a limit: which limit is in force, and the program that was fitted to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace

from redist.errors import CaptureError, NoPlanError
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.memory import current_limit
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.run_limit import LayoutsFor, RunLimit
from redist.pgas.programs.outside import Outside
from redist.pgas.programs.planning.plan_program import DecidedLayouts
from redist.pgas.programs.prepare import ProgramOptions, Tidied
from redist.pgas.programs.signature import Signature
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.runtime.ranks.free_memory import all_fit
from redist.runtime.ranks.world import Comm
from redist.text.latest import Latest
from redist.text.progress import Work
from redist.text.units import format_bytes

MOST_LIMITED = 16
"""Programs within a limit that one function keeps."""
NO_ROOM = "no layouts that were planned fit into the limit"
Decide = Callable[..., tuple[Tidied, DecidedLayouts | None, Outside, Comm]]


def limit_in_force(options: ProgramOptions) -> RunLimit | None:
    """**Local.** The smaller of the limits of a program and of ``redist.memory_limit``; None without any.

    Both memories, the host's and that of a GPU, have the same.
    """
    outer = current_limit()
    limits = [one for one in (options.limit_bytes, outer.limit_bytes) if one is not None]
    if not limits:
        return None
    return RunLimit(min(limits), options.spill or outer.spill, options.spill is not None)


class LimitedCalls:
    """Finds, or makes, the program for a call under a limit."""

    def __init__(self, name: str, decide: Decide) -> None:
        self._name, self._decide = name, decide
        self._known: Latest[Hashable, LimitedProgram | str] = Latest(MOST_LIMITED)

    def planning(self, limit: RunLimit, signature: Signature, progress: bool = False) -> Work:
        """**Local.** What says, while the program is planned for a call, that it still is."""
        return limit.planning(self._name, _speaks(signature), progress)

    def find(
        self, limit: RunLimit, signature: Signature, progress: bool = False, fits: bool = False
    ) -> LimitedProgram | str:
        """**Collective.** The program, or why it cannot be planned and runs as it is instead.

        If it shall run, ``fits`` says that a new one is fitted, too: then arguments may be put away.
        """
        key = signature.key, limit
        found = self._known.get(key)
        if isinstance(found, str):
            return found
        if found is not None and self._still_serves(found, limit, signature):
            return found
        if progress and _speaks(signature):
            within = format_bytes(limit.limit_bytes)
            print(f"{self._name}: planning within {within} a rank", file=sys.stderr, flush=True)
        with self.planning(limit, signature, progress):
            found, decided = self._make(limit, signature)
            if not isinstance(found, str) and decided is not None and limit.spill is None:
                found = self._fitting(found, bool(decided.why), limit, signature)
            self._known[key] = found
            if fits and not isinstance(found, str):
                found.fit(_arrays_of(found, signature))
        return found

    def decide(
        self, limit: RunLimit, signature: Signature, layouts: LayoutsFor = LayoutsFor.LIMIT
    ) -> tuple[Tidied, DecidedLayouts | None, Outside, Comm]:
        """**Collective.** The program in its layouts."""
        most = None  # what is spilled is no trouble
        if limit.spill is None and layouts is LayoutsFor.LIMIT:
            most = limit.limit_bytes
        as_written = NO_ROOM if layouts is LayoutsFor.NOTHING else ""
        return self._decide(signature, False, None, most, as_written)

    def _make(
        self, limit: RunLimit, signature: Signature, layouts: LayoutsFor = LayoutsFor.LIMIT
    ) -> tuple[LimitedProgram | str, DecidedLayouts | None]:
        """**Collective.** The program in its layouts, not yet fitted, or why it cannot be planned."""
        FAR_BYTES.clear()
        tidied, decided, outside, comm = self.decide(limit, signature, layouts)
        work_ps, move_ps = _work_ps(decided), _move_ps(decided, comm)
        try:
            found = LimitedProgram(
                self._name, tidied, outside, comm, limit, work_ps, move_ps, layouts
            )
        except CaptureError as problem:
            return str(problem), decided
        return found, decided

    def _still_serves(self, found: LimitedProgram, limit: RunLimit, signature: Signature) -> bool:
        """**Collective.** Whether a program is that of a call; without a folder, also whether it fits."""
        arrays = _arrays_of(found, signature)
        holds = found.still_holds(arrays)
        if limit.spill is not None:
            return all_fit(found.comm, holds)
        if all_fit(found.comm, holds and found.still_fits(arrays)):
            return True
        return all_fit(found.comm, holds) and _least_of(found, signature) is not None

    def _fitting(
        self, planned: LimitedProgram, is_written: bool, limit: RunLimit, signature: Signature
    ) -> LimitedProgram | str:
        """**Collective.** The program in layouts planned for the limit; in others if these do not fit.

        What is planned for another limit may need more or less than it: so the limit that the error names
        is that of layouts which are the same for all limits, or one that was tried, as was one byte less.
        """

        def least_within(limit_bytes: int) -> int | None:
            if limit_bytes < held_bytes:
                return None
            found, _ = self._make(replace(limit, limit_bytes=limit_bytes), signature)
            return None if isinstance(found, str) else _least_of(found, signature)

        own = _refused(planned, signature)
        if not own:
            return planned
        held_bytes = planned.agreed.begins_with(_arrays_of(planned, signature))
        needed = {own: planned} if is_written else {}
        for layouts in (LayoutsFor.SPEED, *(() if is_written else (LayoutsFor.NOTHING,))):
            found, _ = self._make(limit, signature, layouts)
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
            made, _ = self._make(replace(limit, limit_bytes=least), signature)
            one = planned if isinstance(made, str) else made
        why = one.agreed.why(
            _arrays_of(one, signature), least
        )  # it is this one that needs what is named
        raise limit.refusal(self._name, least, why)


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


def _speaks(signature: Signature) -> bool:
    """**Local.** Whether this rank is the one that says how planning goes."""
    return bool(signature.arrays) and signature.arrays[0].comm.rank == 0


def _arrays_of(found: LimitedProgram, signature: Signature) -> list[Tiled]:
    return [*signature.arrays, *(one.array for one in found.outside)]


def _refused(found: LimitedProgram, signature: Signature) -> int:
    """**Collective.** Fit a program; the least limit with which it would fit, 0 if it does."""
    try:
        found.fit(_arrays_of(found, signature))
    except NoPlanError as error:
        return error.least_bytes
    return 0


def _least_of(found: LimitedProgram, signature: Signature) -> int | None:
    """**Collective.** The least limit that would do for a program; None if its own does not."""
    try:
        return found.agreed.look(_arrays_of(found, signature))[1]
    except NoPlanError:
        return None


def _work_ps(decided: DecidedLayouts | None) -> dict[int, int]:
    """By call: what it computes, as modelled; nothing where layouts are as written."""
    if decided is None or decided.costs is None:
        return {}
    return {one.node: decided.costs.work_ps(one) for one in decided.recorder.calls}


def _move_ps(decided: DecidedLayouts | None, comm: Comm) -> Callable[[TileMover | Exchanger], int]:
    """**Collective** when it is called. What a move takes, as modelled."""
    costs = None if decided is None else decided.costs

    def time_ps(mover: TileMover | Exchanger) -> int:
        if isinstance(mover, TileMover):
            return plan_move(mover.move.source, mover.move.target, comm, None).time_ps
        return 0 if costs is None else costs.exchange_ps(mover.exchange)

    return time_ps
