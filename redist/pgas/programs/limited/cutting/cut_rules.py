"""Along which dims a task can be cut: every dim of its operands and its result has a label, as in an einsum.

A label that the result has cuts the result too. One that it lacks is aggregated: results of blocks are then
joined, by the sum for products and sums. Labels in ``fixed`` cannot be cut: a sort needs all of its line.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from redist.pgas.creation import write_parts
from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.ghosts.ghost import reshaped
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.joins.ein_kernel import COMBINING, EinKernel
from redist.pgas.joins.trace_join import is_element_wise
from redist.pgas.ordering.lines import sort_lines
from redist.pgas.products.in_f32 import product_in_f32
from redist.pgas.programs.passes.blocks import BlockedJoin
from redist.pgas.programs.passes.fuse import FusedElements
from redist.pgas.random.generators import fill_whole

# Where a dim of memory is found again in a view of it, and the same view of a block.


VIEWS = (
    np.transpose,
    np.swapaxes,
    np.matrix_transpose,
    np.expand_dims,
    np.squeeze,
    np.real,
    np.imag,
    np.broadcast_to,
    operator.getitem,
)
"""Functions that look at memory in another way, whatever its order, and never copy."""
Shape = tuple[int, ...]


def dim_in_view(views: Sequence[Task], shape: Shape, dim: int) -> int | None:
    """**Local.** Which dim of a view is a dim of memory of some shape, all of it in order; None if none is.

    >>> from redist.pgas.ghosts.tape import Ref, TaskKind
    >>> turned = Task(TaskKind.PURE, np.transpose, (Ref(0), (1, 0)), {}, 1, (0,), (), 0)
    >>> part = Task(TaskKind.PURE, operator.getitem, (Ref(1), slice(0, 2)), {}, 2, (0,), (), 0)
    >>> dim_in_view([turned], (6, 4), 0), dim_in_view([turned, part], (6, 4), 0)
    (1, 1)
    >>> dim_in_view([turned, part], (6, 4), 1) is None
    True
    """
    found: int | None = dim
    for view in views:
        if found is None:
            return None
        shape, found = _one_view(view, shape, found)
    return found


def view_of_block(view: Task, shape: Shape, dim: int, n: int) -> tuple[Task, Shape, int]:
    """**Local.** A view of memory as one of a block of ``n`` along a dim; its shape, and that dim in it."""
    whole, found = _one_view(view, shape, dim)
    assert found is not None
    if view.function is reshaped:
        sizes = (*whole[:found], n, *whole[found + 1 :])
        view = replace(view, args=(view.args[0], sizes))
    return view, whole, found


def _one_view(view: Task, shape: Shape, dim: int) -> tuple[Shape, int | None]:
    """The shape of a view of something with a shape, and where one of its dims is there."""
    rest = view.args[1:]
    if view.function is reshaped:
        return _one_reshape(shape, rest[0], dim)
    if view.function not in VIEWS or shape[dim] < 2:
        return (), None
    like = _without_memory(shape)
    try:
        seen = view.function(like, *rest, **view.options)
    except (TypeError, ValueError, IndexError):
        return (), None
    step = like.strides[dim]
    offset = seen.__array_interface__["data"][0] - like.__array_interface__["data"][0]
    if (offset // step) % shape[dim]:
        return seen.shape, None
    there = [at for at, n in enumerate(seen.shape) if n == shape[dim] and seen.strides[at] == step]
    return seen.shape, there[0] if len(there) == 1 else None


def _one_reshape(shape: Shape, sizes: Any, dim: int) -> tuple[Shape, int | None]:
    whole = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if -1 in whole:
        known = -math.prod(whole)
        whole = tuple(math.prod(shape) // max(1, known) if n == -1 else n for n in whole)
    before = math.prod(shape[:dim])
    there = [
        at for at, n in enumerate(whole) if n == shape[dim] and math.prod(whole[:at]) == before
    ]
    return whole, there[0] if there else None


def _without_memory(shape: Shape) -> Any:
    """An array of a shape whose elements nobody may look at: each dim has a stride of its own."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return as_strided(np.zeros(1, np.uint8), shape, strides[::-1], writeable=False)


Label = Hashable
Labels = tuple[Label | None, ...]
"""Of every dim its label; None where the one element of a dim is that of all blocks."""
Slot = int | str
"""Where an operand stands: its position, or the name of an option."""
LabelRanges = Mapping[Label, tuple[int, int]]
"""By label that is cut: from where to where."""
Shapes = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class CutRule:
    """The labels of a task: of operands, by where they stand, and of what it makes or writes."""

    operands: tuple[tuple[Slot, Labels], ...]
    kept: Labels
    written: Slot | None = None
    fixed: frozenset[Label] = frozenset()
    joined_by: np.ufunc | None = None
    """What joins the results of two blocks of a label that the result lacks."""
    within: Callable[[Task, LabelRanges], Task] | None = None
    """The task for a block, where it differs by more than its operands."""
    adds: Callable[[Task], Task] | None = None
    """The task that adds to what it wrote for the block before."""

    @property
    def lost(self) -> tuple[Label, ...]:
        """Labels that the result lacks."""
        found = [label for _, labels in self.operands for label in labels if label is not None]
        return tuple(label for label in dict.fromkeys(found) if label not in self.kept)


def rule_of(task: Task, shapes: Shapes) -> CutRule | None:
    """**Local.** How a task can be cut; None if its tiles must be there as a whole.

    >>> product = Task(TaskKind.PURE, np.matmul, (Ref(0), Ref(1)), {}, 2, (0, 1), (), 0)
    >>> rule = rule_of(product, {0: (6, 4), 1: (4,), 2: (6,)})
    >>> rule.operands, rule.kept, rule.lost
    (((0, (0, 1)), (1, (1,))), (0,), (1,))
    """
    if task.kind not in (TaskKind.PURE, TaskKind.WRITE):
        return None
    function = task.function
    if isinstance(function, BlockedJoin):
        return _of_join(task, function, shapes)
    if isinstance(function, EinKernel):
        return _of_ein(task, function)
    if function in (np.matmul, product_in_f32):
        return _of_product(task, shapes)
    if function is np.einsum:
        return _of_einsum(task)
    if function in COMBINING or function in (np.argmax, np.argmin):
        return _of_reduction(task, shapes)
    if function in (write_parts, fill_whole):
        return _of_fill(task, shapes)
    if function is sort_lines or getattr(function, "__name__", "") == "accumulate":
        return _of_lines(task, shapes)
    is_ufunc = isinstance(function, (np.ufunc, Rounded)) and is_element_wise(function)
    if is_ufunc or isinstance(function, FusedElements):
        return _of_elements(task, shapes)
    if function in (np.where, np.copyto, operator.setitem):
        return _of_elements(task, shapes)
    return None


def _of_elements(task: Task, shapes: Shapes) -> CutRule | None:
    """Element by element: dims are those of the result, counted from the last."""
    slots: list[tuple[Slot, Any]] = [*enumerate(task.args)]
    written: Slot | None = None
    if task.function is operator.setitem:
        if task.args[1] is not Ellipsis:
            return None
        slots = [slots[0], slots[2]]
    if task.kind is TaskKind.WRITE:
        written = "out" if isinstance(task.function, (np.ufunc, Rounded)) else 0
    if any(refs_in(one) and name != written for name, one in task.options.items()):
        return None
    if written == "out":
        slots.append(("out", task.options.get("out")))
    for _, one in slots:
        if not isinstance(one, Ref) and (refs_in(one) or np.ndim(one)):
            return None
    target = task.out if written is None else dict(slots)[written]
    number = target.number if isinstance(target, Ref) else target
    if number is None or number not in shapes:
        return None
    shape = shapes[number]
    found = [(slot, one.number) for slot, one in slots if isinstance(one, Ref)]
    if any(n not in shapes or len(shapes[n]) > len(shape) for _, n in found):
        return None
    operands = tuple((slot, _from_last(shapes[n], shape)) for slot, n in found)
    return CutRule(operands, tuple(range(len(shape))), written)


def _from_last(shape: tuple[int, ...], whole: tuple[int, ...]) -> Labels:
    """The labels of an operand that broadcasts to a shape whose dims are its labels."""
    first = len(whole) - len(shape)
    return tuple(label if n == whole[label] else None for label, n in enumerate(shape, first))


def _of_product(task: Task, shapes: Shapes) -> CutRule | None:
    """A product of matrices or vectors, without stacks of them."""
    if not all(isinstance(one, Ref) for one in task.args[:2]):
        return None
    a, b = (len(shapes.get(one.number, (0,) * 9)) for one in task.args[:2])
    if not (1 <= a <= 2 and 1 <= b <= 2) or len(task.args) != 2:
        return None
    left, right = (0, 1)[2 - a :], (1, 2)[:b]
    kept = (*left[:-1], *right[1:])
    return _with_out(task, CutRule(((0, left), (1, right)), kept, joined_by=np.add))


def _with_out(task: Task, rule: CutRule) -> CutRule | None:
    """The rule of a function that makes its result, or writes it to ``out``."""
    if task.kind is TaskKind.PURE:
        return None if refs_in(task.options) else rule
    others = [one for name, one in task.options.items() if name != "out"]
    if refs_in(others) or not isinstance(task.options.get("out"), Ref):
        return None
    return replace(rule, operands=(*rule.operands, ("out", rule.kept)), written="out")


def _of_einsum(task: Task) -> CutRule | None:
    """NumPy's einsum with lists of labels."""
    args = task.args
    if len(args) % 2 == 0:
        return None
    terms = [*zip(args[:-1:2], args[1:-1:2], strict=True)]
    if not all(isinstance(one, Ref) and isinstance(of, (list, tuple)) for one, of in terms):
        return None
    if Ellipsis in args[-1] or any(Ellipsis in of or len(set(of)) < len(of) for _, of in terms):
        return None
    operands = tuple((2 * n, tuple(of)) for n, (_, of) in enumerate(terms))
    return _with_out(task, CutRule(operands, tuple(args[-1]), joined_by=np.add))


def _of_reduction(task: Task, shapes: Shapes) -> CutRule | None:
    """A sum, a largest element and the like along some dims; positions of them only along the others."""
    if len(task.args) != 1 or not isinstance(task.args[0], Ref):
        return None
    if task.options.keys() - {"axis", "dtype", "keepdims", "out"}:
        return None
    labels = tuple(range(len(shapes.get(task.args[0].number, ()))))
    axis = task.options.get("axis")
    if not labels or not isinstance(axis, (int, tuple)):
        return None
    gone = {dim % len(labels) for dim in (axis if isinstance(axis, tuple) else (axis,))}
    kept: Labels = tuple(label for label in labels if label not in gone)
    if task.options.get("keepdims"):
        kept = tuple(None if label in gone else label for label in labels)
    if task.function in COMBINING:
        rule = CutRule(((0, labels),), kept, joined_by=COMBINING[task.function])
    else:
        rule = CutRule(((0, labels),), kept, fixed=frozenset(gone))
    return _with_out(task, rule)


def _of_lines(task: Task, shapes: Shapes) -> CutRule | None:
    """A sort or a running sum: along its own dim all of a line is needed."""
    number = task.args[0].number if task.args and isinstance(task.args[0], Ref) else -1
    if number not in shapes:
        return None
    labels = tuple(range(len(shapes[number])))
    if task.function is sort_lines:
        return CutRule(((0, labels),), labels, 0, frozenset({task.args[1] % len(labels)}))
    axis = task.options.get("axis")
    if len(task.args) > 1 or not isinstance(axis, int):
        return None
    return _with_out(task, CutRule(((0, labels),), labels, fixed=frozenset({axis % len(labels)})))


def _of_fill(task: Task, shapes: Shapes) -> CutRule | None:
    """Values made from indices: the second operand says which."""
    if task.kind is not TaskKind.WRITE or not isinstance(task.args[0], Ref):
        return None
    labels = tuple(range(len(shapes.get(task.args[0].number, ()))))

    def within(whole: Task, box: LabelRanges) -> Task:
        tile, given, *rest = whole.args
        inner = tuple(
            (low + box[dim][0], low + box[dim][1]) if dim in box else (low, high)
            for dim, (low, high) in enumerate(given)
        )
        return replace(whole, args=(tile, inner, *rest))

    return CutRule(((0, labels),), labels, 0, within=within)


def _of_ein(task: Task, kernel: EinKernel) -> CutRule | None:
    """An extended Einstein sum: it has labels of its own."""
    if not all(isinstance(one, Ref) for one in task.args) or task.kind is not TaskKind.WRITE:
        return None
    operands = tuple(enumerate((kernel.kept, *kernel.labels)))

    def adds(whole: Task) -> Task:
        return replace(whole, function=replace(kernel, adds=True))

    return CutRule(operands, kernel.kept, 0, adds=adds)


def _of_join(task: Task, join: BlockedJoin, shapes: Shapes) -> CutRule | None:
    """A join and its reduction: cut along what the result keeps."""
    if any(n not in shapes for n in refs_in(task.args)):
        return None
    dims = join.aggregation.dims
    every = range(len(join.shape))
    operands = tuple(
        (slot, _from_last(shapes[one.number], join.shape)) for slot, one in enumerate(task.args)
    )
    kept: Labels = tuple(label for label in every if label not in dims)
    if join.keepdims:
        kept = tuple(None if label in dims else label for label in every)

    def within(whole: Task, box: LabelRanges) -> Task:
        shape = tuple(
            box[dim][1] - box[dim][0] if dim in box else n for dim, n in enumerate(join.shape)
        )
        return replace(whole, function=replace(join, shape=shape))

    return CutRule(operands, kept, fixed=frozenset(dims), within=within)
