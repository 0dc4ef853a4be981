"""What a join does, found without values: it is called once, with ghosts of single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, CaptureError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.standard_limits import FUNCTIONS
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.stand_ins import PretendedRanks, pretend
from redist.pgas.ghosts.tape import Tape, Task, TaskKind, taping
from redist.pgas.ghosts.traffic import GhostTraffic
from redist.pgas.global_array import Array
from redist.pgas.joins.steps import Join, JoinStep
from redist.pgas.tiles.arranging import arranging
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import through, traffic

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
    return function in ELEMENT_WISE


def _convert(x: Tile, dtype: np.dtype[Any]) -> Tile:
    return x.astype(dtype)
