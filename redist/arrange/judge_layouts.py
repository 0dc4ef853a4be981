"""Judge planned layouts: types must follow from each other as operations say, and figures are recounted.

This looks at types alone, and is independent of the search that chose them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from redist.arrange.ein_graph import ADDING, SCALING, AskedNode, EinNode
from redist.arrange.layout_plan import LayoutPlan, PlannedMove
from redist.errors import CheckError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.plan.rates import DeviceCosts

Price = Callable[[ArrayType, ArrayType], int]


def judge_layouts(plan: LayoutPlan, device: DeviceCosts, price: Price | None = None) -> None:
    """**Local.** Raise if types do not fit together, a move is missing, or a figure is not what it should be.

    ``price`` says what a move costs; without it, the prices of moves are taken as given.
    """
    work = 0
    n_made = 0
    by_value: dict[int | None, list[PlannedMove]] = {}
    for move in plan.moves:
        by_value.setdefault(move.value, []).append(move)
    for number, node in enumerate(plan.graph.nodes):
        wanted, made = plan.wanted[number], plan.made[n_made : n_made + len(node.results)]
        n_made += len(node.results)
        for t, value in zip(wanted, node.operands, strict=True):
            _must(t.shape == plan.graph.shape_of(value), number, "a wrong shape")
            moves = by_value.get(value, ())
            _must(
                _comes_from(plan, moves, value, number, t),
                number,
                f"operand {value} never becomes {t}",
            )
        if isinstance(node, AskedNode):
            work += _ask_again(plan, number, node, wanted, made)
        else:
            _judge_node(number, node, wanted, made[0])
            work += node_time_ps(node, wanted, made[0], device)
    moved = sum(move.time_ps for move in (*plan.moves, *plan.inner))
    _must(work == plan.work_ps, None, f"work of {work} ps, not {plan.work_ps}")
    total = work + moved + plan.later_ps
    _must(total == plan.time_ps, None, f"{total} ps, not {plan.time_ps}")
    _must(plan.bound_ps <= plan.time_ps, None, "a bound beyond the plan")
    peak = _peak_bytes(plan)
    _must(peak == plan.peak_bytes, None, f"{peak} bytes at once, not {plan.peak_bytes}")
    for move in (*plan.moves, *plan.inner):
        if price is not None:
            again = price(move.source, move.target)
            _must(again == move.time_ps, move.reader, f"a move of {again} ps, not {move.time_ps}")


def _must(good: bool, number: int | None, what: str) -> None:
    if not good:
        raise CheckError(number, what)


def _ask_again(
    plan: LayoutPlan,
    number: int,
    node: AskedNode,
    wanted: tuple[ArrayType, ...],
    made: tuple[ArrayType, ...],
) -> int:
    """What a node without a rule takes, if it makes of its operands what the plan says."""
    _must(not node.only or wanted in node.only, number, "types that it must not be asked for")
    answer = node.ask(wanted)
    _must(answer is not None and answer.made == made, number, f"it does not make {made}")
    assert answer is not None
    own = tuple((move.source, move.target) for move in plan.inner if move.reader == number)
    _must(answer.moves == own, number, "it moves other things by itself")
    return answer.time_ps


def _comes_from(
    plan: LayoutPlan, moves: Sequence[PlannedMove], value: int, reader: int, t: ArrayType
) -> bool:
    """Whether a reader finds a value in a type: as it was made, in its home, or after one of its moves."""
    here = plan.made[value] if value >= 0 else plan.inputs[~value]
    for move in moves:
        if move.reader is None and move.source == here:
            here = move.target
    for move in moves:
        if move.reader == reader and move.target == t:
            return move.source == here
    return here == t


def _judge_node(number: int, node: EinNode, wanted: tuple[ArrayType, ...], made: ArrayType) -> None:
    """One axis cuts one label, in all operands that have it and in the result; or else it is pending."""
    cuts: dict[str, tuple[SubAxis, ...]] = {}
    for term, t in zip(node.terms, wanted, strict=True):
        for label, axes in zip(term, t.dims, strict=True):
            known = cuts.setdefault(label, axes)
            _must(known == axes, number, f"{label} is cut in two ways")
    for label, axes in zip(node.kept, made.dims, strict=True):
        _must(cuts.get(label, ()) == axes, number, f"{label} of the result is cut otherwise")
    pieces = _pieces(number, (*wanted, made))
    used = [piece for axes in cuts.values() for piece in pieces(axes)]
    _must(len(set(used)) == len(used), number, "an axis cuts two labels")
    lost = {
        piece for label, axes in cuts.items() if label not in node.kept for piece in pieces(axes)
    }
    partial = [set(pieces(t.pending_axes)) for t in wanted]
    stays = set().union(*partial)
    _must(not stays & set(used), number, "a pending axis cuts a label")
    if stays:
        _must(node.agg == "sum", number, "partial values are not combined by a sum")
        _must(
            all(t.pending_op in (None, "sum") for t in wanted),
            number,
            "other partial values than sums",
        )
        if node.join in ADDING:
            _must(all(own == stays for own in partial), number, "added to what is not partial")
        else:
            _must(node.join in SCALING, number, f"{node.join} is not linear")
            several = sum(map(len, partial)) != len(stays)
            _must(not several, number, "partial values are multiplied with each other")
    pending = set(pieces(made.pending_axes))
    _must(pending == lost | stays, number, "other axes are pending in the result")
    if made.pending_op is not None:
        _must(made.pending_op == node.agg, number, f"pending {made.pending_op}, not {node.agg}")


def _pieces(
    number: int, types: Sequence[ArrayType]
) -> Callable[[Sequence[SubAxis]], list[SubAxis]]:
    """A function that says of which pieces some parts of axes are made.

    An axis is cut wherever one of these types begins or ends a part of it: so ``y`` is the same as ``y:(1)2``
    and ``y:(2)2`` together, wherever each of them stands.
    """
    parts = [axis for t in types for axes in (*t.dims, t.pending_axes) for axis in axes]
    edges: dict[str, set[int]] = {}
    for part in parts:
        edges.setdefault(part.name, set()).update((part.pre, part.end))
    fine: list[SubAxis] = []
    for name, several in edges.items():
        for low, high in itertools.pairwise(sorted(several)):
            _must(high % low == 0, number, f"axis {name} is cut in two ways")
            fine.append(SubAxis(name, low, high // low))

    def pieces(axes: Sequence[SubAxis]) -> list[SubAxis]:
        return [piece for axis in axes for piece in fine if piece.inside(axis)]

    return pieces


def _peak_bytes(plan: LayoutPlan) -> int:
    """The most bytes at once: nodes are done one after another, tiles come and go."""
    graph, n_nodes, value = plan.graph, len(plan.graph.nodes), 0
    last = dict.fromkeys(range(len(plan.made)), n_nodes)
    for number, node in enumerate(graph.nodes):
        last |= dict.fromkeys(node.operands, number)
    copied, homes = dict.fromkeys(range(n_nodes), 0), dict[int | None, int]()
    for move in plan.moves:
        if move.reader is None:
            homes[move.value] = move.target.tile_bytes
        elif move.reader < n_nodes:
            copied[move.reader] += move.target.tile_bytes
    resting = {~k: t.tile_bytes for k, t in enumerate(plan.inputs)}
    last |= dict.fromkeys(resting, n_nodes)
    peak = 0
    for number, node in enumerate(graph.nodes):
        own = range(value, value + len(node.results))
        value += len(node.results)
        made = {one: plan.made[one].tile_bytes for one in own}
        moved = [homes[one] for one in own if one in homes]
        peak = max(peak, sum([*resting.values(), copied[number], *made.values(), *moved]))
        resting |= {one: homes.get(one, n) for one, n in made.items()}
        resting = {one: n for one, n in resting.items() if last[one] > number}
    return peak


def node_time_ps(
    node: EinNode, wanted: tuple[ArrayType, ...], made: ArrayType, device: DeviceCosts
) -> int:
    """What a node takes on the busiest device, from its tiles."""
    parts = dict.fromkeys(node.labels, 1)
    for term, t in zip(node.terms, wanted, strict=True):
        for label, axes in zip(term, t.dims, strict=True):
            parts[label] = math.prod(axis.size for axis in axes)
    elems = math.prod(-(-node.sizes[label] // n) for label, n in parts.items())
    n_bytes = made.tile_bytes + sum(t.tile_bytes for t in wanted)
    return -(-max(elems * _elem_fs(node, device), n_bytes * device.byte_fs) // 1000)


def _elem_fs(node: EinNode, device: DeviceCosts) -> int:
    """What an element of a node costs, by what is done with it and its dtype."""
    lost = {one for one in set("".join(node.terms)) - set(node.kept) if node.sizes[one] > 1}
    is_product = node.join in ("multiply", "product") and node.agg == "sum"
    if lost and is_product and "," in node.notation:
        kind = "product"
    elif lost:
        kind = "reduce"
    elif node.join == "copy" and "," not in node.notation:
        kind = "copy"
    else:
        kind = "map"
    known = {(one.kind, one.dtype): one.elem_fs for one in device.operations}
    return known.get((kind, (node.worked_in or node.dtype).name), device.elem_fs)
