"""A program of one signature within a memory limit: fitted to what is held now, certified, and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redist.check.certify_memory import within_bounds
from redist.errors import NoPlanError, RequestError, SpillError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.offload.clock import CrowdedNode
from redist.pgas.ghosts.tape import Task
from redist.pgas.ghosts.traffic import Exchanger
from redist.pgas.memory import GRAIN
from redist.pgas.programs.capture import most_of, strides_of
from redist.pgas.programs.compiled import Compiled, LaidOut
from redist.pgas.programs.handing_over import hand_over
from redist.pgas.programs.limited.agreed_fit import AgreedFit, peaks_of, single_moves
from redist.pgas.programs.limited.fit import CutFitter, FittedProgram, MemoryFitter
from redist.pgas.programs.limited.listing import (
    EFFECTS,
    NOTHING,
    ListedTasks,
    RunValues,
    list_tasks,
    work_of,
)
from redist.pgas.programs.limited.places import ArgumentState, FarPlaces, RunLimit
from redist.pgas.programs.limited.report import memory_lines
from redist.pgas.programs.passes.judge import judge
from redist.pgas.programs.passes.replay import Replay, write_replay
from redist.pgas.programs.planning.plan_program import costs_of, make_program_plan
from redist.pgas.programs.prepare import MoveEnds, fates_of, with_transfers
from redist.pgas.programs.signature import Signature
from redist.pgas.spill.memory_limit import put_away, stored_tile
from redist.pgas.spill.spill_store import HOST, SpillStore, StoredTile, store_for
from redist.pgas.tiles.tiled import Tiled, held_by, hold, hold_stored
from redist.pgas.watch.seam import plan_move
from redist.plan.rates import device_costs
from redist.program.memory_graph import MemoryGraph
from redist.runtime.cuda.arrays import current_stream
from redist.runtime.lanes.loop import LaneSpan, nothing
from redist.runtime.lanes.run_graph import GraphOutcome, GraphRunner, make_together, run_together
from redist.runtime.lanes.stores import TileStore
from redist.runtime.lanes.vertex_table import LanePolicy
from redist.runtime.ranks.agreement import gather_answers, raise_unless_agreed
from redist.runtime.ranks.collectives import all_fit
from redist.runtime.ranks.node import own_cores
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, world_of
from redist.text.progress import Progress

BESIDE, ONE_BY_ONE = LanePolicy(admits=True), LanePolicy("synchronous")
N_THREADS = 4
"""So many threads load, and as many store: copies overtake each other, and a disk does several at once."""
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


def _with_times(listed: ListedTasks, laid: LaidOut) -> ListedTasks:
    """**Collective.** The modelled time of every task: that of its move, its call, or of touching its tiles.

    What a call computes, its last task does.
    """
    decided = laid.decided
    costs = None if decided is None else decided.costs
    node_ps = Counter[int]()  # a product and its cast are one node
    if decided is not None:
        with suppress(RequestError):  # of several meshes: all ranks see that
            costs = costs or costs_of(decided.recorder, laid.comm)  # none where nothing moves
            for one in decided.recorder.calls:
                node_ps[one.node] += costs.work_ps(one)
    byte_fs = device_costs(laid.tidied.captured.on_device).byte_fs
    last = {task.node: task for task in listed.tasks}

    def time_ps(task: Task) -> int:
        for move in task.moves:
            return plan_move(move.source, move.target, laid.comm, None).time_ps
        if isinstance(task.function, Exchanger):
            return 0 if costs is None else costs.exchange_ps(task.function.exchange)
        touched = (*task.reads, *task.writes, *listed.makes_of(task))
        touch_ps = sum(listed.sizes.get(n, 0) for n in touched) * byte_fs // 1000
        return max(touch_ps, node_ps[task.node]) if last[task.node] is task else touch_ps

    return replace(listed, tasks=tuple(replace(t, time_ps=time_ps(t)) for t in listed.tasks))


class LimitedProgram(Compiled):
    """A compiled program that runs within a limit: a memory graph, done by lanes."""

    def __init__(self, laid: LaidOut, limit: RunLimit) -> None:
        """**Collective.** Raises :class:`~redist.errors.CaptureError` if it takes memory unforeseen."""
        super().__init__(laid)
        captured, name, comm = self.captured, self.name, self.comm
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
        self.captured, self.limit, self._on_device = captured, limit, captured.on_device
        kept, roots = sorted(captured.kept), captured.roots
        self.tasks = single_moves(self.tidied.tasks, captured.next_value)
        judge(captured.tasks, self.tasks, captured.inputs, kept, roots)
        listed = _with_times(list_tasks(self.tasks, captured), laid)
        self.fitter = CutFitter(MemoryFitter(listed, captured))
        peaks = peaks_of(self.tasks, comm)
        self.fitter.whole.staging(peaks.best)  # all is known that tasks take
        far = FarPlaces(captured.on_device, limit.spill, limit.limit_bytes)
        self.agreed = AgreedFit(name, comm, limit, self.fitter, peaks, far)
        self.fitted: FittedProgram | None = None
        self._held: ArgumentState = ()
        self._held_bytes = 0
        """What other arrays held when it was fitted."""
        self._values = RunValues()
        self._runner: GraphRunner | None = None
        self._by_policy: dict[LanePolicy, GraphRunner] = {}
        self._finish: dict[tuple[int, ...], Replay] = {}
        """By values that are in memory at the end: what makes them of the tiles there."""
        self._stores: list[TileStore] = []
        self.peak_bytes: tuple[int, ...] = ()
        """By place: the most that the last run held."""
        self.spans: tuple[LaneSpan, ...] = ()
        """What the last run that was recorded did when."""

    def serves(self, signature: Signature) -> bool:
        """**Collective.** Whether it is the program of a call; without a folder, also whether it fits."""
        arrays = self.arrays(signature.arrays)
        holds = self._still_stands(signature.arrays) and self.captured.strides == strides_of(arrays)
        if self.limit.spill is not None:
            return all_fit(self.comm, holds)
        if all_fit(self.comm, holds and self.still_fits(arrays)):
            return True
        return all_fit(self.comm, holds) and self.least_bytes(arrays) is not None

    # What it is

    def fates(self) -> tuple[Sequence[str], dict[str, int]]:
        """What became of every captured move."""
        return fates_of(self.captured, self.tidied.firsts, self.tasks, self.tasks, ()).words, {}

    def graph(self, given: Sequence[Tiled]) -> ProgramGraph:
        """**Collective.** It as a value, with how it keeps its limit."""
        return self._told(given)[0]

    def plan(self, given: Sequence[Tiled]) -> ProgramPlan:
        """**Collective.** Its layouts as a value, with memory and times of what runs."""
        graph, fitted, least, alone = self._told(given)
        moved = fitted.graph.moved_bytes
        return replace(
            make_program_plan(graph, self.decided),
            certificate=fitted.certificate,
            least_bytes=least,
            time_ps=fitted.clocked.time_ps,
            peak_bytes=fitted.bound_bytes,
            unlimited_bytes=alone,
            loaded_bytes=moved["load"],
            stored_bytes=moved["store"],
        )

    def _told(self, given: Sequence[Tiled]) -> tuple[ProgramGraph, FittedProgram, int, int]:
        """**Collective.** Its graph, how it fits now, the least limit that would do; what it takes else."""
        arrays = self.arrays(given)
        fitted, least = self.agreed.look(arrays)
        alone = most_of(self.comm, [self.agreed.unlimited_bytes(arrays)])[0]
        lines = memory_lines(fitted, self.limit.limit_bytes, least, alone)
        return replace(super().graph(given), memory=lines), fitted, least, alone

    # Fitting

    def least_bytes(self, arrays: Sequence[Tiled]) -> int | None:
        """**Collective.** The least limit that would do; None if its own does not."""
        try:
            return self.agreed.look(arrays)[1]
        except NoPlanError:
            return None

    def fit(self, arrays: Sequence[Tiled], progress: bool = False) -> FittedProgram:
        """**Collective.** Make sure that it fits what is left of the limit now; else raise on all ranks."""
        if all_fit(self.comm, self.still_fits(arrays)):
            assert self.fitted is not None
            return self.fitted
        if self.fitted is not None:
            self.agreed.note_new(arrays, self.fitted.away)
        with self.limit.planning(self.name, self.comm.rank == 0, progress):
            fitted, peaks, limits = self.agreed.choose_plans(arrays)
            self.fitted = self._runner = None
            self._by_policy, self._finish = {}, {}
            self._prepare(arrays, fitted, peaks, limits)
        self._held, left_bytes = self.agreed.state(arrays)
        self.fitted, self._held_bytes = fitted, self.limit.limit_bytes - left_bytes
        return fitted

    def still_fits(self, arrays: Sequence[Tiled]) -> bool:
        """**Local.** Whether it was fitted, and what is left of the limit now does for that."""
        if self.fitted is None:
            return False
        held, left_bytes = self.agreed.state(arrays)
        return held == self._held and self.fitted.bound_bytes <= left_bytes

    def _prepare(
        self,
        arrays: Sequence[Tiled],
        fitted: FittedProgram,
        peaks: dict[MoveEnds, int],
        limits: dict[MoveEnds, int | None],
    ) -> None:
        """**Collective.** Prepare moves, put arguments away, and make what runs the graph."""
        fitter = fitted.fitter
        listed, tile_of = fitter.listed, fitter.tile_of
        tasks = with_transfers(listed.tasks, limits)
        work = [
            work_of(task, listed, tile_of, n_bytes, self._values, self._on_device)
            for task, n_bytes in zip(tasks, fitter.staging(peaks), strict=True)
        ]

        policy = self._choose_policy(fitted.graph)

        def make() -> GraphRunner:
            there = [one for array in arrays if (one := stored_tile(array)) is not None]
            self._stores = self.agreed.far.open(len(fitted.graph.places) - 1, there)
            for number, place in sorted(fitted.away.items()):
                if stored_tile(arrays[number]) is None:
                    store = self._stores[place - 1]
                    assert isinstance(store, SpillStore)
                    put_away(arrays[number], store)
            # Admission grants what was certified, so that no order holds more than the bound.
            graph = within_bounds(fitted.graph, fitted.certificate.bound_bytes)
            return GraphRunner(
                graph,
                work,
                self._stores,
                self._values.make_tile,
                policy=policy,
                n_threads=N_THREADS,
            )

        self._runner = make_together(self.comm, make)

    @property
    def policy(self) -> LanePolicy:
        """How its calls run, once it was fitted."""
        assert self._runner is not None
        return self._runner.policy

    def _choose_policy(self, graph: MemoryGraph) -> LanePolicy:
        """**Collective.** Whether to copy beside the work or one at a time, the same on all ranks.

        It is asked once for each plan, by the rank that works longest, that which copies longest, and the
        node with the fewest cores for its ranks.
        """
        world = world_of(self.comm)
        cores = world.gather_on_node(own_cores())
        copies = [n for n, one in enumerate(graph.vertices) if one.kind in ("load", "store")]
        work_ps = sum(task.time_ps for task in graph.tasks.tasks)
        copies_ps = sum(graph.time_ps(number) for number in copies)
        n_cores = len(frozenset().union(*cores)) or len(cores)
        mine = [work_ps, copies_ps, len(copies), 1000 * len(cores) // n_cores]
        work_ps, copies_ps, n_copies, crowd = most_of(self.comm, mine)
        node = CrowdedNode(crowd, 1000)
        if self._on_device or node.overlaps(work_ps, copies_ps, n_copies):
            return BESIDE
        return ONE_BY_ONE

    # Running

    def run(
        self,
        given: Sequence[Tiled],
        *,
        records: bool = False,
        policy: LanePolicy | None = None,
        progress: bool = False,
    ) -> Any:
        """**Collective.** Run it on the arrays of a call; see :meth:`GraphRunner.run` for the options."""
        arrays = self.arrays(given)
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
        finish = self._finish.get(tuple(kept))
        if finish is None:
            finish = self._finish[tuple(kept)] = write_replay(listed.views_of(kept), bases, kept)
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
