"""A program of one signature, ready to run: on the arrays of a call, with copies of those that stay."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from redist.errors import TransferError
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.programs.agree import union_of
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.handing_over import find_aliases, hand_over
from redist.pgas.programs.outside import Outside
from redist.pgas.programs.planning.plan_program import DecidedLayouts
from redist.pgas.programs.prepare import KeptMove, Ready
from redist.pgas.programs.signature import Signature
from redist.pgas.programs.strides import laid_out, lie_alike
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import traffic
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.world import Comm, world_of

MOST_MISSES = 3
"""A program whose arguments were others so many times in a row keeps no copies of them any more."""


class Prepared:
    """A captured program of one signature, ready to run."""

    def __init__(
        self,
        captured: Capture,
        ready: Ready,
        outside: Outside,
        signature: Signature,
        comm: Comm,
        decided: DecidedLayouts | None,
        steady: frozenset[int] | None,
    ) -> None:
        self.decided, self.steady, self.n_runs = decided, steady, 0
        self.captured, self.ready, self.outside = captured, ready, outside.arrays
        self.things, self.comm = outside.things, comm
        self.key, self.kept = signature.key, signature.kept
        self._outside_types = [one.array.type for one in self.outside]
        self._aliases = find_aliases(captured, comm)
        self._misses = 0
        self._given: list[tuple[weakref.ref[Tiled], int]] = []
        """The arrays of the first call, and their versions."""

    @property
    def misses_copies(self) -> bool:
        """Whether copies of arguments have been of no use so often that they are kept no more."""
        return self._misses >= MOST_MISSES

    @property
    def should_settle(self) -> bool:
        """Whether it is time to look which arguments stay: in the second call, and when some have not."""
        return self.n_runs == 1 or 0 < self._misses < MOST_MISSES

    def follows(self, other: Prepared) -> None:
        """**Local.** Go on where another preparation of the same program has been."""
        self._given, self.n_runs, self._misses = other._given, other.n_runs, other._misses

    def staying(self, arrays: Sequence[Tiled]) -> frozenset[int]:
        """**Collective.** The arguments that are those of the first call, unchanged, on all ranks."""
        changed = [
            number
            for number, (array, (first, version)) in enumerate(
                zip(arrays, self._given, strict=True)
            )
            if first() is not array or array.version != version or array.is_shared
        ]
        return frozenset(range(len(arrays))) - set(union_of(self.comm, changed))

    def still_holds(self) -> bool:
        """**Local.** Whether the arrays that it reaches are those of the capture, as they were."""
        pairs = zip(self.outside, self._outside_types, strict=True)
        return all(one.array.type == t and one.still_stands() for one, t in pairs) and all(
            one.still_stands() for one in self.things
        )

    def run(self, given: Sequence[Tiled]) -> Any:
        """**Collective** if anything moves. Run the program on the arrays of a call."""
        arrays = [*given, *(one.array for one in self.outside)] if self.outside else given
        tiles = [array.tile for array in arrays]
        if self.n_runs == 0:
            self._given = [(weakref.ref(array), array.version) for array in arrays]
        self.n_runs += 1
        copied = self._lay_out(tiles)
        ready = self.ready
        if ready.short_replay is None or self.misses_copies:
            values = ready.replay(*tiles)
        else:
            values = self._run_with_copies(arrays, tiles)
        if ready.fates.spared:
            traffic().note_spared(ready.fates.spared)
        by_number = dict(zip(ready.outputs, values, strict=False))
        return hand_over(self.captured, arrays, by_number, self._aliases, copied)

    def _lay_out(self, tiles: list[Any]) -> dict[int, Any]:
        """**Local.** Put copies in the places of tiles that lie otherwise than captured; theirs, by id."""
        copied: dict[int, Any] = {}
        for k, (tile, strides) in enumerate(zip(tiles, self.captured.strides, strict=True)):
            if tile is None or strides is None or tile.strides == strides:
                continue
            if not lie_alike(tile.shape, tile.strides, strides):
                tiles[k] = laid_out(tile, strides)
                copied[id(tiles[k])] = tile
        return copied

    def _run_with_copies(self, arrays: Sequence[Tiled], tiles: list[Any]) -> tuple[Any, ...]:
        """**Collective.** Use copies of moved arguments if all ranks have all of them; else keep them."""
        ready = self.ready
        assert ready.short_replay is not None
        copies = [
            None
            if arrays[one.argument].is_shared
            else FAR_BYTES.get(_key(arrays[one.argument], one))
            for one in ready.kept_moves
        ]
        has_all = all(copy is not None for copy in copies)
        world = world_of(self.comm)
        with world.operation(world.failure.timeout_s):
            met = world.meet(Token.PROGRAM, int(has_all))
        if met is Met.DISAGREE:
            raise TransferError("ranks run different programs: all must make one call")
        if has_all and met is Met.SAME:
            self._misses = 0
            traffic().note_spared(ready.fates.kept)
            return ready.short_replay(*tiles, *(copy.tile for copy in copies if copy is not None))
        self._misses += 1
        values = ready.replay(*tiles)
        by_number = dict(zip(ready.outputs, values, strict=True))
        for one in ready.kept_moves:
            _keep(arrays[one.argument], one, by_number[one.value])
        return values


class _KeptTile:
    """A moved copy of an argument; the tile is None on a rank that has none."""

    __slots__ = ("tile",)

    def __init__(self, tile: Tile | None) -> None:
        self.tile = tile


def _key(array: Tiled, one: KeptMove) -> Any:
    assert one.move is not None
    return id(array), array.version, array.type, one.move.target


def _keep(array: Tiled, one: KeptMove, tile: Tile | None) -> None:
    """**Local.** Keep a moved copy for as long as the array lives, unless others may write to it unseen."""
    if array.is_shared:
        return
    key = _key(array, one)
    n_bytes = 0 if tile is None else tile.nbytes
    if not FAR_BYTES.put(key, _KeptTile(tile), n_bytes):
        return
    keys = _KEYS.get(id(array))
    if keys is None:
        keys = _KEYS[id(array)] = {}
        weakref.finalize(array, _drop_all, id(array)).atexit = False
    before = keys.get(key[-1])
    if before is not None and before != key:
        FAR_BYTES.drop(before)
    keys[key[-1]] = key


_KEYS: dict[int, dict[Any, Any]] = {}
"""By array: what is kept of it, by the type that it was moved to."""


def _drop_all(array: int) -> None:
    for key in _KEYS.pop(array, {}).values():
        FAR_BYTES.drop(key)
