"""Run a function once on ghosts: what is left behind is the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

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
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.text.units import ranks_in_words

# Make sure that all ranks have captured the same program, and agree on what they may leave out.


H = TypeVar("H")


def describe(node: CapturedNode) -> str:
    """A node as all ranks must have it."""
    moves = ", ".join(f"{move.source} to {move.target}" for move in node.moves)
    numbers = f" with {', '.join(node.numbers)}" if node.numbers else ""
    return f"{node}{numbers}{'; moves ' + moves if moves else ''}"


def agree_on_nodes(
    name: str, comm: Comm, nodes: Sequence[CapturedNode], error: BaseException | None
) -> None:
    """**Collective.** Raise on all ranks but those that failed if one did, or has other nodes."""
    said = _from_all(comm, (tuple(map(describe, nodes)), None if error is None else str(error)))
    if error is not None:
        return
    for rank, (_, failed) in enumerate(said):
        if failed is not None:
            raise CaptureError(f"cannot run {name}: rank {rank} could not capture it: {failed}")
    programs = [texts for texts, _ in said]
    if len(set(programs)) > 1:
        why = f"ranks disagree on the program; {_difference(programs)}"
        raise CaptureError(f"cannot run {name}: {why}")


def _difference(programs: Sequence[tuple[str, ...]]) -> str:
    """The first node in which the programs of ranks differ, and who has which."""
    at = 0
    while len({nodes[at : at + 1] for nodes in programs}) == 1:
        at += 1
    who: dict[str, list[int]] = {}
    for rank, nodes in enumerate(programs):
        who.setdefault(nodes[at] if at < len(nodes) else "the end", []).append(rank)
    return "; ".join(
        f"{ranks_in_words(ranks, len(programs))}: node {at} {said}" for said, ranks in who.items()
    )


def common_classes(comm: Comm, firsts: Sequence[int]) -> list[int]:
    """**Collective.** Of moves, the first that each equals on all ranks alike.

    >>> class Alone:
    ...     size = 1
    >>> common_classes(Alone(), [0, 0, 2])
    [0, 0, 2]
    """
    everyone = _from_all(comm, list(firsts))
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(one, i) for i, one in enumerate(zip(*everyone, strict=True))]


def most_of(comm: Comm, numbers: Sequence[int]) -> list[int]:
    """**Collective.** Place by place, the largest number of all ranks."""
    return [max(several) for several in zip(*_from_all(comm, list(numbers)), strict=True)]


def same_or_unknown(comm: Comm, numbers: Sequence[int | None]) -> list[int | None]:
    """**Collective.** Place by place, the number that all ranks have which know it; None if they differ."""
    found = []
    for several in zip(*_from_all(comm, list(numbers)), strict=True):
        known = {one for one in several if one is not None}
        found.append(known.pop() if len(known) == 1 else None)
    return found


def union_of(comm: Comm, things: Sequence[H]) -> list[H]:
    """**Collective.** What at least one rank has, in order."""
    return sorted({one for some in _from_all(comm, list(things)) for one in some})  # type: ignore[type-var]


def _from_all(comm: Comm, thing: H) -> list[H]:
    """**Collective.** What every rank says."""
    return gather(comm, thing, TIMEOUT_S) if comm.size > 1 else [thing]


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
    dtypes: Mapping[int, np.dtype[Any]]
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
            result = function(*args)
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
        tape.dtypes,
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
