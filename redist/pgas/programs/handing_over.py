"""The end of a call: arrays get the tiles that a run has left, and results are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from redist.pgas.global_array import Array
from redist.pgas.memory import memory_for
from redist.pgas.programs.capture import ArrayEnd, Capture, ends_in, map_ends, union_of
from redist.pgas.tiles.tiled import Tiled, hold
from redist.runtime.ranks.world import Comm

Aliases = Sequence[tuple[int, ...]]


def hand_over(
    captured: Capture,
    arrays: Sequence[Tiled],
    by_number: Mapping[int, Any],
    aliases: Aliases,
    copied: Mapping[int, Any] | None = None,
    skipped: frozenset[int] = frozenset(),
) -> Any:
    """**Local.** Let arrays stand as a run has left them; the result of the call.

    ``by_number`` has the tiles of values. Where a copy was used in the place of a tile, ``copied`` has the
    tile itself by the identity of the copy. Arrays in ``skipped`` have their tiles already.
    """
    ends = zip(arrays, captured.ends, captured.changed, strict=True)
    for number, (array, end, is_changed) in enumerate(ends):
        if not is_changed:
            continue
        if number not in skipped:
            tile = None if end.tile is None else by_number[end.tile]
            if copied and id(tile) in copied:
                own = copied[id(tile)]
                own[...] = tile
                tile = own
            hold(array, tile)
        array._type = end.type
        array.version += 1

    results: dict[int, Tiled] = {}

    def made(end: ArrayEnd) -> Tiled:
        if end.argument is not None:
            return arrays[end.argument]
        if id(end) not in results:
            tile = None if end.tile is None else by_number[end.tile]
            results[id(end)] = Array(end.type, end.comm, tile, memory_for(end.on_device))
        return results[id(end)]

    result = map_ends(captured.result, made)
    if aliases:  # arrays in one memory, as the function would have left them
        everyone = [*arrays, *(results[id(end)] for end in _new_ends(captured))]
        for several in aliases:
            token = everyone[several[0]].share()
            for number in several[1:]:
                everyone[number]._is_shared = token
    return result


def find_aliases(captured: Capture, comm: Comm) -> list[tuple[int, ...]]:
    """**Collective.** Groups of arrays that lie in one memory at the end: arguments, then results, by number.

    A rank without tiles cannot see it: what one rank says holds for all.
    """
    groups: dict[int, list[int]] = {}
    for number, end in enumerate((*captured.ends, *_new_ends(captured))):
        if end.tile is not None:
            groups.setdefault(captured.roots[end.tile], []).append(number)
    found = [tuple(group) for group in groups.values() if len(group) > 1]
    return union_of(comm, found)


def how_ends_lie(captured: Capture) -> tuple[tuple[int, int], ...]:
    """**Local.** Of arguments, then results, the first that is the same array, the first in its memory."""
    arrays: dict[object, int] = {}
    memory: dict[object, int] = {}
    said = []
    for number, (end, array) in enumerate(_every_end(captured)):
        root = ("none", number) if end.tile is None else captured.roots[end.tile]
        said.append((arrays.setdefault(array, number), memory.setdefault(root, number)))
    return tuple(said)


def memory_of_several(captured: Capture) -> set[int]:
    """**Local.** Memory in which more than one of the arguments and results lies."""
    roots = [captured.roots[end.tile] for end, _ in _every_end(captured) if end.tile is not None]
    return {root for root, n in Counter(roots).items() if n > 1}


def _every_end(captured: Capture) -> list[tuple[ArrayEnd, object]]:
    """How arguments and results stand, each with what says which array it is."""
    given: list[tuple[ArrayEnd, object]] = [(end, n) for n, end in enumerate(captured.ends)]
    made = ends_in(captured.result)
    return given + [
        (end, ("made", id(end)) if end.argument is None else end.argument) for end in made
    ]


def _new_ends(captured: Capture) -> list[ArrayEnd]:
    """The results that are no arguments, each once."""
    ends = {id(end): end for end in ends_in(captured.result) if end.argument is None}
    return list(ends.values())
