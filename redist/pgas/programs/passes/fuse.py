"""On GPUs, element-wise tasks of 16-bit floats that only the next one reads become one kernel.

Between them nothing is written to memory. Each step is rounded in its register, so the bits stay.

::

    t1 = multiply(x, y)
    t2 = add(t1, 2.0)           t3 = one kernel(x, y, 2.0)
    t3 = tanh(t2)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.tiles.tiled import Tile
from redist.runtime.cuda.elements import ITEMS, ElementStep, can_fuse, run_steps

MOST_LEAVES = 8
"""A kernel has no more operands."""
Shapes = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FusedElements:
    """Steps as one kernel; one after another where operands have other shapes than was known."""

    steps: tuple[ElementStep, ...]
    tasks: tuple[Task, ...]
    """Those in whose place it stands."""
    leaves: tuple[Any, ...]
    """Their operands: values, and numbers."""

    def __call__(self, *given: Any) -> Tile:
        """**Local.** The result of the last step."""
        made: Tile | None = run_steps(given, self.steps)
        if made is not None:
            return made
        refs = [one for one in self.leaves if isinstance(one, Ref)]
        tiles = [one for one, leaf in zip(given, self.leaves, strict=True) if isinstance(leaf, Ref)]
        values = {ref.number: tile for ref, tile in zip(refs, tiles, strict=True)}
        for task in self.tasks:
            function, operands, kinds, dtype = task.args
            own = [values[one.number] if isinstance(one, Ref) else one for one in operands]
            made = compute(function, own, kinds, dtype)
            assert task.out is not None
            values[task.out] = made
        assert made is not None
        return made


def fuse_elements(
    tasks: Sequence[Task], kept: Sequence[int], roots: Mapping[int, int], shapes: Shapes
) -> list[Task]:
    """**Local.** The tasks with chains of element-wise ones as one each."""
    uses = Counter(n for task in tasks for n in set(refs_in((task.args, task.options))))
    uses.update(kept)
    views = Counter(roots[task.out] for task in tasks if task.out is not None and task.out in roots)
    written = {root for task in tasks for root in task.writes}
    places = {task.out: at for at, task in enumerate(tasks) if task.out is not None}
    chains: dict[int, list[Task]] = {}
    for at, task in enumerate(tasks):
        if not _is_step(task, shapes):
            continue
        chain: list[Task] = []
        for one in task.args[1]:
            if not isinstance(one, Ref) or places.get(one.number) not in chains:
                continue
            n, maker = one.number, places[one.number]
            alone = uses[n] == 1 and roots.get(n) == n and views[n] == 1 and n not in written
            read = {roots.get(m) for m in refs_in([part.args for part in chains[maker]])}
            between = {root for other in tasks[maker:at] for root in other.writes}
            if (
                alone
                and not read & between
                and len(_leaves([*chain, *chains[maker], task])) <= MOST_LEAVES
            ):
                chain += chains.pop(maker)
        chains[at] = [*chain, task]
    gone = {id(part) for chain in chains.values() for part in chain}
    out = []
    for at, task in enumerate(tasks):
        if len(chains.get(at, ())) > 1:
            out.append(_task_of(chains[at], roots))
        elif id(task) not in gone or at in chains:
            out.append(task)
    return out


def _is_step(task: Task, shapes: Shapes) -> bool:
    """Whether a task is a function of 16-bit floats and numbers, all arrays as large as its result."""
    if task.kind is not TaskKind.PURE or task.function is not compute or task.out is None:
        return False
    function, operands, kinds, dtype = task.args
    if not isinstance(function, Rounded) or dtype.name not in ITEMS:
        return False
    shape = shapes.get(task.out)
    arrays = [k for one, k in zip(operands, kinds, strict=True) if isinstance(one, Ref)]
    numbers = [one for one in operands if not isinstance(one, Ref)]
    return (
        all(isinstance(one, (bool, int, float)) for one in numbers)
        and all(shapes.get(one.number) == shape for one in operands if isinstance(one, Ref))
        and can_fuse(function.__name__, [np.dtype(one) for one in arrays])
        and not refs_in(task.options)
    )


def _leaves(chain: Sequence[Task]) -> list[Any]:
    """What a chain reads: values of others, and numbers, each by its place in a task."""
    made = {task.out for task in chain}
    found: list[Any] = []
    for task in chain:
        for one in task.args[1]:
            if isinstance(one, Ref) and (one.number in made or one in found):
                continue
            found.append(one)
    return found


def _task_of(chain: Sequence[Task], roots: Mapping[int, int]) -> Task:
    """One task in the place of several, the last of which gives the result."""
    leaves, last = _leaves(chain), chain[-1]
    numbers = {one.number: at for at, one in enumerate(leaves) if isinstance(one, Ref)}
    free = iter([at for at, one in enumerate(leaves) if not isinstance(one, Ref)])
    steps = []
    for at, task in enumerate(chain, len(leaves)):
        function, operands, _, dtype = task.args
        args = tuple(
            numbers[one.number] if isinstance(one, Ref) else next(free) for one in operands
        )
        steps.append(ElementStep(function.__name__, args, dtype.name))
        assert task.out is not None
        numbers[task.out] = at
    fused = FusedElements(tuple(steps), tuple(chain), tuple(leaves))
    values = [one.number for one in leaves if isinstance(one, Ref)]
    reads = tuple(dict.fromkeys(roots[number] for number in values if number in roots))
    return Task(TaskKind.PURE, fused, tuple(leaves), {}, last.out, reads, (), last.node)
