"""A join as a list of element-wise functions, which is run on one block of its operands after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.standard_limits import takes_out
from redist.pgas.ghosts.tape import Ref, refs_in
from redist.pgas.memory import as_tile
from redist.pgas.structures import replaced
from redist.pgas.tiles.tiled import Tile

Room = dict[int, Tile]
"""Memory of the values of steps, by their numbers: what the first block has made serves the others."""


@dataclass(frozen=True, slots=True)
class JoinStep:
    """An element-wise function in a join: operands are values, by number, and constants.

    ``spent`` are the values that no later step needs.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    out: int
    spent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Steps that make one value, ``joined``, of others, ``leaves``.

    >>> a, b = np.arange(3.0)[:, None], np.arange(2.0)
    >>> off = Join.of((0, 1), [JoinStep(np.subtract, (Ref(0), Ref(1)), {}, 2)], 2)
    >>> off.on([a, b], {}).tolist()
    [[0.0, -1.0], [1.0, 0.0], [2.0, 1.0]]
    """

    leaves: tuple[int, ...]
    steps: tuple[JoinStep, ...]
    joined: int

    @staticmethod
    def of(leaves: tuple[int, ...], steps: Sequence[JoinStep], joined: int) -> Join:
        """The join of these steps, each of which knows what it is the last to need."""
        needed = {joined, *leaves}
        out: list[JoinStep] = []
        for step in reversed(steps):
            used = dict.fromkeys(refs_in(step.args))
            out.append(replace(step, spent=tuple(one for one in used if one not in needed)))
            needed.update(used)
        return Join(leaves, tuple(reversed(out)), joined)

    @property
    def width(self) -> int:
        """The most values of steps that are needed at a time."""
        live = most = 0
        for step in self.steps:
            live += 1 - len(step.spent)
            most = max(most, live)
        return most

    def on(self, parts: Sequence[Tile], room: Room | None, last: Tile | None = None) -> Tile:
        """**Local.** The joined values of some parts of the operands, which broadcast.

        Values lie in ``room``, in C order, unless it is None, as for arrays on a GPU. The last step writes
        to ``last`` if it can: the result is ``last`` itself then.
        """
        values: dict[int, Any] = dict(zip(self.leaves, parts, strict=True))
        for step in self.steps:
            args = [_value(one, values) for one in step.args]
            if room is None or not takes_out(step.function):
                values[step.out] = as_tile(step.function(*args, **step.options))
                continue
            shape = np.broadcast(*args).shape
            if last is not None and step.out == self.joined and shape == last.shape:
                step.function(*args, **step.options, out=last)
                return last
            memory = room.get(step.out)
            if memory is None:
                made = np.asarray(step.function(*args, **step.options), order="C")
                room[step.out] = _memory_for(step, made, room)
            else:
                made = memory[: math.prod(shape)].reshape(shape)
                step.function(*args, **step.options, out=made)
            values[step.out] = made
        joined: Tile = values[self.joined]
        return joined

    @property
    def is_product(self) -> bool:
        """Whether it multiplies all operands with each other, each once, and does nothing else."""
        used: list[int] = []
        for step in self.steps:
            function, args = step.function, step.args
            if function is compute:
                function, args = args[0], tuple(args[1])
            if function is not np.multiply:
                return False
            used += [one.number if isinstance(one, Ref) else -1 for one in args]
        made = [step.out for step in self.steps]
        return sorted(used) == sorted({*self.leaves, *made} - {self.joined}) and bool(self.leaves)


def _memory_for(step: JoinStep, made: Tile, room: Room) -> Tile:
    """Where a step's values of other blocks go: into one of its operands that nothing needs any more."""
    if isinstance(
        step.function, np.ufunc
    ):  # others look at operands after they have begun to write
        for number in step.spent:
            own = room.get(number)
            if own is not None and (own.dtype, own.size) == (made.dtype, made.size):
                return own
    return made.reshape(-1)


def _value(thing: Any, values: dict[int, Any]) -> Any:
    """An operand of a step."""
    if isinstance(thing, Ref):
        return values[thing.number]
    if isinstance(thing, (list, tuple)):
        return replaced(thing, (Ref,), lambda ref: values[ref.number])
    return thing
