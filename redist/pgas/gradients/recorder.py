"""Notes calls as they pass, and goes back through them: what results owe becomes what operands owe.

Calls of functions of global arrays pass through whoever decides on layouts. A recorder stands before it, sees
operands and results, and hands the call on::

    f(x)      calls  ->  recorder  ->  planner of a program, if there is one  ->  results
    backward  the calls noted, last to first; each rule makes further calls, which pass on as well

So the backward pass consists of ordinary calls: of the same program, if there is one, and of whoever records
outside, for gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from redist.errors import GradientError
from redist.pgas.elementwise.apply import update
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.global_array import Array
from redist.pgas.gradients.cotangents import full, in_dtype
from redist.pgas.gradients.rules.table import RULES, Owed, Rule, key_of
from redist.pgas.indexing import dispatch, inspected
from redist.pgas.kinds import is_float
from redist.pgas.memory import TileMemory
from redist.pgas.products.matmul import update_by_product
from redist.pgas.structures import found_in, replaced
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    Arranger,
    arranging,
    current_arranger,
    filled,
    with_places,
)
from redist.pgas.tiles.move import move_together
from redist.pgas.tiles.tiled import Tiled
from redist.text.call_site import Line, calling_line, standing_at

CHANGING = frozenset(
    map(
        key_of,
        (update, update_by_product, dispatch.put, inspected.accumulate, Array.epoch, Array.fence),
    )
)
"""Functions that change an array in place, or let other ranks do so."""


Again = Callable[["GradientRecorder", Sequence[Tiled]], Any]
"""Does a call with other operands, where a recorder sees it."""


@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """A call whose results depend on what is differentiated: what it was given, and what it gave."""

    name: str
    line: Line
    rule: Rule
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    operands: tuple[Tiled, ...]
    results: Any
    needed: frozenset[int]
    versions: tuple[int, ...]
    """Of operands, when they were used."""
    again: Again
    """Does the call again; it keeps no array."""

    def standing(self) -> AbstractContextManager[None]:
        """**Local.** Let what a block does count as the gradient of this call, done by its line."""
        tape = current_tape()
        if tape is None:
            return standing_at(self.line)
        return tape.standing_anew(f"gradient of {self.name}", self.line)


class GradientRecorder:
    """Stands before the arranger in force and notes the calls that depend on some arrays."""

    def __init__(self, inner: Arranger | None, sources: Iterable[Tiled]) -> None:
        self.inner = inner
        self.calls: list[Noted] = []
        self._depending = {id(x): x for x in sources}
        """What depends on the sources, they too; kept here, so that no other array gets their ids."""

    # While the function runs

    def wants(self, memory: TileMemory) -> bool:
        """**Local.** Every call is seen, those on arrays with values too."""
        return True

    def call(self, call: ArrangedCall, arrays: Sequence[Tiled]) -> Any:
        """**Local.** Hand a call on; note it if its results depend on the sources."""
        if call.function in CHANGING:
            raise GradientError(
                f"cannot change an array in place ({calling_line()}) where gradients are recorded: values "
                "that were used are needed once more; make a new array, as in a = a + b"
            )
        rule = self._rule_of(call, arrays)
        result = self._hand_on(call, arrays)
        if rule is not None:
            given = filled(call.given, arrays)

            def again(recorder: GradientRecorder, arrays: Sequence[Tiled]) -> Any:
                return recorder.call(call, arrays)

            self.note(call.name, rule, given, arrays, result, again)
        return result

    def finish(self, result: Any, arrays: Sequence[Tiled]) -> None:
        """**Local.** Nothing is left to do: programs end outside."""

    def call_custom(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], options: Any
    ) -> tuple[Any, Callable[..., Any]]:
        """**Collective** as the function is. Note a function that says itself how to go back, as one call."""
        result, back = custom(self.inner, name, function, args, options)
        operands = tuple(x for x in args if isinstance(x, Tiled))
        hidden = [x for x in found_in((args, options), (Tiled,)) if id(x) in self._depending]
        if any(all(x is not y for y in operands) for x in hidden):
            raise GradientError(
                f"cannot differentiate {name} ({calling_line()}): an array that it is given inside something "
                "else depends on what is differentiated; give it as an argument of its own"
            )

        def rule(owed: Owed) -> Sequence[Any]:
            found = back(owed.g)
            many = found if isinstance(found, (tuple, list)) else (found,)
            if len(many) != len(args):
                raise GradientError(
                    f"cannot differentiate {name}: its gradient gives {len(many)} arrays for {len(args)} "
                    "arguments; give one, or None, for each"
                )
            return [g for g, x in zip(many, args, strict=True) if isinstance(x, Tiled)]

        slots = with_places(tuple(args), [])

        def again(recorder: GradientRecorder, arrays: Sequence[Tiled]) -> Any:
            return recorder.call_custom(name, function, filled(slots, arrays), options)[0]

        if any(id(x) in self._depending for x in operands):
            self.note(name, rule, (args, options), operands, result, again)
        return result, back

    def _rule_of(self, call: ArrangedCall, arrays: Sequence[Tiled]) -> Rule | None:
        """**Local.** The rule of a call if it needs one; an error if it has none."""
        if not any(id(x) in self._depending for x in arrays):
            return None
        if call.function in RULES:
            return RULES[call.function]
        if call.function is key_of(move_together):
            instead = "move arrays one by one, with a.to(type)"
        else:
            instead = (
                "apply pgas.stop_gradient to its arguments if they should count as constant, or say what its "
                "gradient is by pgas.custom_gradient"
            )
        raise GradientError(
            f"cannot differentiate {call.name} ({calling_line()}): it has no gradient; {instead}"
        )

    def _hand_on(self, call: ArrangedCall, arrays: Sequence[Tiled]) -> Any:
        if self.inner is not None and all(self.inner.wants(x.memory) for x in arrays):
            return self.inner.call(call, arrays)
        with arranging(None):
            return call.run(arrays, None)

    def depends(self, x: Tiled) -> bool:
        """**Local.** Whether an array depends on the sources, or is one."""
        return id(x) in self._depending

    def beside(self) -> GradientRecorder:
        """**Local.** Another recorder in the same place, for what depends on the same arrays."""
        return GradientRecorder(self.inner, self._depending.values())

    def note(
        self, name: str, rule: Rule, given: Any, arrays: Sequence[Tiled], result: Any, again: Again
    ) -> None:
        """**Local.** Note a call, unless it makes no numbers that could change."""
        made = [
            y
            for y in found_in(result, (Tiled,))
            if is_float(y.dtype) and all(y is not x for x in arrays)
        ]
        if not made:
            return
        needed = frozenset(
            i for i, x in enumerate(arrays) if id(x) in self._depending and is_float(x.dtype)
        )
        self._depending.update({id(y): y for y in made})
        versions = tuple(x.version for x in arrays)
        args, options = given
        noted = Noted(
            name, calling_line(), rule, args, options, tuple(arrays), result, needed, versions, again
        )  # fmt: skip
        self.calls.append(noted)

    # Afterwards

    def back(self, owed: dict[int, Any]) -> dict[int, Any]:
        """**Collective** as the calls were. Go back from arrays, by id, with cotangents; those of the rest.

        What was noted is let go on the way. Cotangents may be thin.
        """
        while self.calls:
            noted = self.calls.pop()
            g = replaced(noted.results, (Tiled,), lambda y: owed.pop(id(y), None), init=False)
            for y in found_in(noted.results, (Tiled,)):
                self._depending.pop(id(y), None)
            if not found_in(g, (Tiled,)):
                continue
            for x, version in zip(noted.operands, noted.versions, strict=True):
                if x.version != version:
                    raise GradientError(
                        f"cannot differentiate {noted.name} ({noted.line}): {x.type} that it was given may "
                        "have changed since, by .local or an epoch; give it a copy"
                    )
            with noted.standing():
                given = Owed(
                    noted.name, g, noted.results, noted.args, dict(noted.options), noted.operands,
                    noted.needed,
                )  # fmt: skip
                found = noted.rule(given)
                for i in sorted(noted.needed):
                    if found[i] is not None:
                        x, one = noted.operands[i], in_dtype(found[i], noted.operands[i])
                        owed[id(x)] = owed[id(x)] + one if id(x) in owed else one
        return owed


def custom(
    arranger: Arranger | None, name: str, function: Callable[..., Any], args: Any, options: Any
) -> tuple[Any, Callable[..., Any]]:
    """**Collective** as the function is. Run one that gives a result and how to go back from it."""
    if isinstance(arranger, GradientRecorder):
        return arranger.call_custom(name, function, args, options)
    with arranging(arranger):
        result, back = function(*args, **options)
    return result, back


def records_gradients() -> bool:
    """**Local.** Whether somebody records calls here, to go back through them."""
    return isinstance(current_arranger(), GradientRecorder)


def back_through(function: Callable[[Any], Any], x: Any, g: Any) -> Any:
    """**Collective** as the function is. The cotangent of its array from that of its result; None for 0."""
    recorder = GradientRecorder(current_arranger(), [x])
    with arranging(recorder):
        y = function(x)
    if y is x:
        return g
    found = recorder.back({id(y): g}).get(id(x))
    return None if found is None else full(found, x.shape)
