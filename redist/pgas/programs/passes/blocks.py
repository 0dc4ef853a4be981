"""A join that only one reduction reads is computed in blocks: the array between them never exists.

``sum((x[:, None] - c[None]) ** 2, -1)`` of n x d and k x d elements needs no n x k x d array. Blocks cut the
first dim only, which the result keeps: every element of it is made by the same sums in the same order, so
its bits stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.joins.ein_kernel import COMBINING, Aggregation, run_blocks
from redist.pgas.joins.trace_join import Join, JoinStep, is_element_wise
from redist.pgas.tiles.tiled import Tile

LEAST_BYTES = 2**24
"""Smaller joins stay as they are: in blocks they take a tenth longer, and their memory is no trouble."""
BLOCK_BYTES = 2**20
OPTIONS = {"axis", "dtype", "keepdims"}
"""Of reductions that are computed in blocks."""
Shapes = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BlockedJoin:
    """Computes a join of some shape and its reduction, some rows at a time.

    ``tasks`` are those in whose place it stands.
    """

    tasks: tuple[Task, ...]
    join: Join
    shape: tuple[int, ...]
    aggregation: Aggregation
    keepdims: bool

    @property
    def work_bytes(self) -> int:
        """The most that a call takes beside tiles and result: a block for every value of the join."""
        return (self.join.width + 2) * self._rows * _row_bytes(self.shape)

    @property
    def _rows(self) -> int:
        return max(1, BLOCK_BYTES // max(1, _row_bytes(self.shape)))

    def __call__(self, *tiles: Tile) -> Tile:
        """**Local.** The reduced tile."""
        block = (self._rows, *self.shape[1:])
        out = run_blocks(self.join, tiles, self.shape, block, self.aggregation)
        return out if self.keepdims else out.squeeze(self.aggregation.dims)


def _row_bytes(shape: tuple[int, ...]) -> int:
    return 8 * int(np.prod(shape[1:], dtype=np.int64))


def block_joins(
    tasks: Sequence[Task], kept: Sequence[int], roots: Mapping[int, int], shapes: Shapes
) -> list[Task]:
    """**Local.** The tasks with joins that only one reduction reads computed in blocks."""
    finder = _Joins(tasks, kept, roots, shapes)
    found = {}
    for place, task in enumerate(tasks):
        join = finder.find(place, task)
        if join is not None:
            found[place] = join
    gone = {id(task) for join in found.values() for task in join.tasks}
    out = []
    for place, task in enumerate(tasks):
        if place in found:
            out.append(_task_of(task, found[place], roots))
        elif id(task) not in gone:
            out.append(task)
    return out


def _task_of(task: Task, join: BlockedJoin, roots: Mapping[int, int]) -> Task:
    leaves = join.join.leaves
    args = tuple(Ref(number) for number in leaves)
    reads = tuple(dict.fromkeys(roots[number] for number in leaves))
    return Task(TaskKind.PURE, join, args, {}, task.out, reads, (), task.node)


class _Joins:
    """Finds joins among tasks: who makes a value, and who else looks at it."""

    def __init__(
        self, tasks: Sequence[Task], kept: Sequence[int], roots: Mapping[int, int], shapes: Shapes
    ) -> None:
        self.tasks, self.roots, self.shapes = tasks, roots, shapes
        self.uses = Counter(n for task in tasks for n in set(refs_in((task.args, task.options))))
        self.uses.update(kept)
        self.writers = Counter(root for task in tasks for root in task.writes)
        outs = [task.out for task in tasks if task.out is not None]
        self.views = Counter(roots[out] for out in outs if out in roots)
        self.makers: dict[int, tuple[int, ...]] = {}
        """By value: the places of the tasks that make it, the one that computes it last."""
        for place, task in enumerate(tasks):
            out = task.options.get("out")
            if task.kind in (TaskKind.PURE, TaskKind.NEW) and task.out is not None:
                self.makers[task.out] = (place,)
            elif task.kind is TaskKind.WRITE and isinstance(out, Ref) and out.number in self.makers:
                self.makers[out.number] = (*self.makers[out.number], place)

    def find(self, place: int, task: Task) -> BlockedJoin | None:
        """The join that a task reduces; None if it should stay as it is."""
        if task.kind is not TaskKind.PURE or task.function not in COMBINING:
            return None
        (source,) = task.args if len(task.args) == 1 else (None,)
        axis = task.options.get("axis")
        if not isinstance(source, Ref) or not isinstance(axis, tuple) or 0 in axis or not axis:
            return None
        shape = self.shapes.get(source.number, ())
        if len(shape) < 2 or shape[0] < 2 or -len(shape) in axis:
            return None
        if _row_bytes(shape) * shape[0] < LEAST_BYTES or task.options.keys() - OPTIONS:
            return None
        steps: list[JoinStep] = []
        places: list[int] = []
        leaves: dict[int, None] = {}
        if not self._collect(source.number, shape, steps, places, leaves, place):
            return None
        if not steps:
            return None
        first = min(places)
        read = {self.roots[number] for number in leaves if number in self.roots}
        if len(read) < len({self.roots.get(n) for n in leaves}):
            return None
        between = (
            other for k, other in enumerate(self.tasks[first:place], first) if k not in places
        )
        if any(read & set(other.writes) for other in between):
            return None
        own = tuple(self.tasks[k] for k in sorted(places))
        dims = tuple(dim % len(shape) for dim in axis)
        options = {key: one for key, one in task.options.items() if key == "dtype"}
        return BlockedJoin(
            (*own, task),
            Join.of(tuple(leaves), steps, source.number),
            shape,
            Aggregation(task.function, dims, options),
            bool(task.options.get("keepdims")),
        )

    def _collect(
        self,
        number: int,
        shape: tuple[int, ...],
        steps: list[JoinStep],
        places: list[int],
        leaves: dict[int, None],
        reader: int,
    ) -> bool:
        """Take in the element-wise task that makes a value, and those of its operands; else it is a leaf."""
        made = self.makers.get(number, ())
        maker = self.tasks[made[-1]] if made else None
        if maker is None or not self._is_inner(number, shape, made, maker, reader):
            if number not in self.shapes:
                return False
            leaves[number] = None
            return True
        if number in {step.out for step in steps}:
            return True
        places += made
        for arg in maker.args:
            if isinstance(arg, Ref) and not self._collect(
                arg.number, shape, steps, places, leaves, made[-1]
            ):
                return False
        options = {key: one for key, one in maker.options.items() if key != "out"}
        steps.append(JoinStep(maker.function, maker.args, options, number))
        return True

    def _is_new(self, made: tuple[int, ...]) -> bool:
        """Whether a value is new memory that one task writes."""
        return len(made) == 2 and self.tasks[made[0]].kind is TaskKind.NEW

    def _is_inner(
        self, number: int, shape: tuple[int, ...], made: tuple[int, ...], maker: Task, reader: int
    ) -> bool:
        """Whether a value is element-wise, as large as the join, and looked at by nobody else."""
        function = maker.function
        if not isinstance(function, (np.ufunc, Rounded)) or not is_element_wise(function):
            return False
        readers = self.uses[number] - (len(made) - 1)  # a task that writes it names it
        plain = all(not refs_in(one) or key == "out" for key, one in maker.options.items())
        return (
            self.shapes.get(number) == shape
            and readers == 1
            and self.roots.get(number) == number
            and self.views[number] == 1
            and self.writers[number] == len(made) - 1
            and (len(made) == 1 or self._is_new(made))
            and plain
            and all(isinstance(arg, Ref) or np.ndim(arg) == 0 for arg in maker.args)
        )
