"""What a join does, found without values: it is called once, with ghosts of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, CaptureError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.elementwise.standard_limits import FUNCTIONS, takes_out
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.stand_ins import PretendedRanks, pretend
from redist.pgas.ghosts.tape import Ref, Tape, Task, TaskKind, refs_in, taping
from redist.pgas.ghosts.traffic import GhostTraffic
from redist.pgas.global_array import Array
from redist.pgas.memory import as_tile
from redist.pgas.structures import replaced
from redist.pgas.tiles.arranging import arranging
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import through, traffic

# A join as a list of element-wise functions, which is run on one block of its operands after another.


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
        return values[self.joined]

    @property
    def is_product(self) -> bool:
        """Whether it multiplies all operands with each other, each once, and does nothing else."""
        used: list[int] = []
        for step in self.steps:
            function, args = step.function, step.args
            if function is compute:
                function, args = args[0], tuple(args[1])
            if getattr(function, "function", function) is not np.multiply:  # or rounded
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


DTypes = tuple[np.dtype[Any], ...]
ELEMENT_WISE = frozenset({np.where, np.round, np.real, np.imag, compute, *FUNCTIONS.values()})
"""Functions of tiles, beside NumPy's ufuncs, that are element-wise."""
WRITE_IT = "write it with element-wise functions of its operands, as pgas.exp, a * b or pgas.where"
ALONE = Mesh(x=1)


def trace_join(
    what: str, join: Callable[..., Any], dtypes: DTypes, on_device: bool
) -> tuple[Join, np.dtype[Any]]:
    """**Local.** The steps of a join of elements of some dtypes, and the dtype that it gives.

    ``what`` begins an error, after "cannot". On a GPU, steps are those of arrays there.

    >>> square, dtype = trace_join("join", lambda a, b: (a - b) ** 2, (np.dtype("f4"),) * 2, False)
    >>> [step.function.__name__ for step in square.steps], str(dtype)
    (['subtract', 'power'], 'float32')
    """
    tape = Tape()
    memory = ghosts_for(on_device)
    ranks: Any = PretendedRanks(1)
    seam = GhostTraffic(traffic(), tape)
    with taping(tape), through(seam), arranging(None), np.errstate(all="ignore"):
        tiles: list[Any] = [memory.ghost_kind(pretend((), dtype), tape) for dtype in dtypes]
        elements = [
            Array(ArrayType(ALONE, dtype_of(dtype), (), ()), ranks, tile, memory)
            for dtype, tile in zip(dtypes, tiles, strict=True)
        ]
        try:
            made = join(*elements)
        except CaptureError as problem:
            raise ArgumentError(
                f"cannot {what}: its join looks at values, or at arrays that are not its operands; {WRITE_IT}"
            ) from problem
        except TypeError as problem:
            raise ArgumentTypeError(
                f"cannot {what}: its join of {', '.join(map(str, dtypes))} fails ({problem})"
            ) from problem
    if not (isinstance(made, Array) and made.memory.is_ghost):
        raise ArgumentTypeError(
            f"cannot {what}: its join gives {type(made).__name__}, no element; {WRITE_IT}"
        )
    joined: Any = made.tile
    steps = _steps_of(what, tape.tasks)
    return Join.of(tuple(tile.number for tile in tiles), steps, joined.number), made.dtype


trace_known_join = lru_cache(maxsize=512)(trace_join)
"""The same, remembered: for joins that do the same in every call."""


def _steps_of(what: str, tasks: Sequence[Task]) -> tuple[JoinStep, ...]:
    """The tasks of elements as steps; an error if one is anything but element-wise."""
    steps = []
    new: dict[int, np.dtype[Any]] = {}
    """Memory for another dtype: what is written to it is converted."""
    for task in tasks:
        if task.kind is TaskKind.NEW and task.out is not None:
            new[task.out] = task.args[1]
        elif task.kind is TaskKind.WRITE and task.function is np.copyto and task.writes[0] in new:
            number = task.writes[0]
            steps.append(JoinStep(_convert, (task.args[1], new.pop(number)), {}, number))
        elif task.kind is TaskKind.PURE and is_element_wise(task.function) and task.out is not None:
            steps.append(JoinStep(task.function, task.args, dict(task.options), task.out))
        else:
            name = getattr(task.function, "__name__", "a function").strip("_")
            raise ArgumentError(
                f"cannot {what}: {name} in its join is not element-wise; {WRITE_IT}"
            )
    return tuple(steps)


def is_element_wise(function: Callable[..., Any]) -> bool:
    """**Local.** Whether a function of tiles gives one element for one of each operand."""
    if isinstance(function, np.ufunc):
        return function.signature is None and function.nout == 1
    if isinstance(function, Rounded):
        return is_element_wise(function.function)
    return function in ELEMENT_WISE


def _convert(x: Tile, dtype: np.dtype[Any]) -> Tile:
    return x.astype(dtype)
