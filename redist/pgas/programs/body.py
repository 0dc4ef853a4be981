"""The body of a program: its function, captured in the layouts that are decided on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from redist.errors import CaptureError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.ghost_array import GhostArray
from redist.pgas.programs.agree import agree_on_nodes
from redist.pgas.programs.capture import Capture, capture
from redist.pgas.programs.outside import Outside, find_outside
from redist.pgas.programs.planning.ends import wanted_types
from redist.pgas.programs.planning.plan_program import DecidedLayouts, costs_of, decide_layouts
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.programs.prepare import Tidied, tidy_up
from redist.pgas.programs.signature import Signature, sign
from redist.pgas.tiles.arranging import Arranger
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world


class ProgramBody:
    """A function to capture; its results are brought to the types ``ends``, if there are any.

    With ``plans`` its layouts are planned, else they are as written.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        plans: bool,
        ends: tuple[ArrayType, ...] | None,
    ) -> None:
        self.name, self.function, self._plans, self._ends = name, function, plans, ends

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What is captured: the function, its results brought to their types if there are any."""
        made = self.function(*args, **options)
        if self._ends is None:
            return made
        ends = made if isinstance(made, tuple) else (made,)
        there = tuple(x.to(t) for x, t in zip(ends, self._ends, strict=True))
        return there if isinstance(made, tuple) else there[0]

    def decide(
        self,
        signature: Signature,
        args: Sequence[Any],
        options: Mapping[str, Any],
        cache: bool,
        steady: frozenset[int] | None = None,
        limit_bytes: int | None = None,
        as_written: str = "",
    ) -> tuple[Tidied, DecidedLayouts | None, Outside, Comm]:
        """**Collective.** Capture the program in the layouts that are decided on."""
        recorder = CallRecorder() if self._plans else None
        captured, outside, arrays, comm = self.capture(signature, args, options, recorder)

        def capture_again(arranger: Arranger) -> Capture:
            return capture(self, args, options, arrays, arranger=arranger)

        def tidy(captured: Capture) -> Tidied:
            return tidy_up(captured, comm, cache, steady)

        tidied, decided = tidy(captured), None
        if recorder is not None:
            stay = [arrays[number] for number in sorted(steady or ())]
            decided = decide_layouts(
                tidied,
                recorder,
                capture_again,
                tidy,
                partial(costs_of, comm=comm),
                comm,
                stay,
                limit_bytes,
                as_written,
            )
            tidied, decided = decided.tidied, decided.without_arrays()
        return tidied, decided, outside, comm

    def capture(
        self,
        signature: Signature,
        args: Sequence[Any],
        options: Mapping[str, Any],
        arranger: Arranger | None,
    ) -> tuple[Capture, Outside, list[Tiled], Comm]:
        """**Collective.** Capture the program: what it reaches, and all its arrays; all ranks agree on it."""
        given = {id(array) for array in signature.arrays}
        reached = find_outside(self.function, (*args, *options.values()))
        outside = Outside(
            tuple(one for one in reached.arrays if id(one.array) not in given), reached.things
        )
        arrays = [*signature.arrays, *(one.array for one in outside.arrays)]
        comm = _comm_of(arrays)
        try:
            for array in arrays:
                if isinstance(array, GhostArray):
                    raise CaptureError(
                        f"cannot use {array.type}: it was made while a program was captured and has no "
                        "values; return it from the program"
                    )
            captured = capture(self, args, options, arrays, arranger=arranger)
        except Exception as problem:
            agree_on_nodes(self.name, comm, (), problem)
            raise
        agree_on_nodes(self.name, comm, captured.nodes, None)
        return captured, outside, arrays, comm

    def wanted_types(
        self, args: Sequence[Any], options: Mapping[str, Any], goes_round: bool = False
    ) -> list[ArrayType]:
        """**Collective.** The types in which the program finds the arrays among its arguments best."""
        signature, recorder = sign(tuple(args), options), CallRecorder()
        captured, _, _, comm = self.capture(signature, args, options, recorder)
        found = wanted_types(captured, recorder, signature.arrays, comm, goes_round)
        return [x.type for x in signature.arrays] if found is None else found


def _comm_of(arrays: Sequence[Tiled]) -> Comm:
    comms = [array.comm for array in arrays]
    if any(one != comms[0] for one in comms[1:]):
        raise RequestError("cannot run a program of arrays over several communicators")
    return comms[0] if comms else comm_or_world(None)
