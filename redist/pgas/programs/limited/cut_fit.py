"""Fit a program into memory with whole tiles, or, if these do not fit, with blocks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redist.errors import NoPlanError
from redist.offload.least_limit import least_memory
from redist.pgas.ghosts.tape import Task
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.arguments import ArgumentTile
from redist.pgas.programs.limited.cutting.choose_cuts import CutChooser, Cuts
from redist.pgas.programs.limited.cutting.cut_tasks import cut_tasks
from redist.pgas.programs.limited.fit import FittedProgram, MemoryFitter
from redist.pgas.programs.limited.places import FarPlaces
from redist.pgas.programs.prepare import MoveEnds
from redist.program.tasks import TaskList

LEAST_BLOCK_BYTES = 2**18
"""Blocks are not made smaller: tasks on them would take longer to begin than to do."""
MOST_BLOCKS = 512
"""A memory is cut into no more blocks."""
MOST_TASKS = 20_000
"""A program is cut into no more tasks."""


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
        needs = [least_memory(one.list_for(arguments, peaks, 0, far)[0])[0] for one in fitters]
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
        listed = [
            (one, one.list_for(arguments, peaks, 0, far)[0]) for one in (self.whole, *fitters)
        ]
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
        times = {id(one.task): ps for one, ps in zip(whole.listed.tasks, whole.times, strict=True)}
        before: Cuts | None = None
        for halved in range(1, MOST_BLOCKS.bit_length()):
            block_bytes = chooser.largest_bytes >> halved
            if block_bytes < LEAST_BLOCK_BYTES:
                break
            cuts = chooser.choose(block_bytes, MOST_BLOCKS)
            if not cuts.dims or chooser.n_tasks(cuts) > MOST_TASKS or cuts == before:
                continue
            before = cuts
            out.append(_fitter_of(whole.tasks, chooser, cuts, times))
        return out


def _has_blocks(far: FarPlaces) -> bool:
    """Whether memories may lie in blocks: parts of tiles in memory, which leave it for a file."""
    return bool(far.leave_to) and not far.on_device


def _fitter_of(
    tasks: Sequence[Task], chooser: CutChooser, cuts: Cuts, times: Mapping[int, int]
) -> MemoryFitter:
    """The program with memories in blocks; parts of a task share its time."""
    cut = cut_tasks(tasks, chooser, cuts)
    shared = {
        id(task): times.get(cut.whole.get(id(task), id(task)), 0) // cut.shares.get(id(task), 1)
        for task in cut.tasks
    }
    return MemoryFitter(cut.tasks, cut.captured, shared, cut)
