"""Fit a program into memory: compile its tasks for what is left; put arguments away if they have no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from redist.check.certify_memory import certify_memory
from redist.errors import NoPlanError
from redist.offload.compile import compile_memory
from redist.offload.least_limit import least_memory
from redist.pgas.ghosts.tape import COLLECTIVE, Task
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.arguments import (
    ArgumentTile,
    as_memory_tile,
    largest_first,
    needed_in_memory,
)
from redist.pgas.programs.limited.cutting.cut_tasks import CutProgram
from redist.pgas.programs.limited.listing import EFFECTS, GraphTask, list_tasks
from redist.pgas.programs.limited.places import FarPlaces
from redist.pgas.programs.limited.sizes import memory_sizes, staging_of
from redist.pgas.programs.prepare import MoveEnds
from redist.program.memory_certificate import MemoryCertificate
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList


@dataclass(frozen=True, slots=True, eq=False)
class FittedProgram:
    """A program that fits: its graph, what was shown about it, and the places of arguments put away."""

    graph: MemoryGraph
    certificate: MemoryCertificate
    away: Mapping[int, int]
    fitter: MemoryFitter
    """The tasks of the graph, on whole tiles or on blocks."""

    @property
    def bound_bytes(self) -> int:
        """The most that any order of the graph holds in memory."""
        bound = self.certificate.bound_bytes[0]
        assert bound is not None
        return bound


class MemoryFitter:
    """The tasks of a program with all that a graph needs to know of them.

    ``times`` has what each task takes, by its identity; of a program in blocks, ``cut`` says which.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        captured: Capture,
        times: Mapping[int, int],
        cut: CutProgram | None = None,
    ) -> None:
        self.tasks, self.captured, self.cut = tasks, captured, cut
        inputs = [number for number in captured.inputs if number is not None]
        self.argument_blocks = {
            memory: cut.blocks[memory] for memory in inputs if cut and memory in cut.blocks
        }
        """By memory: the blocks of an argument that is cut."""
        self.listed = list_tasks(tasks, captured, self.given_blocks)
        self.times = [times[id(one.task)] for one in self.listed.tasks]
        self.sizes = memory_sizes(self.listed, captured)
        self.in_memory = needed_in_memory(captured, self.listed.bases)
        whole = [number for number in inputs if number not in self.argument_blocks]
        made = [number for one in self.listed.tasks for number in one.makes]
        begin = (*whole, *self.given_blocks, EFFECTS)
        self.tile_of = {memory: n for n, memory in enumerate((*begin, *made))}
        self.made_bytes: dict[int, int] = {}
        for one in self.listed.tasks:
            for number in one.makes:
                n_bytes = self.made_bytes.get(one.task.node, 0) + self.sizes.get(number, 0)
                self.made_bytes[one.task.node] = n_bytes

    @property
    def given_blocks(self) -> tuple[int, ...]:
        """The blocks of all arguments that are cut."""
        return tuple(one for blocks in self.argument_blocks.values() for one in blocks)

    def staging(self, peaks: Mapping[MoveEnds, int]) -> list[int]:
        """**Local.** What every task takes on the way."""
        return [staging_of(one, self.captured, self.made_bytes, peaks) for one in self.listed.tasks]

    def tasks_for(self, peaks: Mapping[MoveEnds, int]) -> tuple[MemoryTask, ...]:
        """**Local.** The tasks, wherever arguments lie."""
        return tuple(
            MemoryTask(
                self.name_of(one),
                self._tiles(one.reads),
                self._tiles(one.makes),
                self._tiles(one.updates),
                staging,
                "moves" if one.task.kind in COLLECTIVE else "compute",
                time_ps,
            )
            for one, staging, time_ps in zip(
                self.listed.tasks, self.staging(peaks), self.times, strict=True
            )
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
                tiles.append(
                    as_memory_tile(one, size, away.get(one.number, 0), memory in self.in_memory)
                )
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

    def name_of(self, one: GraphTask) -> str:
        """A task in words; those that meet others have the same on all ranks."""
        match one.task.function:
            case TileMover(move=move):
                return f"move {move.source} to {move.target}"
            case Exchanger(exchange=exchange):
                return f"{exchange.what} {exchange.source} to {exchange.target}"
        node = self.captured.nodes[one.task.node]
        return f"{node.name} ({node.line})"

    def fit(
        self,
        arguments: Sequence[ArgumentTile],
        peaks: Mapping[MoveEnds, int],
        budget_bytes: int,
        far: FarPlaces,
    ) -> FittedProgram:
        """**Local.** The graph that keeps a budget, with as few arguments put away as will do.

        Raises :class:`~redist.errors.NoPlanError` with the least budget.
        """
        listed, away = self.list_for(arguments, peaks, budget_bytes, far)
        name = "GPU" if far.on_device else "memory"
        used: dict[int, int] = {}
        for one in arguments:
            if one.place:
                used[one.place] = used.get(one.place, 0) + self.sizes.get(one.memory, 0)
        places = (MemoryPlace(name, max(0, budget_bytes)), *far.places(used))
        graph = compile_memory(listed, places)
        if budget_bytes < 0:  # a program that needs nothing
            raise NoPlanError("cannot keep a limit that other arrays exceed", 0)
        certificate = certify_memory(graph)
        assert certificate.verdict == "proved", certificate
        return FittedProgram(graph, certificate, away, self)

    def list_for(
        self,
        arguments: Sequence[ArgumentTile],
        peaks: Mapping[MoveEnds, int],
        budget_bytes: int,
        far: FarPlaces,
    ) -> tuple[TaskList, dict[int, int]]:
        """**Local.** The tasks, with arguments put away until a budget does or none is left; which, where."""
        away = {one.number: one.place for one in arguments if one.place}
        cut = [one for one in arguments if one.memory in self.argument_blocks and not one.place]
        away |= {one.number: far.leave_to for one in cut}
        listed = TaskList(self.tiles_for(arguments, away), self.tasks_for(peaks))
        for one in largest_first(arguments) if far.leave_to else ():
            # Where something streams, the next shall be loaded while the one before is worked on.
            streamed = (t.size_bytes for t in listed.tiles if t.begins and 0 not in t.begins)
            if least_memory(listed)[0] + max(streamed, default=0) <= budget_bytes:
                break
            if one.number not in away:
                away[one.number] = far.leave_to
                listed = replace(listed, tiles=self.tiles_for(arguments, away))
        return listed, away
