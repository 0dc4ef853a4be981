"""Fit a program into memory: compile its tasks for what is left; put arguments away if they have no room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from redist.check.certify_memory import certify_memory
from redist.errors import NoPlanError
from redist.offload.admission import content_edges
from redist.offload.clock import ClockedRun, clock
from redist.offload.compile import MemoryNeeds, compile_memory, least_memory
from redist.offload.room import unlimited_bytes
from redist.pgas.ghosts.tape import COLLECTIVE, Task
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.cutting.choose_cuts import CutChooser, Cuts
from redist.pgas.programs.limited.cutting.cut_tasks import CutProgram, cut_tasks
from redist.pgas.programs.limited.listing import (
    EFFECTS,
    ListedTasks,
    staging_of,
)
from redist.pgas.programs.limited.places import (
    ArgumentTile,
    FarPlaces,
    as_memory_tile,
    leaving_order,
    needed_in_memory,
)
from redist.pgas.programs.prepare import MoveEnds
from redist.program.memory_graph import MemoryCertificate, MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList

# Fit a program into memory with whole tiles, or, if these do not fit, with blocks of them.


LEAST_BLOCK_BYTES = 2**18
"""Blocks are not made smaller: tasks on them would take longer to begin than to do."""
MOST_BLOCKS = 512
"""A memory is cut into no more blocks."""
MOST_TASKS = 20_000
"""A program is cut into no more tasks."""
LEAST_TRIED, MOST_TRIED, TRIED_TASKS = 2, 8, 8_000
"""So many ways to put arguments away are compared: fewer where they would have more tasks together."""
AS_QUICK = 1 / 64
"""Ways that take no more than this part longer than the quickest count as quick. Of these that is taken which
puts least away: a copy costs its core time. A GPU copies beside its work for nothing, so that which puts most
away is taken there: the clock does not know how long a user's own kernels take, and room forgives."""


@dataclass(slots=True)
class CutFitter:
    """A program with whole tiles, and in blocks of halving sizes."""

    whole: MemoryFitter
    _known: dict[frozenset[tuple[int, int]], list[MemoryFitter]] = field(default_factory=dict)

    @property
    def captured(self) -> Capture:
        """What was captured."""
        return self.whole.captured

    def fit(
        self,
        arguments: Sequence[ArgumentTile],
        peaks: Mapping[MoveEnds, int],
        budget_bytes: int,
        far: FarPlaces,
    ) -> FittedProgram:
        """**Local.** The program with whole tiles if these keep a budget, else in the largest blocks that do.

        There are blocks only where something can be put away. They are so small that the next one can be
        loaded meanwhile, if any are. Raises :class:`~redist.errors.NoPlanError` with the least budget, for
        the smallest blocks.
        """
        try:
            return self.whole.fit(arguments, peaks, budget_bytes, far)
        except NoPlanError as error:
            if not _has_blocks(far) or (budget_bytes < 0 and not error.least_bytes):
                raise
            refused = error
        fitters = self._in_blocks(arguments)
        needs = [least_memory(one.least_list(arguments, peaks, far))[0] for one in fitters]
        least = min([refused.least_bytes, *needs])
        if least > budget_bytes:
            raise refused if least == refused.least_bytes else NoPlanError(str(refused), least)
        ahead = [n for n, need in enumerate(needs) if 2 * need - least <= budget_bytes]
        return fitters[ahead[0] if ahead else needs.index(least)].fit(
            arguments, peaks, budget_bytes, far
        )

    def smallest(
        self,
        arguments: Sequence[ArgumentTile],
        peaks: Mapping[MoveEnds, int],
        far: FarPlaces,
    ) -> tuple[MemoryFitter, TaskList]:
        """**Local.** The program as it needs least, with all put away that may leave."""
        fitters = self._in_blocks(arguments) if _has_blocks(far) else []
        listed = [(one, one.least_list(arguments, peaks, far)) for one in (self.whole, *fitters)]
        return min(listed, key=lambda one: least_memory(one[1])[0])

    def _in_blocks(self, arguments: Sequence[ArgumentTile]) -> list[MemoryFitter]:
        """**Local.** The program in blocks, large ones first; arguments that may leave lie in blocks, too."""
        written = {root for task in self.captured.tasks for root in task.writes}
        leaving = {
            one.memory: one.outer_dim
            for one in arguments
            if one.outer_dim is not None and (one.place or one.may_leave)
            if one.memory not in written and one.memory not in self.whole.in_memory
        }
        key = frozenset(leaving.items())
        if key not in self._known:
            self._known[key] = self._cut(leaving)
        return self._known[key]

    def _cut(self, leaving: Mapping[int, int]) -> list[MemoryFitter]:
        whole, out = self.whole, []
        in_memory = frozenset(whole.in_memory)
        chooser = CutChooser(whole.listed, self.captured, leaving, in_memory)
        before: Cuts | None = None
        for halved in range(1, MOST_BLOCKS.bit_length()):
            block_bytes = chooser.largest_bytes >> halved
            if block_bytes < LEAST_BLOCK_BYTES:
                break
            cuts = chooser.choose(block_bytes, MOST_BLOCKS)
            if not cuts.dims or chooser.n_tasks(cuts) > MOST_TASKS or cuts == before:
                continue
            before = cuts
            cut = cut_tasks(chooser, cuts)
            out.append(MemoryFitter(cut.listed, cut.captured, cut))
        return out


def _has_blocks(far: FarPlaces) -> bool:
    """Whether memories may lie in blocks: parts of tiles in memory, which leave it for a file."""
    return bool(far.leave_to) and not far.on_device


@dataclass(frozen=True, slots=True, eq=False)
class FittedProgram:
    """A program that fits: its graph, what was shown about it, and the places of arguments put away."""

    graph: MemoryGraph
    certificate: MemoryCertificate
    away: Mapping[int, int]
    fitter: MemoryFitter
    """The tasks of the graph, on whole tiles or on blocks."""
    clocked: ClockedRun
    """What a run takes by the clock."""

    @property
    def bound_bytes(self) -> int:
        """The most that any order of the graph holds in memory."""
        bound = self.certificate.bound_bytes[0]
        assert bound is not None
        return bound


class MemoryFitter:
    """The tasks of a program with all that a graph needs to know of them; ``cut`` if they are on blocks."""

    def __init__(
        self, listed: ListedTasks, captured: Capture, cut: CutProgram | None = None
    ) -> None:
        self.listed, self.captured, self.cut, self.sizes = listed, captured, cut, listed.sizes
        self.argument_blocks = {} if cut is None else cut.argument_blocks
        """By memory: the blocks of an argument that is cut."""
        self.in_memory = needed_in_memory(captured, listed.bases)
        inputs = [number for number in captured.inputs if number is not None]
        whole = [number for number in inputs if number not in self.argument_blocks]
        blocks = [one for several in self.argument_blocks.values() for one in several]
        made = [number for task in listed.tasks for number in listed.makes_of(task)]
        begin = (*whole, *blocks, EFFECTS)
        self.tile_of = {memory: n for n, memory in enumerate((*begin, *made))}
        self.made_bytes: dict[int, int] = {}
        for task in listed.tasks:
            n_bytes = sum(self.sizes.get(number, 0) for number in listed.makes_of(task))
            self.made_bytes[task.node] = self.made_bytes.get(task.node, 0) + n_bytes

    def staging(self, peaks: Mapping[MoveEnds, int]) -> list[int]:
        """**Local.** What every task takes on the way."""
        known = self.captured, self.made_bytes, peaks
        return [staging_of(task, *known) for task in self.listed.tasks]

    def unlimited_bytes(
        self, arguments: Sequence[ArgumentTile], peaks: Mapping[MoveEnds, int]
    ) -> int:
        """**Local.** What the tasks take without a limit, all arguments in memory."""
        return unlimited_bytes(self._listed(arguments, self.tasks_for(peaks), {}))

    def tasks_for(self, peaks: Mapping[MoveEnds, int]) -> tuple[MemoryTask, ...]:
        """**Local.** The tasks, wherever arguments lie."""
        return tuple(
            MemoryTask(
                self.name_of(task),
                self._tiles(task.reads),
                self._tiles(self.listed.makes_of(task)),
                self._tiles(task.writes),
                staging,
                "moves" if task.kind in COLLECTIVE else "compute",
                task.time_ps,
            )
            for task, staging in zip(self.listed.tasks, self.staging(peaks), strict=True)
        )

    def tiles_for(
        self, arguments: Sequence[ArgumentTile], away: Mapping[int, int]
    ) -> tuple[MemoryTile, ...]:
        """**Local.** The tiles, with these arguments in places behind the first."""
        tiles: list[MemoryTile] = []
        by_memory = {one.memory: one for one in arguments}
        by_block = {
            block: (by_memory[memory], f"part {at} of {len(blocks)}")
            for memory, blocks in self.argument_blocks.items()
            for at, block in enumerate(blocks, 1)
        }
        for memory in self.tile_of:
            size = self.sizes.get(memory, 0)
            if memory in by_memory:
                one = by_memory[memory]
                tiles.append(self._argument_tile(one, away.get(one.number, 0)))
            elif memory in by_block:
                one, part = by_block[memory]
                far = (away[one.number],)
                tiles.append(MemoryTile(size, far, far, False, f"argument {one.number}, {part}"))
            elif memory == EFFECTS:
                tiles.append(MemoryTile(0, (0,), (0,), True, "effects"))
            else:
                ends = (0,) if memory in self.in_memory else ()
                tiles.append(MemoryTile(size, (), ends))
        return tuple(tiles)

    def _tiles(self, memories: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.tile_of[one] for one in memories)

    def name_of(self, task: Task) -> str:
        """A task in words; those that meet others have the same on all ranks."""
        match task.function:
            case TileMover(moves=(move,)):
                return f"move {move.source} to {move.target}"
            case Exchanger(exchange=exchange):
                return f"{exchange.what} {exchange.source} to {exchange.target}"
        node = self.captured.nodes[task.node]
        return f"{node.name} ({node.line})"

    def fit(
        self,
        arguments: Sequence[ArgumentTile],
        peaks: Mapping[MoveEnds, int],
        budget_bytes: int,
        far: FarPlaces,
    ) -> FittedProgram:
        """**Local.** The graph that keeps a budget and takes the least modelled time.

        What stays in memory need not be loaded, but leaves less room to load others before they are needed.
        So several numbers of arguments to put away are compared by the clock, between as few as will do and
        all of them. Raises :class:`~redist.errors.NoPlanError` with the least budget.
        """
        name = "GPU" if far.on_device else "memory"
        used: dict[int, int] = {}
        for one in arguments:
            if one.place:
                used[one.place] = used.get(one.place, 0) + self.sizes.get(one.memory, 0)
        places = (MemoryPlace(name, max(0, budget_bytes)), *far.places(used))
        tasks = self.tasks_for(peaks)
        few = self._fewest(arguments, tasks, budget_bytes, far)
        graph = compile_memory(self._listed(arguments, tasks, few), places)
        if budget_bytes < 0:  # a program that needs nothing
            raise NoPlanError("cannot keep a limit that other arrays exceed", 0)
        found = [(clock(graph), graph, few)]
        for away, runs_ahead in self._others(arguments, few, far):
            try:
                graph = compile_memory(
                    self._listed(arguments, tasks, away), places, runs_ahead=runs_ahead
                )
            except NoPlanError:  # a store with a limit
                continue
            found.append((clock(graph), graph, away))
        enough = min(one.time_ps for one, *_ in found) * (1 + AS_QUICK)
        clocked, graph, away = min(
            (one for one in found if one[0].time_ps <= enough),
            key=lambda one: (
                -len(one[2]) if far.on_device else len(one[2]),
                sum(one[1].moved_bytes.values()),
            ),
        )
        certificate = certify_memory(graph, admitted=content_edges(graph))
        assert certificate.verdict == "proved", certificate
        return FittedProgram(graph, certificate, away, self, clocked)

    def _others(
        self, arguments: Sequence[ArgumentTile], few: Mapping[int, int], far: FarPlaces
    ) -> Iterator[tuple[dict[int, int], bool]]:
        """**Local.** What else could be put away, and whether memory is left unused to run ahead.

        All that are worth it, then halfway to as few as will do, and halfway again.
        """
        known = self._put_away_already(arguments, far)
        worth, _ = self._leaving(arguments, far)
        leaving = [one.number for one in worth if one.number not in known]
        fewest, most = len([one for one in leaving if one in few]), len(leaving)
        if not few or any(one not in known and one not in leaving for one in few):
            return  # nothing has to leave, or all that is worth it leaves in any case
        counts = [*dict.fromkeys(fewest + ((most - fewest) >> halved) for halved in range(4))]
        tried = [(n, True) for n in counts if n > fewest] + [(n, False) for n in counts]
        n_tasks = len(self.listed.tasks)
        n_tried = max(LEAST_TRIED, min(MOST_TRIED, TRIED_TASKS // max(1, n_tasks)))
        for n, runs_ahead in tried[: n_tried - 1]:
            yield {**known, **dict.fromkeys(leaving[:n], far.leave_to)}, runs_ahead

    def least_list(
        self, arguments: Sequence[ArgumentTile], peaks: Mapping[MoveEnds, int], far: FarPlaces
    ) -> TaskList:
        """**Local.** The tasks, with all arguments put away that may leave."""
        tasks = self.tasks_for(peaks)
        return self._listed(arguments, tasks, self._fewest(arguments, tasks, 0, far))

    def _fewest(
        self,
        arguments: Sequence[ArgumentTile],
        tasks: tuple[MemoryTask, ...],
        budget_bytes: int,
        far: FarPlaces,
    ) -> dict[int, int]:
        """**Local.** As few arguments as a budget makes leave; all that may if it is too small."""
        away = self._put_away_already(arguments, far)
        by_memory = {one.memory: one for one in arguments}
        listed = self._listed(arguments, tasks, away)
        needs = MemoryNeeds(listed)
        # Where something streams, the next shall be loaded while the one before is worked on.
        streamed = max(
            (t.size_bytes for t in listed.tiles if t.begins and 0 not in t.begins), default=0
        )
        for one in chain(*self._leaving(arguments, far)):
            if needs.least()[0] + streamed <= budget_bytes:
                break
            if one.number not in away:
                away[one.number] = far.leave_to
                if by_memory[one.memory] is one:
                    tile = self._argument_tile(one, far.leave_to)
                    needs.change(self.tile_of[one.memory], tile)
                    streamed = max(streamed, 0 if 0 in tile.begins else tile.size_bytes)
        return away

    def _argument_tile(self, one: ArgumentTile, place: int) -> MemoryTile:
        """**Local.** The tile of an argument that lies in a place."""
        size = self.sizes.get(one.memory, 0)
        return as_memory_tile(one, size, place, one.memory in self.in_memory)

    def _put_away_already(
        self, arguments: Sequence[ArgumentTile], far: FarPlaces
    ) -> dict[int, int]:
        """**Local.** Those that lie in a store, and those of which the tasks take blocks."""
        away = {one.number: one.place for one in arguments if one.place}
        cut = [one for one in arguments if one.memory in self.argument_blocks and not one.place]
        return away | {one.number: far.leave_to for one in cut}

    def _leaving(
        self, arguments: Sequence[ArgumentTile], far: FarPlaces
    ) -> tuple[list[ArgumentTile], list[ArgumentTile]]:
        """**Local.** The arguments that may leave memory: those that should, and those that can."""
        if not far.leave_to:
            return [], []
        first_use: dict[int, int] = {}
        for at, task in enumerate(self.listed.tasks):
            for memory in (*task.reads, *task.writes):
                first_use.setdefault(memory, at)
        return leaving_order(arguments, first_use)

    def _listed(
        self,
        arguments: Sequence[ArgumentTile],
        tasks: tuple[MemoryTask, ...],
        away: Mapping[int, int],
    ) -> TaskList:
        return TaskList(self.tiles_for(arguments, away), tasks)
