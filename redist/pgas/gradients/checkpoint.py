"""Calls that are done again for the backward pass, so that what is inside them need not be kept.

::

    forward    x -> [ a -> b -> c ] -> y      x and y are kept
    backward   x -> [ a -> b -> c ]           done again, and gone back through at once

The function itself runs once: its calls are done again, as they were noted. In a program equal calls would be
done once, and their results kept after all; so there they begin from a copy of the one array that most of
them depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

from redist.errors import ArgumentTypeError
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.gradients.recorder import Again, GradientRecorder, Noted
from redist.pgas.gradients.rules.table import Owed, rule, same
from redist.pgas.structures import found_in
from redist.pgas.tiles.arguments import kind_of_value
from redist.pgas.tiles.arranging import arranging, asked, current_arranger
from redist.pgas.tiles.tiled import Tile, Tiled, tile_in


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """**Local.** Repeat the calls of a function for its gradient: only its arguments and results are kept.

    ``y = pgas.checkpoint(layer)(x, weights)`` takes less memory, but the time of one more forward pass.
    """
    if not callable(function):
        raise ArgumentTypeError(f"cannot checkpoint {kind_of_value(function)}: need a function")
    return Checkpointed(function)


class Checkpointed:
    """A function whose calls are done again for its gradient."""

    __name__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = type(function).__name__
        update_wrapper(self, function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """**Collective** as the function is."""
        outside = current_arranger()
        if not isinstance(outside, GradientRecorder):
            return self.function(*args, **options)
        scout = outside.beside()
        with arranging(scout):
            result = self.function(*args, **options)
        if scout.calls:
            segment, operands = Segment.of(scout.calls, result)
            made = tuple(x for x in found_in(result, (Tiled,)) if scout.depends(x))
            segment.note(outside, self.__name__, operands, made)
        return result

    def __repr__(self) -> str:
        return f"<{self.__name__}, done again for its gradient>"


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Calls in order, each with the numbers of its operands and results; it keeps no arrays.

    What it is given comes first; ``ends`` are the numbers of what it gives. Most calls depend on ``heart``.
    """

    calls: tuple[tuple[Again, tuple[int, ...], tuple[int, ...]], ...]
    heart: int
    ends: tuple[int, ...]

    @staticmethod
    def of(noted: Sequence[Noted], result: Any) -> tuple[Segment, tuple[Tiled, ...]]:
        """What was noted while a function ran, which gave ``result``; and what that was given."""
        made = {id(y) for one in noted for y in found_in(one.results, (Tiled,))}
        outside = {id(x): x for one in noted for x in one.operands if id(x) not in made}
        numbers = {at: number for number, at in enumerate(outside)}

        def number(x: Tiled) -> int:
            return numbers.setdefault(id(x), len(numbers))

        calls = tuple(
            (
                one.again,
                tuple(map(number, one.operands)),
                tuple(map(number, found_in(one.results, (Tiled,)))),
            )
            for one in noted
        )
        ends = tuple(number(x) for x in found_in(result, (Tiled,)) if id(x) in made)
        behind = {n: {n} for n in range(len(outside))}
        """Of every operand: what depends on it."""
        for _, given, results in calls:
            for own in behind.values():
                own.update(results if own & set(given) else ())
        operands = tuple(outside.values())
        heart = max(behind, key=lambda n: (len(behind[n]), -operands[n].size, -n))
        return Segment(calls, heart, ends), operands

    def note(
        self,
        recorder: GradientRecorder,
        name: str,
        operands: tuple[Tiled, ...],
        made: Sequence[Tiled],
    ) -> None:
        """**Local.** Note all of it as one call, whose rule does it again and goes back through it."""

        def rule(owed: Owed) -> list[Any]:
            given, tape = list(owed.operands), current_tape()
            if tape is not None:
                given[self.heart] = afresh(given[self.heart], len(tape.nodes))
            inside = GradientRecorder(current_arranger(), [given[i] for i in owed.needed])
            with arranging(inside):
                ends = self.run(inside, given)
            pairs = zip(ends, owed.g, strict=True)
            found = inside.back({id(y): g for y, g in pairs if g is not None})
            return [found.get(id(x)) for x in given]

        def again(recorder: GradientRecorder, arrays: Sequence[Tiled]) -> Any:
            inside = recorder.beside()
            with arranging(inside):
                ends = self.run(inside, arrays)
            self.note(recorder, name, tuple(arrays), ends)
            return tuple(ends)

        recorder.note(name, rule, ((), {}), operands, tuple(made), again)

    def run(self, recorder: GradientRecorder, operands: Sequence[Tiled]) -> list[Tiled]:
        """**Collective** as the calls are. Do the calls with these operands; what they give in the end."""
        values: dict[int, Tiled] = dict(enumerate(operands))
        for again, given, made in self.calls:
            result = again(recorder, [values[n] for n in given])
            values.update(zip(made, found_in(result, (Tiled,)), strict=True))
        return [values[n] for n in self.ends]


@asked
def afresh(x: Any, number: int) -> Any:
    """**Local.** The same values in new tiles, which a program does not take for those of another number."""
    own = tile_in(x)
    x.memory.check_room(x.type.tile_bytes)
    return x.new(x.type, None if own is None else x.memory.call(_copy_of, own, number))


def _copy_of(tile: Tile, number: int) -> Tile:
    return tile.copy()


rule(afresh)(same)
