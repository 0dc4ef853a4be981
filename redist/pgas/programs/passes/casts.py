"""On GPUs, new memory and the cast into it become one task, and products of 16-bit floats do their casts.

::

    t1 = new memory                  t1 = cast(x)           p = product in f32       t = rounded product
    copy x into t1                                          t = cast(p)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.ghosts.ghost import reshaped
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.kinds import F32, is_half
from redist.pgas.products.contract import ProductOnGpu
from redist.pgas.tiles.tiled import Tile
from redist.runtime.cuda.elements import ITEMS, ElementStep, run_steps

NARROW = frozenset(ITEMS) - {"float64"}
"""Steps of these dtypes are computed in f32."""
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
    product: ProductOnGpu

    @property
    def work_bytes(self) -> int:
        """What it takes beside its result: there is no product in f32."""
        return self.product.work_bytes

    def __call__(self, x: Tile, y: Tile) -> Tile:
        """**Local.** The product, rounded once."""
        return self.product(x, y, self.dtype).reshape(self.shape)


class Looks:
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

    def uses_of(self, at: int) -> int:
        """How many tasks read what the task at a place makes; one more if it is kept."""
        return self.uses[self.tasks[at].out or 0]

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


def with_casts(tasks: Sequence[Task], shapes: Shapes, dtypes: Dtypes) -> list[Task]:
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


def with_rounded_products(
    tasks: Sequence[Task], looks: Looks, shapes: Shapes, dtypes: Dtypes
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
        if not isinstance(product.function, ProductOnGpu) or looks.uses[product.out or 0] != 1:
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
        whole = RoundedProduct(inner, dtype, shapes[task.out or 0], product.function)
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
