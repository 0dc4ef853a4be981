"""A program of one signature within a memory limit: fitted to what is held now, certified, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from redist.arrange.strategies import BUILT_IN, BUILT_IN_CPU
from redist.errors import RequestError, SpillError
from redist.pgas.ghosts.tape import Task
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.memory import GRAIN
from redist.pgas.programs.agree import most_of
from redist.pgas.programs.capture import strides_of
from redist.pgas.programs.handing_over import find_aliases, hand_over
from redist.pgas.programs.limited.agreed_fit import AgreedFit
from redist.pgas.programs.limited.arguments import state_of
from redist.pgas.programs.limited.cut_fit import CutFitter
from redist.pgas.programs.limited.fit import FittedProgram, MemoryFitter
from redist.pgas.programs.limited.listing import EFFECTS, list_tasks
from redist.pgas.programs.limited.moves import (
    peaks_of,
    single_moves,
    with_limited_transfers,
)
from redist.pgas.programs.limited.places import FarPlaces
from redist.pgas.programs.limited.run_limit import LayoutsFor, RunLimit
from redist.pgas.programs.limited.sizes import MoveEnds, memory_sizes, task_times
from redist.pgas.programs.limited.work import NOTHING, RunValues, work_of
from redist.pgas.programs.outside import Outside
from redist.pgas.programs.passes.blocks import block_joins
from redist.pgas.programs.passes.judge import judge
from redist.pgas.programs.passes.replay import write_replay
from redist.pgas.programs.prepare import Tidied
from redist.pgas.spill.put_away import put_away, stored_tile
from redist.pgas.spill.spill_store import HOST, SpillStore, StoredTile, store_for
from redist.pgas.tiles.tiled import Tiled, held_by, hold, hold_stored
from redist.runtime.cuda.arrays import current_stream
from redist.runtime.lanes.loop import nothing
from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.run_graph import GraphOutcome, GraphRunner
from redist.runtime.lanes.stores import TileStore
from redist.runtime.lanes.timeline import LaneSpan
from redist.runtime.lanes.together import make_together, run_together
from redist.runtime.ranks.agreement import gather_answers, raise_unless_agreed
from redist.runtime.ranks.free_memory import all_fit
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm
from redist.text.progress import Progress

LINE_S = 1.0
"""Where there is no terminal, a line says so often how far a run has come."""


def _open_together(comm: Comm, name: str, spill: str | None) -> SpillStore | None:
    """**Collective.** The store of a folder; if a rank cannot write there, all raise."""
    store, error = None, None
    try:
        store = None if spill is None else store_for(spill)
    except SpillError as problem:
        error = problem
    if spill is not None:
        answers = gather_answers(comm, "", error, TIMEOUT_S)
        try:
            raise_unless_agreed(f"cannot run {name}", answers, error)
        except RequestError as problem:
            if any(failed for _, failed, *_ in answers):
                raise SpillError(str(problem)) from error
            raise
    return store


class LimitedProgram:
    """A captured program of one signature that runs within a limit."""

    def __init__(
        self,
        name: str,
        tidied: Tidied,
        outside: Outside,
        comm: Comm,
        limit: RunLimit,
        node_ps: dict[int, int],
        move_ps: Callable[[TileMover | Exchanger], int],
        layouts: LayoutsFor = LayoutsFor.LIMIT,
    ) -> None:
        """**Collective.** Raises :class:`~redist.errors.CaptureError` if it takes memory unforeseen."""
        captured = tidied.captured
        if limit.spill == HOST and not captured.on_device:
            if limit.is_own:
                raise RequestError(
                    f'cannot spill {name} to "host": its arrays are in memory, not on a GPU; '
                    "give spill= a folder"
                )
            limit = replace(limit, spill=None)  # that of redist.memory_limit is for GPUs alone
        self._store = _open_together(comm, name, limit.spill)
        nodes = range(len(captured.nodes))
        rooms = most_of(comm, [captured.rooms.get(node, 0) for node in nodes])
        captured = replace(captured, rooms=dict(zip(nodes, rooms, strict=True)))
        self.name, self.captured, self.comm, self.limit = name, captured, comm, limit
        self.tidied, self.layouts, self._on_device = tidied, layouts, captured.on_device
        self.outside, self._still_stands = outside.arrays, outside.still_stands
        kept, roots = sorted(captured.kept), captured.roots
        next_value = 1 + max([*roots, *(task.out or 0 for task in captured.tasks)], default=0)
        tasks = single_moves(tidied.tasks, next_value)
        if not captured.on_device:
            tasks = block_joins(tasks, kept, roots, captured.shapes)
        self.tasks: list[Task] = tasks
        judge(captured.tasks, self.tasks, captured.inputs, kept, roots)
        listed = list_tasks(self.tasks, captured)
        byte_fs = (BUILT_IN if captured.on_device else BUILT_IN_CPU).byte_fs
        times = task_times(listed, memory_sizes(listed, captured), node_ps, move_ps, byte_fs)
        by_task = {id(one.task): ps for one, ps in zip(listed.tasks, times, strict=True)}
        self.fitter = CutFitter(MemoryFitter(self.tasks, captured, by_task))
        self._aliases = find_aliases(captured, comm)
        peaks = peaks_of(self.tasks, comm)
        self.fitter.whole.staging(peaks.best)  # all is known that tasks take
        far = FarPlaces(captured.on_device, limit.spill, limit.limit_bytes)
        self.agreed = AgreedFit(name, comm, limit, self.fitter, peaks, far)
        self.fitted: FittedProgram | None = None
        self._held: tuple[tuple[int, int], ...] = ()
        self._held_bytes = 0
        """What other arrays held when it was fitted."""
        self._values = RunValues()
        self._runner: GraphRunner | None = None
        self._by_policy: dict[LanePolicy, GraphRunner] = {}
        self._stores: list[TileStore] = []
        self.peak_bytes: tuple[int, ...] = ()
        """By place: the most that the last run held."""
        self.spans: tuple[LaneSpan, ...] = ()
        """What the last run that was recorded did when."""

    def still_holds(self, arrays: Sequence[Tiled]) -> bool:
        """**Local.** Whether what it reaches is that of the capture, and tiles lie as they did."""
        return self._still_stands() and self.captured.strides == strides_of(arrays)

    # Fitting

    def fit(self, arrays: Sequence[Tiled], progress: bool = False) -> FittedProgram:
        """**Collective.** Make sure that it fits what is left of the limit now; else raise on all ranks."""
        if all_fit(self.comm, self.still_fits(arrays)):
            assert self.fitted is not None
            return self.fitted
        with self.limit.planning(self.name, self.comm.rank == 0, progress):
            fitted, peaks, limits = self.agreed.choose_plans(arrays)
            self.fitted = self._runner = None
            self._by_policy = {}
            self._prepare(arrays, fitted, peaks, limits)
        self.fitted, self._held = fitted, state_of(self.agreed.arguments(arrays))
        self._held_bytes = self.agreed.held_elsewhere(arrays)
        return fitted

    def still_fits(self, arrays: Sequence[Tiled]) -> bool:
        """**Local.** Whether it was fitted, and what is left of the limit now does for that."""
        if self.fitted is None or self._held != state_of(self.agreed.arguments(arrays)):
            return False
        return self.fitted.bound_bytes <= self.agreed.left_bytes(arrays)

    def _prepare(
        self,
        arrays: Sequence[Tiled],
        fitted: FittedProgram,
        peaks: dict[MoveEnds, int],
        limits: dict[MoveEnds, int | None],
    ) -> None:
        """**Collective.** Prepare moves, put arguments away, and make what runs the graph."""
        fitter = fitted.fitter
        tasks = with_limited_transfers(fitter.tasks, limits)
        listed = list_tasks(tasks, fitter.captured, fitter.given_blocks)
        staging = fitter.staging(peaks)
        work = [
            work_of(
                one, listed, fitter.tile_of, fitter.sizes, n_bytes, self._values, self._on_device
            )
            for one, n_bytes in zip(listed.tasks, staging, strict=True)
        ]

        def make() -> GraphRunner:
            there = [one for array in arrays if (one := stored_tile(array)) is not None]
            self._stores = self.agreed.far.open(len(fitted.graph.places) - 1, there)
            for number, place in sorted(fitted.away.items()):
                if stored_tile(arrays[number]) is None:
                    store = self._stores[place - 1]
                    assert isinstance(store, SpillStore)
                    put_away(arrays[number], store)
            return GraphRunner(fitted.graph, work, self._stores, self._values.make_tile)

        self._runner = make_together(self.comm, make)

    # Running

    def run(
        self,
        given: Sequence[Tiled],
        *,
        records: bool = False,
        checks: bool = False,
        policy: LanePolicy | None = None,
        progress: bool = False,
    ) -> Any:
        """**Collective.** Run it on the arrays of a call; see :meth:`GraphRunner.run` for the options."""
        arrays = [*given, *(one.array for one in self.outside)]
        fitted = self.fit(arrays, progress)
        runner, fitter, captured = self._runner, fitted.fitter, self.captured
        tile_of = fitter.tile_of
        assert runner is not None
        if policy is not None:
            if policy not in self._by_policy:
                self._by_policy[policy] = runner.choosing(policy)
            runner = self._by_policy[policy]
        held: dict[tuple[int, int], Any] = {(tile_of[EFFECTS], 0): NOTHING}
        for array, memory in zip(arrays, captured.inputs, strict=True):
            if memory is None:
                continue
            one = held_by(array)
            if memory in fitter.argument_blocks:
                assert isinstance(one, StoredTile)
                self._give_blocks(one, memory, fitter, held)
                continue
            tile = tile_of[memory]
            if isinstance(one, StoredTile):
                held[tile, self.agreed.far.place_of(one)] = one.space
                self._values.layouts[tile] = one.layout
            else:
                held[tile, 0] = one
        try:
            bound = fitted.bound_bytes + self._held_bytes
            if self._on_device:  # copies do not wait for what fills arguments
                current_stream().synchronize()
            with self.agreed.memory.planned(bound + bound // 100 + 2 * GRAIN):
                says = progress and self.comm.rank == 0
                said = Progress(self.name, line_s=LINE_S) if says else nothing
                outcome = run_together(
                    self.comm,
                    runner,
                    held,
                    records=records,
                    checks=checks,
                    awake=self._on_device,
                    said=said,
                )
        finally:
            self._values.clear()
        self.peak_bytes, self.spans = outcome.peak_bytes, outcome.spans
        values = self._ends(fitter, outcome)
        skipped = self._put_back(arrays, fitted, outcome)
        return hand_over(captured, arrays, values, self._aliases, skipped=skipped)

    def _give_blocks(
        self,
        stored: StoredTile,
        memory: int,
        fitter: MemoryFitter,
        held: dict[tuple[int, int], Any],
    ) -> None:
        """Let the blocks of an argument be parts of what is stored of it."""
        assert fitter.cut is not None
        dim, place = fitter.cut.cuts.dims[memory], self.agreed.far.place_of(stored)
        ranges = fitter.cut.cuts.ranges[memory]
        for block, (low, high) in zip(fitter.argument_blocks[memory], ranges, strict=True):
            tile = fitter.tile_of[block]
            held[tile, place], self._values.layouts[tile] = stored.part(dim, low, high)

    def _ends(self, fitter: MemoryFitter, outcome: GraphOutcome) -> dict[int, Any]:
        """The values that are needed at the end, and are in memory."""
        listed, tile_of = fitter.listed, fitter.tile_of
        there = {tile for tile, place in outcome.held if place == 0}
        kept = [n for n in sorted(self.captured.kept) if tile_of.get(listed.bases[n], -1) in there]
        bases = list(dict.fromkeys(listed.bases[number] for number in kept))
        finish = write_replay(listed.views_of(kept), bases, kept)
        found = finish(*(outcome.held[tile_of[base], 0] for base in bases))
        return dict(zip(kept, found, strict=True))

    def _put_back(
        self, arrays: Sequence[Tiled], fitted: FittedProgram, outcome: GraphOutcome
    ) -> frozenset[int]:
        """Let arguments in the store stand as they are now; the numbers of those that stay there."""
        tile_of, captured, staying = fitted.fitter.tile_of, self.captured, set()
        for number, place in fitted.away.items():
            memory, array = captured.inputs[number], arrays[number]
            stored = stored_tile(array)
            assert memory is not None and stored is not None
            if memory in fitted.fitter.argument_blocks:
                staying.add(number)
                continue
            tile = tile_of[memory]
            if captured.ends[number].tile != memory or memory in fitted.fitter.in_memory:
                if (tile, 0) in outcome.held:
                    hold(array, outcome.held[tile, 0])
                continue
            staying.add(number)
            space = outcome.held[tile, place]
            if space is not stored.space:
                hold_stored(array, StoredTile(space, stored.layout, stored.worst_bytes))
        return frozenset(staying)
