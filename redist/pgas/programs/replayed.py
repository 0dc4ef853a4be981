"""A program of one signature, ready to run: on the arrays of a call, with copies of those that stay."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redist.errors import TransferError
from redist.pgas.ghosts.tape import Task
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.programs.capture import Capture, most_of, union_of
from redist.pgas.programs.compiled import Compiled, LaidOut
from redist.pgas.programs.handing_over import hand_over
from redist.pgas.programs.keeping import keep_copy, keep_inspection, kept_copy, kept_inspection
from redist.pgas.programs.prepare import Ready
from redist.pgas.programs.signature import Signature
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import SparedMove, is_watched, traffic
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.world import Comm, world_of

# Tiles that lie otherwise in memory than those of the capture: a program is given them as those lay.


Strides = tuple[int, ...]


def lie_alike(shape: tuple[int, ...], one: Strides, other: Strides) -> bool:
    """Whether arrays of a shape with these strides lie in the same way: dims of size 1 do not count.

    >>> lie_alike((3, 1), (8, 8), (8, 24)), lie_alike((3, 2), (16, 8), (8, 24))
    (True, False)
    """
    return one == other or all(a == b or n <= 1 for n, a, b in zip(shape, one, other, strict=True))


def laid_out(tile: Tile, strides: Strides) -> Tile:
    """**Local.** A copy of a tile with other strides.

    >>> a = np.arange(6).reshape(2, 3)
    >>> b = laid_out(a, (8, 16))
    >>> b.strides, bool((a == b).all())
    ((8, 16), True)
    """
    if not isinstance(tile, np.ndarray) or 0 in strides or not tile.size:
        return _in_order(tile, strides)
    steps = [(n - 1) * stride for n, stride in zip(tile.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    n_bytes = first + sum(step for step in steps if step > 0) + tile.itemsize
    out: Tile = np.ndarray(tile.shape, tile.dtype, np.empty(n_bytes, np.uint8), first, strides)
    out[...] = tile
    return out


def _in_order(tile: Any, strides: Strides) -> Tile:
    """A copy whose dims stand in the same order in memory, without gaps."""
    order = sorted(range(tile.ndim), key=lambda dim: (-abs(strides[dim]), dim))
    moved = tile.transpose(order).copy()
    out: Tile = moved.transpose([order.index(dim) for dim in range(tile.ndim)])
    return out


MOST_MISSES = 3
"""A program whose arguments were others this many times in a row keeps no copies of them any more."""
MOST_SETTLED = 2
"""So often layouts are planned for arguments that stay; after that, they are for those that change."""
PAID_BACK = 32
"""Moving arguments that stay must pay in this many calls."""


class ReplayedProgram(Compiled):
    """A compiled program that runs by calling one function, written down from its tasks."""

    def __init__(
        self, laid: LaidOut, ready: Ready, signature: Signature, steady: frozenset[int] | None
    ) -> None:
        """**Collective.**"""
        super().__init__(laid)
        self.ready, self.steady, self.n_runs = ready, steady, 0
        self._counted = signature.kept
        """Arguments that count by identity: they live as long as the key of the signature is used."""
        self._misses = 0
        self._given: list[tuple[weakref.ref[Tiled], int]] = []
        """The arrays of the call that later ones are compared with, and their versions."""
        self._wait, self._look_at, self._n_planned = 1, 1, 0
        """After this many calls it is looked which arguments stay: after the call ``_look_at``, if ever."""
        self.changing: ReplayedProgram | None = None
        """The program for arguments that change, if this one is for some that stay and costs more then."""
        self.is_over = False
        """Whether arguments that were to stay are others now."""
        self._is_filled = False
        self._copies = [
            (at, task.out, task.moves[0].target)
            for task, at in ready.copies.items()
            if task.out is not None
        ]
        """Moved arguments that are kept: which, the value, and the type that each was moved to."""
        self._lists = [
            (made, task.out) for task, made in ready.lists.items() if task.out is not None
        ]
        """Lists of inspections that are kept: what they are made of, and the value."""

    @property
    def misses_copies(self) -> bool:
        """Whether copies of arguments have been of no use so often that they are kept no more."""
        return self._misses >= MOST_MISSES

    def serves(self, signature: Signature) -> bool:
        """**Local.** Whether what the function reaches is that of the capture."""
        return self._still_stands(signature.arrays)

    def fates(self) -> tuple[Sequence[str], dict[str, int]]:
        """What became of every captured move, and figures of what is done."""
        return self.ready.fates.words, self.ready.figures

    @property
    def should_settle(self) -> bool:
        """Whether it is time to look which arguments stay: in the second call, then more and more rarely."""
        return self.n_runs == self._look_at

    def look_later(self, arrays: Sequence[Tiled]) -> None:
        """**Local.** Look again whether these arguments stay, after twice as many calls as the last time."""
        self._given = [(weakref.ref(array), array.version) for array in arrays]
        self._wait *= 2
        self._look_at = self.n_runs + self._wait

    def may_plan_again(self) -> bool:
        """**Local.** Whether to plan layouts for arguments that stay once more; says so a few times."""
        self._n_planned += 1
        return self._n_planned <= MOST_SETTLED

    def settle_as(self, settled: ReplayedProgram) -> None:
        """**Local.** Let another preparation go on for arguments that stay, until one of them is new."""
        settled._look_at = -1
        settled.n_runs = self.n_runs
        if settled.decided is not None and not settled.decided.why:
            settled.changing = self

    def keep_again(self) -> None:
        """**Local.** Keep copies of moved arguments, whatever was before: they stay now."""
        self._misses = 0

    def pays(self, settled: ReplayedProgram, steady: frozenset[int]) -> bool:
        """**Local.** Whether calls with arguments that stay are so much quicker that moving them pays."""
        before, after = self.decided, settled.decided
        if before is None or after is None or before.costs is None or after.costs is None:
            return True
        finds_all = steady.issuperset(self.ready.copies.values())
        now_ps = before.kept_ps if finds_all else before.fresh_ps
        gained_ps = now_ps - after.kept_ps
        return gained_ps > 0 and gained_ps * PAID_BACK >= after.fresh_ps - now_ps

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

    def run(self, given: Sequence[Tiled]) -> Any:
        """**Collective** if anything moves. Run the program on the arrays of a call."""
        arrays = self.arrays(given) if self.outside else given
        tiles = [array.tile for array in arrays]
        if self.n_runs == 0:
            self._given = [(weakref.ref(array), array.version) for array in arrays]
        self.n_runs += 1
        copied = self._lay_out(tiles)
        ready = self.ready
        if ready.short_replay is None or self.misses_copies:
            values = ready.replay(*tiles)
        else:
            found = self._run_with_copies(arrays, tiles)
            if found is None:
                assert self.changing is not None
                self.is_over = True
                self.changing.look_later(arrays)
                return self.changing.run(given)
            values = found
        if ready.fates.spared:
            _note(ready.fates.spared)
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

    def _run_with_copies(self, arrays: Sequence[Tiled], tiles: list[Any]) -> tuple[Any, ...] | None:
        """**Collective.** Use copies of moved arguments, and lists, if all ranks have all; else keep them.

        None if they were there before, and the program for arguments that change costs less without them.
        """
        ready = self.ready
        assert ready.short_replay is not None
        copies = [kept_copy(arrays[at], target) for at, _, target in self._copies]
        lists = [
            kept_inspection([arrays[at] for at in made.arguments], made.key)
            for made, _ in self._lists
        ]
        has_all = all(one is not None for one in (*copies, *lists))
        world = world_of(self.comm)
        with world.operation(world.failure.timeout_s):
            met = world.meet(Token.PROGRAM, int(has_all))
        if met is Met.DISAGREE:
            raise TransferError("ranks run different programs: all must make one call")
        if has_all and met is Met.SAME:
            self._misses = 0
            _note(ready.fates.kept)
            moved = [tile for copy in copies if copy is not None for tile in copy]
            return ready.short_replay(*tiles, *moved, *lists)
        if self._is_filled and self.changing is not None:
            return None
        self._is_filled = True
        self._misses += 1
        values = ready.replay(*tiles)
        by_number = dict(zip(ready.outputs, values, strict=True))
        for at, value, target in self._copies:
            keep_copy(arrays[at], target, by_number[value])
        for made, value in self._lists:
            keep_inspection([arrays[at] for at in made.arguments], made.key, by_number[value])
        return values


def too_large_to_keep(copies: Mapping[Task, int], captured: Capture, comm: Comm) -> set[int]:
    """**Collective.** The arguments whose moved copies have no room beside smaller ones on some rank."""
    sizes = most_of(comm, [captured.n_bytes.get(task.out or 0, 0) for task in copies])
    left, found = FAR_BYTES.most_bytes, set[int]()
    for n_bytes, at in sorted(zip(sizes, copies.values(), strict=True), key=lambda one: one[0]):
        left -= n_bytes
        if left < 0:
            found.add(at)
    return set(union_of(comm, sorted(found)))


def _note(moves: Sequence[SparedMove]) -> None:
    """**Local.** Tell who looks on which moves were spared."""
    if is_watched():
        for one in moves:
            traffic().note(one.line, one)
