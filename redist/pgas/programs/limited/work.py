"""What tasks of a graph do when it runs: captured tasks, on arrays wherever these lie now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redist.pgas.ghosts.tape import TaskKind
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.memory import TileMemory, counted_bytes, memory_for, root_of
from redist.pgas.programs.limited.cutting.block_calls import FirstPart, NewBlock
from redist.pgas.programs.limited.listing import EFFECTS, GraphTask, ListedTasks
from redist.pgas.programs.passes.replay import write_replay
from redist.pgas.spill.spill_store import TileLayout
from redist.runtime.cuda.arrays import overlap
from redist.runtime.cuda.pinned_store import SeparateMemory, launched
from redist.runtime.lanes.vertex_table import TaskWork

NOTHING = np.empty(0, np.uint8)
"""The array of a tile of no bytes."""
IN_SEGMENTS = (NewBlock, FirstPart, TileMover)
"""What makes its result in shared memory; NumPy makes that of others, in memory of its own."""


class RunValues:
    """What one run knows beside the tiles of its graph: values without memory, and how tiles lie."""

    def __init__(self) -> None:
        self.plain: dict[int, Any] = {}
        self.layouts: dict[int, TileLayout] = {}
        """By tile."""
        self._apart: SeparateMemory | None = None

    def make_tile(self, tile: int) -> Any:
        """**Local.** Memory for a tile that comes back, as it lay before; threads call it."""
        layout = self.layouts.get(tile)
        if layout is None:
            return NOTHING
        if not layout.on_device:
            return layout.empty()
        if self._apart is None:
            self._apart = SeparateMemory()
        with self._apart:
            return layout.empty()

    def clear(self) -> None:
        """Forget everything."""
        self.plain.clear()
        self.layouts.clear()


def work_of(
    one: GraphTask,
    listed: ListedTasks,
    tile_of: Mapping[int, int],
    sizes: Mapping[int, int],
    staging_bytes: int,
    values: RunValues,
    on_device: bool = False,
) -> TaskWork:
    """**Local.** What a task does with the tiles that it reads and updates; it gives those that it makes.

    ``sizes`` has what memories count with. What NumPy allocates is counted too, so that it and dead
    segments never take more together than the plan says.
    """
    memory = memory_for(on_device)
    private_bytes = staging_bytes
    if one.task.kind is not TaskKind.NEW and not isinstance(one.task.function, IN_SEGMENTS):
        private_bytes += sum(sizes.get(number, 0) for number in one.makes)
    given = [*one.reads, *one.updates]
    plain = listed.plain
    names = [number if number != EFFECTS else None for number in given]
    replay = write_replay([*one.views, one.task, *one.parts], names, one.makes)
    is_exchange = isinstance(one.task.function, Exchanger)
    run = _granted(replay, staging_bytes, memory) if is_exchange else replay
    made = [(number, None if number in plain else tile_of[number]) for number in one.makes]
    plain_at = [(at, number) for at, number in enumerate(given) if number in plain]

    def work(*arrays: Any) -> tuple[Any, ...]:
        tiles = list(arrays)
        for at, number in plain_at:
            tiles[at] = values.plain[number]
        if private_bytes:
            memory.expect(private_bytes)
        found = run(*tiles)
        out = []
        for (number, tile), value in zip(made, found, strict=True):
            if tile is None:
                values.plain[number] = value
                out.append(NOTHING)
                continue
            own, layout = own_memory(value, arrays)
            values.layouts[tile] = layout
            memory.adopt(own, sizes.get(number, 0))
            out.append(own)
        return tuple(out)

    return launched(work, gives=True) if on_device else TaskWork(work, gives=True)


def _granted(replay: Callable[..., Any], n_bytes: int, memory: TileMemory) -> Callable[..., Any]:
    """An exchange with what it may take on the way."""

    def run(*tiles: Any) -> Any:
        with memory.granting(n_bytes):
            return replay(*tiles)

    return run


def own_memory(value: Any, given: Sequence[Any]) -> tuple[Any, TileLayout]:
    """**Local.** A result in memory of its own without gaps: itself, or a copy with its dims in their order.

    >>> x = np.zeros((4, 6))
    >>> own_memory(x, ())[0] is x, own_memory(x[:2], ())[0] is x[:2], own_memory(x, (x,))[0] is x
    (True, False, False)
    """
    layout = TileLayout.of(value)
    is_own = (
        layout is not None
        and counted_bytes(root_of(value).nbytes, layout.on_device)
        <= counted_bytes(value.nbytes, layout.on_device)
        and not any(overlap(value, one) for one in given if one is not NOTHING)
    )
    if not is_own:
        value = value.copy(order="K")
        layout = TileLayout.of(value)
    assert layout is not None
    return value, layout
