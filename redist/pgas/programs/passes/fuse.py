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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redist.pgas.elementwise.on_device import compute
from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.ghosts.ghost import reshaped
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.kinds import F32, is_half
from redist.pgas.products.contract import product_on_gpu
from redist.pgas.tiles.tiled import Tile
from redist.runtime.cuda.elements import ITEMS, ElementStep, can_fuse, run_steps
from redist.runtime.cuda.rows import run_rows

MOST_LEAVES = 8
"""A kernel has no more operands."""
NARROW = frozenset(ITEMS) - {"float64"}
"""Steps of these dtypes are computed in f32."""
REDUCTIONS: dict[Any, str] = {np.sum: "sum", np.max: "max", np.min: "min"}
Shapes = Mapping[int, tuple[int, ...]]
Dtypes = Mapping[int, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Cast:
    """New memory and the copy into it, as one task of one operand."""

    tasks: tuple[Task, ...]
    dtype: np.dtype[Any]

    def __call__(self, tile: Tile) -> Tile:
        """**Local.** The values in another dtype."""
        made: Tile | None = run_steps([tile], [ElementStep("positive", (0,), self.dtype.name)])
        return tile.astype(self.dtype, order="C") if made is None else made


@dataclass(frozen=True, slots=True)
class RoundedProduct:
    """A product and its cast to 16 bits, as the library does both."""

    tasks: tuple[Task, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __call__(self, x: Tile, y: Tile) -> Tile:
        """**Local.** The product, rounded once."""
        return product_on_gpu(x, y, self.dtype).reshape(self.shape)


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
    tasks = _with_casts(tasks, shapes, dtypes)
    tasks = _with_rounded_products(tasks, _Looks(tasks, kept, roots), shapes, dtypes)
    looks = _Looks(tasks, kept, roots)
    steps = {at: one for at, task in enumerate(tasks) if (one := _step_of(task, shapes, dtypes))}
    chains: dict[int, dict[int, Task]] = {}
    """By the place of its last task: the tasks of a chain by their places."""
    repeats: dict[int, set[int]] = {}
    """By the place of a cast: the tasks that do it again."""
    for at, (_, operands, _) in steps.items():
        chain = {at: tasks[at]}
        for n in dict.fromkeys(one.number for one in operands if isinstance(one, Ref)):
            maker = looks.makers.get(n, -1)
            if maker not in chains or shapes[n] != shapes[tasks[at].out or 0]:
                continue
            joined = dict(sorted({**chain, **chains[maker]}.items()))
            read = {roots.get(m) for one in chains[maker].values() for m in refs_in(one.args)}
            if not looks.is_own(n) or looks.writes_between(maker, at, read):
                continue
            if len(_leaves([*joined], steps, tasks)) > MOST_LEAVES:
                continue
            if looks.uses[n] == 1:
                chains.pop(maker)
            elif isinstance(tasks[maker].function, Cast) and len(chains[maker]) == 1:
                repeats.setdefault(maker, set()).add(at)
            else:
                continue
            chain = joined
        chains[at] = chain
    fused = {at: chain for at, chain in chains.items() if len(chain) > 1}
    rows = {
        at: maker
        for at, task in enumerate(tasks)
        if (maker := _rows_of(task, looks, chains, steps, shapes, dtypes)) is not None
    }
    for at, maker in rows.items():
        cast = isinstance(tasks[maker].function, Cast) and len(chains[maker]) == 1
        if cast and looks.uses[tasks[maker].out or 0] > 1:
            repeats.setdefault(maker, set()).add(at)
        else:
            fused[maker] = chains[maker]
    inside = {place for chain in fused.values() for place in chain} | {*rows}
    needed = {
        at for at, users in repeats.items()
        if at in chains and not (users <= inside and len(users) == looks.uses[tasks[at].out or 0])
    }  # fmt: skip
    out = []
    gone = {maker for maker in rows.values() if maker in fused}
    for at, task in enumerate(tasks):
        if at in gone:
            continue
        if at in rows:
            chain = [*chains[rows[at]]]
            out.append(_rows_task(_task_of(chain, steps, tasks, roots), task))
        elif at in fused:
            out.append(_task_of([*fused[at]], steps, tasks, roots))
        elif at not in inside or at in needed:
            out.append(task)
    return out


class _Looks:
    """Who makes, uses, views and writes the values of tasks."""

    def __init__(
        self, tasks: Sequence[Task], kept: Sequence[int], roots: Mapping[int, int]
    ) -> None:
        self.tasks, self.roots, self.kept = tasks, roots, frozenset(kept)
        self.uses = Counter(n for task in tasks for n in set(refs_in((task.args, task.options))))
        self.uses.update(kept)
        self.views = Counter(
            roots[one.out] for one in tasks if one.out is not None and one.out in roots
        )
        self.written = {root for task in tasks for root in task.writes}
        self.makers = {task.out: at for at, task in enumerate(tasks) if task.out is not None}

    def is_own(self, n: int, n_views: int = 1) -> bool:
        """Whether a value has memory of its own that nobody writes, keeps, or looks at otherwise."""
        root = self.roots.get(n)
        return (
            root is not None
            and (root == n or n_views > 1)
            and self.views[root] == n_views
            and not self.written & {root}
            and n not in self.kept
        )

    def writes_between(self, first: int, last: int, read: set[int | None]) -> bool:
        """Whether memory is written between two tasks."""
        return any(read & {*one.writes} for one in self.tasks[first:last] if one.writes)


# Casts, and products with their casts.


def _with_casts(tasks: Sequence[Task], shapes: Shapes, dtypes: Dtypes) -> list[Task]:
    """New memory and the one copy into it, of narrow floats, as one task."""
    new: dict[int, Task] = {}
    writers = Counter(root for task in tasks for root in task.writes)
    casts: dict[int, Task | None] = {}
    """In the places of tasks, by their identity: casts in those of copies, nothing in those of new memory."""
    for task in tasks:
        if task.kind is TaskKind.NEW and task.out is not None and writers[task.out] == 1:
            new[task.out] = task
            continue
        if task.function is np.copyto and all(isinstance(one, Ref) for one in task.args):
            to, of = (one.number for one in task.args)
            kinds = {dtypes[n].name if n in dtypes else "" for n in (to, of)}
            if to in new and kinds <= NARROW - {"bool"} and shapes[to] == shapes.get(of):
                reads = tuple(root for root in task.reads if root != to)
                made = Cast((new[to], task), dtypes[to])
                casts[id(task)] = Task(
                    TaskKind.PURE, made, task.args[1:], {}, to, reads, (), task.node
                )
                casts[id(new.pop(to))] = None
                continue
        for n in refs_in((task.args, task.options)):
            new.pop(n, None)  # looked at before it is written
    return [one for task in tasks if (one := casts.get(id(task), task)) is not None]


def _with_rounded_products(
    tasks: Sequence[Task], looks: _Looks, shapes: Shapes, dtypes: Dtypes
) -> list[Task]:
    """Products of 16-bit floats that give what only a cast to that dtype reads, perhaps in another shape."""
    gone: set[int] = set()
    instead: dict[int, Task] = {}
    for at, task in enumerate(tasks):
        if not isinstance(task.function, Cast) or not is_half(task.function.dtype):
            continue
        parts = [looks.makers.get(task.args[0].number, at)]
        while _keeps_order(one := tasks[parts[-1]]) and looks.uses[one.out or 0] == 1:
            parts.append(looks.makers.get(one.args[0].number, at))
        product, dtype = tasks[parts[-1]], task.function.dtype
        if product.function is not product_on_gpu or looks.uses[product.out or 0] != 1:
            continue
        x, y, made = product.args
        first = task.args[0].number
        if (
            made != F32
            or any(dtypes.get(one.number) != dtype for one in (x, y))
            or looks.uses[first] != 1
            or not looks.is_own(first, len(parts))
            or looks.writes_between(parts[-1], at, {looks.roots.get(one.number) for one in (x, y)})
        ):
            continue
        inner = (*(tasks[part] for part in reversed(parts)), *task.function.tasks)
        whole = RoundedProduct(inner, dtype, shapes[task.out or 0])
        instead[at] = Task(
            TaskKind.PURE, whole, (x, y), {}, task.out, product.reads, (), product.node
        )
        gone.update(parts)
    return [instead.get(at, task) for at, task in enumerate(tasks) if at not in gone]


def _keeps_order(task: Task) -> bool:
    """Whether a task looks at the same elements in the same order."""
    if task.kind is not TaskKind.PURE:
        return False
    if task.function is np.transpose and len(task.args) == 2 and task.args[1] is not None:
        return tuple(task.args[1]) == tuple(range(len(task.args[1])))
    return task.function is reshaped


# Steps, and kernels of them.


def _step_of(task: Task, shapes: Shapes, dtypes: Dtypes) -> tuple[str, tuple[Any, ...], str] | None:
    """The function, operands and dtype of an element-wise task of narrow floats; None if it is another."""
    if task.kind is not TaskKind.PURE or task.out not in shapes or task.options:
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
    task: Task,
    looks: _Looks,
    chains: Mapping[int, Mapping[int, Task]],
    steps: Steps,
    shapes: Shapes,
    dtypes: Dtypes,
) -> int | None:
    """The place of the chain whose rows a task puts together, if nothing else needs what it makes."""
    if task.kind is not TaskKind.PURE or task.function not in REDUCTIONS or len(task.args) != 1:
        return None
    n = task.args[0].number if isinstance(task.args[0], Ref) else -1
    at, maker = looks.makers.get(task.out, -1), looks.makers.get(n, -1)
    if maker not in chains or dtypes[n] != F32 or dtypes.get(task.out or 0) != F32:
        return None
    options, last = task.options, len(shapes[n]) - 1
    along = options.get("axis")
    is_last = (along if isinstance(along, tuple) else (along,)) in ((last,), (-1,))
    own = looks.is_own(n) and not {*options} - {"axis", "dtype", "keepdims"}
    read = {looks.roots.get(m) for one in chains[maker].values() for m in refs_in(one.args)}
    cast = isinstance(looks.tasks[maker].function, Cast) and len(chains[maker]) == 1
    fits = own and is_last and "keepdims" in options and (looks.uses[n] == 1 or cast)
    return maker if fits and not looks.writes_between(maker, at, read) else None


def _rows_task(elements: Task, reduces: Task) -> Task:
    """One task in the place of a chain and what puts its rows together."""
    op = REDUCTIONS[reduces.function]
    fused = FusedRows(elements.function, reduces, op)  # type: ignore[arg-type]
    return replace(elements, function=fused, out=reduces.out, node=reduces.node)


def _is_number(one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.ndim == 0 and one.dtype.name in NARROW


Steps = Mapping[int, tuple[str, tuple[Any, ...], str]]


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


def _task_of(
    chain: Sequence[int], steps: Steps, tasks: Sequence[Task], roots: Mapping[int, int]
) -> Task:
    """One task in the place of several, the last of which gives the result."""
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
