"""Blocks of a grid, which another system has or makes, into the tiles of a global array, within a limit.

Every block is taken by one rank: by the one whose tile has most of it, so that it need not move, and of
several that have about as much of it, by the one that has least to take so far::

    blocks              tiles of {x}, {}          taken by      passed on
    +-----+-----+       +------------+
    |  0  |  1  |       |   rank 0   |            0, 1: 0       -
    +-----+-----+       |            |
    |  2  |  3  |       +------------+            2, 3: 1       their first row, to 0
    |     |     |       |   rank 1   |
    +-----+-----+       |            |            4, 5: 1       -
    |  4  |  5  |       |            |
    +-----+-----+       +------------+

Ranks find this from the grid and the type, without a message. Then they work in rounds: in round k each has
its k-th block in hand, and what other tiles need of it passes to them as in every selection. A rank takes
as many of its next blocks at once as the limit lets it hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, MemoryLimitError, ReadError, RedistError, error_in_words
from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid as grid_of
from redist.pgas.creation import make
from redist.pgas.files.blocks import LEAST_BYTES, LIMIT_BYTES
from redist.pgas.files.shares import Wanted, together
from redist.pgas.global_array import Array
from redist.pgas.tiles.budget import staging_room
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.arguments import refuse_masked
from redist.runtime.elements.by_index import STAGING_BYTES, Side, side
from redist.runtime.index_sets.held import EdgeRagged, EdgeRange
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.collectives import all_fit
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.text.units import format_bytes, limit_from

Values = NDArray[Any]
Index = tuple[int, ...]
"""The place of a block in its grid."""
ABOUT = 7 / 8
"""A tile that has this much of what another has of a block has about as much: uneven tiles share work too."""
COPIES = 2
"""A block is counted twice: whoever makes it has another beside it for a moment."""


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """An array in blocks: how long these are along every dim, and what they hold.

    >>> blocks = BlockGrid(((2, 3), (4,)), np.dtype("f4"))
    >>> blocks.shape, blocks.extent((1, 0)), [*blocks.indices()]
    ((5, 4), (3, 4), [(0, 0), (1, 0)])
    """

    sizes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
        return tuple(map(sum, self.sizes))

    def starts(self, dim: int) -> tuple[int, ...]:
        """Where the blocks start along a dim, and the end of the last."""
        return (0, *accumulate(self.sizes[dim]))

    def extent(self, index: Index) -> tuple[int, ...]:
        """The shape of a block."""
        return tuple(sizes[i] for sizes, i in zip(self.sizes, index, strict=True))

    def block_bytes(self, index: Index) -> int:
        """The bytes of a block."""
        return math.prod(self.extent(index)) * self.dtype.itemsize

    def indices(self) -> Iterator[Index]:
        """The blocks that have elements, in C order."""
        return product(*([i for i, n in enumerate(sizes) if n] for sizes in self.sizes))

    @property
    def largest_bytes(self) -> int:
        """The bytes of the largest block."""
        longest = math.prod(max(sizes, default=0) for sizes in self.sizes)
        return longest * self.dtype.itemsize


Take = Callable[[Sequence[Index]], Sequence[Any]]
"""**Local.** Takes blocks of some indices at once."""


def shares_of(blocks: BlockGrid, t: ArrayType) -> dict[int, list[Index]]:
    """Which blocks each rank takes, for an array of a type whose tiles are boxes.

    >>> from redist.layout.mesh import Mesh
    >>> blocks = BlockGrid(((2, 3, 3), (6, 4)), np.dtype("f4"))
    >>> shares_of(blocks, ArrayType.parse("f32[8{x}, 10]", Mesh(x=2)))
    {0: [(0, 0), (0, 1), (1, 0), (1, 1)], 1: [(2, 0), (2, 1)]}
    >>> shares_of(blocks, ArrayType.parse("f32[8, 10]", Mesh(x=2)))
    {0: [(0, 0), (1, 1), (2, 0)], 1: [(0, 1), (1, 0), (2, 1)]}
    """
    lows, highs = grid_of(t).boxes()
    common = []
    for dim in range(t.ndim):
        starts = np.array(blocks.starts(dim))
        lo = np.maximum(starts[:-1, np.newaxis], lows[np.newaxis, :, dim])
        hi = np.minimum(starts[1:, np.newaxis], highs[np.newaxis, :, dim])
        common.append(np.maximum(hi - lo, 0))
    own: dict[int, list[Index]] = {rank: [] for rank in t.mesh.ranks}
    ranks, load = list(own), np.zeros(len(own))
    for index in blocks.indices():
        elems = np.ones(len(ranks), np.int64)
        for dim, i in enumerate(index):
            elems *= common[dim][i]
        device = int(np.argmin(np.where(elems >= ABOUT * elems.max(), load, np.inf)))
        own[ranks[device]].append(index)
        load[device] += math.prod(blocks.extent(index))
    return own


def take_blocks(
    what: str, find: Callable[[], BlockGrid], take: Take, wanted: Wanted, limit_bytes: Any
) -> Array:
    """**Collective.** A global array of the blocks of a grid; one error on all ranks if it cannot be.

    ``what`` names their owner, as "a Dask array". ``find`` says what the grid is, alike on all ranks, and
    ``take`` is called on each rank for the blocks that are its share.
    """
    traffic().require_data(
        what,
        "what its blocks hold is not known before they are taken",
        "take it before the call, and give the array as an argument",
    )
    comm, say, error = wanted.comm, None, None
    try:
        blocks = find()
        target = wanted.check(blocks.shape, blocks.dtype)
        limit = _limit(what, blocks, limit_bytes)
        say = f"{target} on {target.mesh} in blocks of {blocks.sizes} within {format_bytes(limit)}"
    except (RedistError, TypeError, ValueError) as problem:
        error = problem
    all_agree(comm, f"cannot take {what}", say, error, TIMEOUT_S)
    plain = target.with_dims(target.dims) if target.segments else target
    made = make(plain.shape, blocks.dtype, None, plain, None, comm)
    if made.size:
        _fill(made, what, blocks, take, limit)
    return wanted.bring(made, target)


def _limit(what: str, blocks: BlockGrid, limit_bytes: Any) -> int:
    """**Local.** What a rank may take beside its tile; an error if its largest block needs more."""
    limit, least = limit_from(limit_bytes), _least(blocks)
    if limit is None:
        return max(LIMIT_BYTES, least)
    if limit < least:
        raise ArgumentError(_too_little(what, blocks, limit))
    return limit


def _least(blocks: BlockGrid) -> int:
    return COPIES * blocks.largest_bytes + LEAST_BYTES


def _too_little(what: str, blocks: BlockGrid, limit: int) -> str:
    least = _least(blocks)
    return (
        f"cannot take {what} within {format_bytes(limit)} a rank: its largest block of "
        f"{format_bytes(blocks.largest_bytes)} needs {format_bytes(least, round_up=True)} "
        f"(limit_bytes={least}); give that, or make the blocks smaller"
    )


def _fill(made: Array, what: str, blocks: BlockGrid, take: Take, limit: int) -> None:
    """**Collective.** Take blocks and pass on their elements, round by round."""
    room = staging_room(made, limit)
    if room < _least(blocks):
        raise MemoryLimitError(_too_little(what, blocks, room))
    staging = max(LEAST_BYTES, min(STAGING_BYTES, (room - COPIES * blocks.largest_bytes) // 4))
    shares, comm, t = shares_of(blocks, made.type), made.comm, made.type
    own = shares.get(comm.rank, [])
    hand = _Hand(what, blocks, own, take, room - staging)
    edges = tuple(EdgeRagged(blocks.starts(dim)) for dim in range(t.ndim))
    target = side(t, tuple((dim, EdgeRange(t.cut(dim), range(n))) for dim, n in enumerate(t.shape)))

    def work(out: Tiled) -> tuple[None, int]:
        received = 0
        for k in range(max(map(len, shares.values()))):
            block, problem = hand.next() if k < len(own) else (None, None)
            if not all_fit(comm, problem is None, None):  # however long others make theirs
                with together(comm, what):
                    if problem is not None:
                        raise problem
            holders = {rank: share[k] for rank, share in shares.items() if k < len(share)}
            source = Side(tuple(holders), tuple(holders.values()), edges)
            received += traffic().select(comm, source, target, block, out.tile, staging)
        return None, received

    traffic().perform(ElementExchange("take blocks", t, t), work, (made,), into=made)


class _Hand:
    """The blocks that a rank has taken and not yet passed on: as many at once as the limit has room for."""

    def __init__(
        self, what: str, blocks: BlockGrid, own: Sequence[Index], take: Take, most_bytes: int
    ) -> None:
        self._what, self._blocks, self._take, self._most = what, blocks, take, most_bytes
        self._left = list(reversed(own))
        self._held: list[tuple[Index, Any]] = []

    def next(self) -> tuple[Values | None, ReadError | None]:
        """**Local.** The next block, or why it is not to be had."""
        some = [index for index, _ in self._held[-1:]] or self._some()
        try:
            if not self._held:
                self._held = [*reversed([*zip(some, self._take(some), strict=True)])]
            return self._checked(*self._held.pop()), None
        except Exception as problem:
            words = str(problem) if isinstance(problem, RedistError) else error_in_words(problem)
            which = (
                f"block {some[0]}" if len(some) == 1 else f"{len(some)} blocks from {some[0]} on"
            )
            found = ReadError(f"cannot take {which} of {self._what}: {words}")
            found.__cause__ = problem
            return None, found

    def _some(self) -> list[Index]:
        """**Local.** As many of the next blocks as fit, at least one."""
        some: list[Index] = []
        n_bytes = 0
        while self._left:
            n_bytes += COPIES * self._blocks.block_bytes(self._left[-1])
            if some and n_bytes > self._most:
                break
            some.append(self._left.pop())
        return some

    def _checked(self, index: Index, block: Any) -> Values:
        refuse_masked(block)
        values, extent = np.asarray(block), self._blocks.extent(index)
        if values.shape != extent or values.dtype.newbyteorder("=") != self._blocks.dtype:
            raise ReadError(
                f"it is {values.dtype}{list(values.shape)}, and should be "
                f"{self._blocks.dtype}{list(extent)}"
            )
        return values.astype(self._blocks.dtype, copy=False)
