"""On GPUs, element-wise tasks of 16-bit floats that only the next one reads become one kernel.

Between them nothing is written to memory. Each step is rounded in its register, so the bits stay.

::

    t1 = multiply(x, y)
    t2 = add(t1, 2.0)           t3 = one kernel(x, y, 2.0)
    t3 = tanh(t2)

Casts are steps, too: new memory and the copy into it become one. A cast that several tasks read is repeated
by each of them, which reads fewer bytes than its result has. The cast of a product is done by the product,
and a sum of rows by the kernel that makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.kinds import F32
from redist.pgas.programs.passes.casts import (
    NARROW,
    Cast,
    Dtypes,
    Looks,
    Shapes,
    with_casts,
    with_rounded_products,
)
from redist.pgas.tiles.tiled import Tile
from redist.runtime.cuda.elements import ElementStep, can_fuse, run_steps
from redist.runtime.cuda.rows import run_rows

MOST_LEAVES = 8
"""A kernel has no more operands."""
REDUCTIONS: dict[Any, str] = {np.sum: "sum", np.max: "max", np.min: "min"}


@dataclass(frozen=True, slots=True)
class FusedElements:
    """Steps as one kernel; one after another where a kernel cannot take operands as they lie."""

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
            assert task.out is not None
            values[task.out] = made = _done_alone(task, values)
        assert made is not None
        return made


@dataclass(frozen=True, slots=True)
class FusedRows:
    """Steps whose rows are summed up, or searched for extremes, as one kernel; else one after the other."""

    elements: FusedElements
    reduces: Task
    op: str

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Those in whose place it stands."""
        return (*self.elements.tasks, self.reduces)

    def __call__(self, *given: Any) -> Tile:
        """**Local.** What the rows of the last step come to."""
        keepdims = self.reduces.options["keepdims"]
        made: Tile | None = run_rows(given, self.elements.steps, self.op, keepdims)
        if made is None:
            made = self.reduces.function(self.elements(*given), **self.reduces.options)
        return made


def _done_alone(task: Task, values: Mapping[int, Tile]) -> Tile:
    """**Local.** The result of one task of a chain."""

    def own(operands: Sequence[Any]) -> list[Any]:
        return [values[one.number] if isinstance(one, Ref) else one for one in operands]

    if task.function is compute:
        function, operands, kinds, dtype = task.args
        return compute(function, own(operands), kinds, dtype)
    made: Tile = task.function(*own(task.args))
    return made


def fuse_elements(
    tasks: Sequence[Task],
    kept: Sequence[int],
    roots: Mapping[int, int],
    shapes: Shapes,
    dtypes: Dtypes,
) -> list[Task]:
    """**Local.** The tasks with chains of element-wise ones as one each, and casts as parts of others."""
    tasks = with_casts(tasks, shapes, dtypes)
    tasks = with_rounded_products(tasks, Looks(tasks, kept, roots), shapes, dtypes)
    looks = Looks(tasks, kept, roots)
    steps = {at: one for at, task in enumerate(tasks) if (one := _step_of(task, shapes, dtypes))}
    chains, again = _chains_of(looks, steps, shapes)
    found = {at: _rows_of(at, looks, chains, shapes, dtypes) for at in range(len(tasks))}
    rows = {at: maker for at, maker in found.items() if maker is not None}
    for at, maker in rows.items():
        if looks.uses_of(maker) > 1:  # a cast
            again.setdefault(maker, set()).add(at)
    gone = {place for chain in chains.values() for place in chain[:-1]} | {*rows.values()}
    for cast, users in again.items():
        if len(users) < looks.uses_of(cast):
            gone.discard(cast)
        else:
            gone.add(cast)
    out = []
    for at, task in enumerate(tasks):
        if at in gone:
            continue
        if at in rows:
            task = _rows_task(_task_of(chains[rows[at]], steps, looks), task)
        elif len(chains.get(at, ())) > 1:
            task = _task_of(chains[at], steps, looks)
        out.append(task)
    return out


def _chains_of(
    looks: Looks, steps: Steps, shapes: Shapes
) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
    """By the last place of a chain all its places, and by that of a cast those of tasks that repeat it."""
    tasks = looks.tasks
    chains: dict[int, list[int]] = {}
    again: dict[int, set[int]] = {}
    for at, (_, operands, _) in steps.items():
        chain = [at]
        for n in dict.fromkeys(one.number for one in operands if isinstance(one, Ref)):
            maker = looks.makers.get(n, -1)
            if maker not in chains or shapes[n] != shapes[tasks[at].out or 0]:
                continue
            joined = sorted({*chain, *chains[maker]})
            if not looks.is_own(n) or looks.writes_between(maker, at, _read(chains[maker], looks)):
                continue
            if len(_leaves(joined, steps, tasks)) > MOST_LEAVES:
                continue
            if looks.uses[n] == 1:
                chains.pop(maker)
            elif isinstance(tasks[maker].function, Cast) and len(chains[maker]) == 1:
                again.setdefault(maker, set()).add(at)
            else:
                continue
            chain = joined
        chains[at] = chain
    return chains, again


def _read(chain: Sequence[int], looks: Looks) -> set[int | None]:
    """The memory that the tasks of a chain read."""
    return {looks.roots.get(n) for at in chain for n in refs_in(looks.tasks[at].args)}


# Steps, and kernels of them.


Steps = Mapping[int, tuple[str, tuple[Any, ...], str]]
"""Of the places of tasks: functions, operands and dtypes."""


def _step_of(task: Task, shapes: Shapes, dtypes: Dtypes) -> tuple[str, tuple[Any, ...], str] | None:
    """The function, operands and dtype of an element-wise task of narrow floats; None if it is another."""
    is_pure = task.kind is TaskKind.PURE and not task.options
    if not is_pure or task.out is None or task.out not in shapes:
        return None
    function, operands = task.function, task.args
    if isinstance(function, Cast):
        return "positive", operands, function.dtype.name
    if function is compute:
        function, operands, _, _ = task.args
        if not isinstance(function, (Rounded, np.ufunc)) and function is not np.where:
            return None
    elif not isinstance(function, np.ufunc):
        return None
    dtype = dtypes[task.out]
    name: str = function.__name__
    arrays = [one.number for one in operands if isinstance(one, Ref)]
    numbers = [one for one in operands if not isinstance(one, Ref)]
    kinds = [dtypes[n] for n in arrays if n in dtypes]
    fits = (
        bool(arrays)
        and len(kinds) == len(arrays)
        and all(
            isinstance(one, (bool, int, float, np.floating)) or _is_number(one) for one in numbers
        )
        and {dtype.name, *(one.name for one in kinds)} <= NARROW
        and can_fuse(name, kinds)
    )
    return (name, tuple(operands), dtype.name) if fits else None


def _rows_of(
    at: int, looks: Looks, chains: Mapping[int, list[int]], shapes: Shapes, dtypes: Dtypes
) -> int | None:
    """The place of the chain whose rows a task puts together, if nothing else needs what it makes."""
    task = looks.tasks[at]
    if task.kind is not TaskKind.PURE or task.function not in REDUCTIONS or len(task.args) != 1:
        return None
    n = task.args[0].number if isinstance(task.args[0], Ref) else -1
    maker = looks.makers.get(n, -1)
    if maker not in chains or dtypes[n] != F32 or dtypes.get(task.out or 0) != F32:
        return None
    options, last = task.options, len(shapes[n]) - 1
    along = options.get("axis")
    is_last = (along if isinstance(along, tuple) else (along,)) in ((last,), (-1,))
    own = looks.is_own(n) and not {*options} - {"axis", "dtype", "keepdims"}
    cast = isinstance(looks.tasks[maker].function, Cast) and len(chains[maker]) == 1
    fits = own and is_last and "keepdims" in options and (looks.uses[n] == 1 or cast)
    return (
        maker if fits and not looks.writes_between(maker, at, _read(chains[maker], looks)) else None
    )


def _rows_task(elements: Task, reduces: Task) -> Task:
    """One task in the place of a chain and what puts its rows together."""
    op = REDUCTIONS[reduces.function]
    fused = FusedRows(elements.function, reduces, op)  # type: ignore[arg-type]
    return replace(elements, function=fused, out=reduces.out, node=reduces.node)


def _is_number(one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.ndim == 0 and one.dtype.name in NARROW


def _leaves(chain: Sequence[int], steps: Steps, tasks: Sequence[Task]) -> list[Any]:
    """What a chain reads: values of others, and numbers, each by its place in a task."""
    made = {tasks[at].out for at in chain}
    found: list[Any] = []
    known: set[int] = set()
    for at in chain:
        for one in steps[at][1]:
            if isinstance(one, Ref):
                if one.number in made or one.number in known:
                    continue
                known.add(one.number)
            found.append(one)
    return found


def _task_of(chain: Sequence[int], steps: Steps, looks: Looks) -> Task:
    """One task in the place of several, the last of which gives the result."""
    tasks, roots = looks.tasks, looks.roots
    leaves, last = _leaves(chain, steps, tasks), tasks[chain[-1]]
    numbers = {one.number: at for at, one in enumerate(leaves) if isinstance(one, Ref)}
    free = iter([at for at, one in enumerate(leaves) if not isinstance(one, Ref)])
    made = []
    for number, at in enumerate(chain, len(leaves)):
        name, operands, dtype = steps[at]
        args = tuple(
            numbers[one.number] if isinstance(one, Ref) else next(free) for one in operands
        )
        made.append(ElementStep(name, args, dtype))
        numbers[tasks[at].out or 0] = number
    fused = FusedElements(tuple(made), tuple(tasks[at] for at in chain), tuple(leaves))
    values = [one.number for one in leaves if isinstance(one, Ref)]
    reads = tuple(dict.fromkeys(roots[number] for number in values if number in roots))
    return Task(TaskKind.PURE, fused, tuple(leaves), {}, last.out, reads, (), last.node)
