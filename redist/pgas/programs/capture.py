"""Run a function once on ghosts: what is left behind is the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.stand_ins import order_of, pretend
from redist.pgas.ghosts.tape import CapturedNode, Tape, Task, taping
from redist.pgas.ghosts.traffic import GhostTraffic
from redist.pgas.structures import found_in, replaced
from redist.pgas.tiles.arranging import Arranger, arranging
from redist.pgas.tiles.tiled import Tiled, held_by
from redist.pgas.watch.seam import through, traffic
from redist.runtime.ranks.world import Comm


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEnd:
    """How an array stands at the end: its type and tile, or the number of the argument that it is."""

    type: ArrayType
    comm: Comm
    tile: int | None
    argument: int | None = None
    on_device: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """A program as one rank has captured it.

    ``inputs`` has the values of the tiles of all arrays that it was given or reaches, None where this rank
    has none; ``ends`` how these arrays stand afterwards, ``changed`` which of them have other values.
    """

    tasks: tuple[Task, ...]
    nodes: tuple[CapturedNode, ...]
    inputs: tuple[int | None, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    """Of the tiles of these arrays."""
    ends: tuple[ArrayEnd, ...]
    changed: tuple[bool, ...]
    result: Any
    roots: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]
    n_bytes: Mapping[int, int]
    """Of every value that has some."""
    rooms: Mapping[int, int]
    """By node: what its operation says that it needs, its results included."""
    on_device: bool

    @property
    def next_value(self) -> int:
        """The first number that no value has."""
        return 1 + max([*self.roots, *(task.out or 0 for task in self.tasks)], default=0)

    @property
    def kept(self) -> set[int]:
        """The values that are needed at the end."""
        ends = (*self.ends, *ends_in(self.result))
        return {end.tile for end in ends if end.tile is not None}


def ends_in(thing: Any) -> list[ArrayEnd]:
    """The arrays of a result, as they stand at the end."""
    return found_in(thing, (ArrayEnd,))


def map_ends(thing: Any, change: Callable[[ArrayEnd], Any]) -> Any:
    """The same structure of results with something else in the places of arrays; NumPy's are copied."""

    def changed(one: Any) -> Any:
        return one.copy() if isinstance(one, np.ndarray) else change(one)

    return replaced(thing, (ArrayEnd, np.ndarray), changed)


def capture(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    arrays: Sequence[Tiled],
    explains: bool = False,
    comm: Comm | None = None,
    arranger: Arranger | None = None,
) -> Capture:
    """**Local.** Run a function while ``arrays``, which it is given or reaches, have no values.

    ``comm`` are the ranks of new arrays where these are pretended; ``arranger`` decides on layouts.
    """
    tape = Tape(explains, comm)
    strides = strides_of(arrays)
    with with_ghost_tiles(arrays, tape) as inputs:
        before = [(array.type, array.tile) for array in arrays]
        with taping(tape), through(GhostTraffic(traffic(), tape)), arranging(arranger):
            result = function(*args, **options)
            if arranger is not None:
                arranger.finish(result, arrays)
        place = {id(array): i for i, array in enumerate(arrays)}

        ends_of: dict[int, ArrayEnd] = {}

        def end_of(array: Tiled) -> Any:
            if id(array) in place:
                return ArrayEnd(array.type, array.comm, _number(array), place[id(array)])
            if array.memory.is_ghost:
                end = ArrayEnd(array.type, array.comm, _number(array), None, array.memory.on_device)
                return ends_of.setdefault(id(array), end)
            raise CaptureError(
                f"cannot return {array.type}: it is not part of the program; give what it is made of "
                "as an argument"
            )

        made = replaced(result, (Tiled,), end_of, init=False)
        tape.check_fresh([end.tile for end in ends_in(made) if end.tile is not None])
        ends = tuple(ArrayEnd(array.type, array.comm, _number(array)) for array in arrays)
        written = {root for task in tape.tasks for root in task.writes}
        changed = tuple(
            array.version > 0
            or array.type != t
            or array.tile is not tile
            or getattr(tile, "root", None) in written
            for array, (t, tile) in zip(arrays, before, strict=True)
        )
    return Capture(
        tuple(tape.tasks),
        tuple(tape.nodes),
        inputs,
        strides,
        ends,
        changed,
        made,
        tape.roots,
        tape.shapes,
        tape.n_bytes,
        tape.rooms,
        any(array.memory.on_device for array in arrays),
    )


def strides_of(arrays: Sequence[Tiled]) -> tuple[tuple[int, ...] | None, ...]:
    """**Local.** The strides of the tiles of arrays, put away or not; None where there are none."""
    return tuple(None if (held := held_by(array)) is None else held.strides for array in arrays)


def _number(array: Tiled) -> int | None:
    tile: Any = array.tile
    return None if tile is None else tile.number


@contextmanager
def with_ghost_tiles(arrays: Sequence[Tiled], tape: Tape) -> Iterator[tuple[int | None, ...]]:
    """**Local.** Let arrays have ghosts for tiles while a block runs; the numbers of these."""
    held = [
        (array.memory, held_by(array), array._stored, array._type, array.version, array.shared_with)
        for array in arrays
    ]
    numbers: list[int | None] = []
    try:
        for array in arrays:
            tile = held_by(array)
            array.memory = ghosts = ghosts_for(array.memory.on_device)
            array._version = 0
            if tile is not None:
                like = pretend(tile.shape, tile.dtype, order_of(tile))
                if tile.strides != like.strides:
                    like = like_strided(tile)
                ghost: Any = ghosts.ghost_kind(like, tape)
                array.tile = ghost
                tape.own(ghost)
            numbers.append(_number(array))
        yield tuple(numbers)
    finally:
        for array, (memory, tile, stored, t, version, token) in zip(arrays, held, strict=True):
            array.memory, array.tile, array._stored, array._type = memory, tile, stored, t
            if stored is not None:
                del array.tile
            array._version, array._is_shared = version, token


def like_strided(tile: Any) -> Any:
    """An array without memory that has the strides of another."""
    from numpy.lib.stride_tricks import as_strided

    return as_strided(pretend((1,) * tile.ndim, tile.dtype), tile.shape, tile.strides)
