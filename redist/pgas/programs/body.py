"""The body of a program: its function runs once for a kind of arguments, and leaves behind what it did."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from redist.errors import CaptureError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.programs.capture import Capture, agree_on_nodes, capture, strides_of, union_of
from redist.pgas.programs.compiled import LaidOut
from redist.pgas.programs.outside import Outside, find_outside
from redist.pgas.programs.planning.plan_program import (
    costs_of,
    decide_layouts,
    left_alone_by,
    wanted_types,
)
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.programs.prepare import Tidied, tidy_up
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.latest import Latest

MOST_RECORDED = 64
"""Kinds of arguments for which one function is recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What a function did for arguments of a kind: in the layouts as written, and its calls if it is planned.

    It keeps no array but those that the function reaches.
    """

    captured: Capture
    recorder: CallRecorder | None
    outside: Outside
    comm: Comm
    key: Hashable
    kept: tuple[Any, ...]
    """Arguments that count by identity."""

    def arrays(self, signature: Signature) -> list[Any]:
        """The arrays of a call, and those that the function reaches."""
        return [*signature.arrays, *(one.array for one in self.outside.arrays)]

    def serves(self, signature: Signature) -> bool:
        """**Local.** Whether it was made in this very call, or what the function reaches is as it was."""
        return self.key is signature.key or self.outside.still_stands(signature.arrays)


class ProgramBody:
    """A function to capture. With ``plans`` its layouts are planned, else they are as written."""

    def __init__(self, name: str, function: Callable[..., Any], plans: bool) -> None:
        self.name, self.function, self._plans = name, function, plans
        self._known: Latest[Hashable, Recording] = Latest(MOST_RECORDED)

    def decide(
        self,
        signature: Signature,
        cache: bool,
        steady: frozenset[int] | None = None,
        limit_bytes: int | None = None,
        as_written: str = "",
    ) -> LaidOut:
        """**Collective.** The program in the layouts that are decided on."""
        found = self.recorded(signature, self._plans)
        arrays, comm, recorder = found.arrays(signature), found.comm, found.recorder
        captured = found.captured
        lies_otherwise = captured.strides != strides_of(arrays)
        if (recorder is None or recorder.odd) and union_of(comm, [lies_otherwise])[-1]:
            found = self._run(signature, self._plans)
            captured, recorder = found.captured, found.recorder

        def tidy(captured: Capture) -> Tidied:
            return tidy_up(captured, comm, cache, steady)

        if recorder is None:
            return LaidOut(self.name, tidy(captured), None, found.outside, comm)
        again = partial(capture, recorder.again, arrays, arrays, False, None)
        if lies_otherwise and not recorder.odd:
            captured = again(CallRecorder())
        decided = decide_layouts(
            tidy(captured), recorder, again, tidy, partial(costs_of, comm=comm), comm,
            steady or (), limit_bytes, as_written,
        )  # fmt: skip
        return LaidOut(self.name, decided.tidied, decided, found.outside, comm)

    def recorded(self, signature: Signature, plans: bool) -> Recording:
        """**Collective.** What the function does for such arguments; it runs if that is not known."""
        found = self._known.get((signature.key, plans))
        if found is not None and found.serves(signature):
            return found
        return self._run(signature, plans)

    def _run(self, signature: Signature, plans: bool) -> Recording:
        """**Collective.** Run the function on ghosts, and record what it does."""
        args, options = signature.args, signature.options
        reached = find_outside(self.function, (*args, *options.values()))
        outside = reached.beside(signature.arrays)
        run = partial(self.function, *args, **options)
        return self._record(signature, outside, run, CallRecorder() if plans else None)

    def _record(
        self,
        signature: Signature,
        outside: Outside,
        run: Callable[[], Any],
        recorder: CallRecorder | None,
    ) -> Recording:
        """**Collective.** Capture what runs, and keep it for such arguments; all ranks agree on it."""
        arrays: list[Any] = [*signature.arrays, *(one.array for one in outside.arrays)]
        comm = _comm_of(arrays)
        try:
            for array in arrays:
                if array.memory.is_ghost:
                    raise CaptureError(
                        f"cannot use {array.type}: it was made while a program was captured and has no "
                        "values; return it from the program"
                    )
            captured = capture(run, (), arrays, arranger=recorder)
        except Exception as problem:
            agree_on_nodes(self.name, comm, (), problem)
            raise
        agree_on_nodes(self.name, comm, captured.nodes, None)
        if recorder is not None:
            recorder.odd = union_of(comm, [recorder.odd])[-1]
        found = Recording(
            captured, recorder, outside.after_run(), comm, signature.key, signature.kept
        )
        self._known[signature.key, recorder is not None] = found
        return found

    def wanted_types(
        self, signature: Signature, goes_round: bool = False
    ) -> list[ArrayType] | None:
        """**Collective.** The types in which the program finds the arrays among its arguments best."""
        found = self.recorded(signature, True)
        types = [x.type for x in signature.arrays]
        assert found.recorder is not None
        return wanted_types(found.captured, found.recorder, types, found.comm, goes_round)

    def joined(self, signature: Signature) -> tuple[ProgramBody, list[Tiled]] | None:
        """**Collective.** This body with results that lie as its arguments do, and these, moved there.

        Its calls are done again: the function does not run once more. None if they or its results cannot be.
        """
        types = self.wanted_types(signature, goes_round=True)
        found = self.recorded(signature, True)
        before = found.recorder
        if types is None or before is None or before.odd:
            return None
        begin = [move(x, t, asked=True) for x, t in zip(signature.arrays, types, strict=True)]
        there = sign(tuple(begin), {})
        recorder = CallRecorder(before, None, *left_alone_by(found.captured, before, found.comm))

        def run() -> Any:
            made = before.again(*found.arrays(there))
            if not isinstance(made, tuple):
                return made.to(types[0])
            return tuple(x.to(t) for x, t in zip(made, types, strict=True))

        body = ProgramBody(self.name, self.function, True)
        body._record(there, found.outside, run, recorder)
        return body, begin


def _comm_of(arrays: Sequence[Tiled]) -> Comm:
    comms = [array.comm for array in arrays]
    if any(one != comms[0] for one in comms[1:]):
        raise RequestError("cannot run a program of arrays over several communicators")
    return comms[0] if comms else comm_or_world(None)
