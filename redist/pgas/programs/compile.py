"""Compile a function of global arrays for the arguments of a call, and keep what was compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE, TaskKind
from redist.pgas.programs.body import ProgramBody
from redist.pgas.programs.compiled import Compiled
from redist.pgas.programs.limited.compile_within import compile_within
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.places import RunLimit
from redist.pgas.programs.prepare import PLANNED, ProgramOptions, prepare
from redist.pgas.programs.replayed import ReplayedProgram, too_large_to_keep
from redist.pgas.programs.signature import Signature
from redist.text.latest import Latest

MOST_COMPILED = 64
"""Compiled programs that one function keeps, for all signatures and limits together."""
MOST_TRIED = 2
"""So often layouts are planned for arguments that stay, with fewer if copies of them have no room."""
MANY_CAPTURED = 9
"""From this many captures of one function on, a warning says what differed."""


class ProgramCompiler:
    """Finds the compiled program of a call: kept from a call before, or made now."""

    def __init__(self, body: ProgramBody, options: ProgramOptions) -> None:
        self._body, self._options = body, options
        self.known: Latest[tuple[Hashable, RunLimit | None], Compiled | str] = Latest(MOST_COMPILED)
        """By signature and limit; a text says why the function runs as it is, under that limit."""
        self.n_captured = 0

    def call(self, signature: Signature, limit: RunLimit | None, eagerly: Callable[[], Any]) -> Any:
        """**Collective.** Run the program for a call; ``eagerly`` if it cannot be compiled."""
        found = self.find(signature, limit, runs=True)
        if isinstance(found, str):
            return eagerly()
        if isinstance(found, LimitedProgram):
            return found.run(signature.arrays, progress=self._options.progress)
        assert isinstance(found, ReplayedProgram)
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

    def _replayed(
        self, signature: Signature, steady: frozenset[int] | None = None
    ) -> ReplayedProgram:
        """**Collective.** Capture, plan and make ready; copies are kept of all arguments that are moved."""
        laid = self._body.decide(signature, self._options.cache, steady)
        ready = prepare(laid.tidied, laid.comm, self._options)
        return ReplayedProgram(laid, ready, signature, steady)

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
