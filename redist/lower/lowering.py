"""Turn the steps of a plan into calls that every device makes alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, whole
from redist.layout.dtype import DType
from redist.lower.calls import (
    Arrange,
    Axes,
    Call,
    Calls,
    Collect,
    CombineAll,
    Digit,
    Digits,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
    find_digits,
)
from redist.plan.pieces import Piece, Shape, list_pieces
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.rules import resolved_axes
from redist.plan.steps import AllReduce, Step
from redist.plan.topology import Topology

# Small words that the texts of programs share: sizes, identities of reductions.


def arguments(sizes: Sequence[int]) -> str:
    """Sizes as arguments of a call.

    >>> arguments((2, 3)), arguments(())
    ('2, 3', '()')
    """
    return ", ".join(map(str, sizes)) if sizes else "()"


def size_of(axes: Axes) -> int:
    """Members of a group over some axes."""
    return math.prod(axis.size for axis in axes)


def identity_text(op: str, dtype: DType) -> str:
    """The value that changes nothing when it is combined, as text.

    >>> identity_text("max", DType.parse("i8")), identity_text("min", DType.parse("f32"))
    ('-128', 'np.inf')
    """
    match op, dtype.to_numpy().kind:
        case "sum", _:
            return "0"
        case "prod", _:
            return "1"
        case _, "b":
            return str(op == "min")
        case _, "f":
            return "-np.inf" if op == "max" else "np.inf"
        case _:
            info = np.iinfo(dtype.to_numpy().name)
            return str(info.min if op == "max" else info.max)


# Set pieces of a step in rows: in a row every device sends one and gets one at most.


def in_rows(pieces: Iterable[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """Divide pieces into rows in which all have one shape, and no device sends or gets twice.

    What is combined later stands in a later row.
    """
    rows: list[_Row] = []
    for one in sorted(pieces, key=_place):
        row = next((row for row in rows if row.takes(one)), None)
        if row is None:
            row = _Row(one.shape, one.order)
            rows.append(row)
        row.add(one)
    return tuple(tuple(row.pieces) for row in rows)


@dataclass(slots=True)
class _Row:
    shape: Shape
    order: int
    senders: set[int] = field(default_factory=set)
    receivers: set[int] = field(default_factory=set)
    pieces: list[Piece] = field(default_factory=list)

    def takes(self, one: Piece) -> bool:
        """Whether a piece has room beside the others."""
        is_alike = (one.shape, one.order) == (self.shape, self.order)
        return is_alike and one.sender not in self.senders and one.receiver not in self.receivers

    def add(self, one: Piece) -> None:
        self.senders.add(one.sender)
        self.receivers.add(one.receiver)
        self.pieces.append(one)


def _place(one: Piece) -> tuple[int, int, int]:
    """Neighbours at the same distance come together, so that rows are full."""
    return one.order, one.sender ^ one.receiver, one.sender


def lower_plan(plan: Plan, topology: Topology = FLAT) -> tuple[Calls, ...]:
    """The calls of a plan on one mesh, in as few runs of steps as share the digits of their dims.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
    >>> (run,) = lower_plan(plan)
    >>> for call in run.calls:
    ...     print(call)
    Arrange(shape=(2, 4, 2), order=(1, 0, 2))
    Swap(axes=(SubAxis(name='x', pre=1, size=4),), shape=(4, 2, 2))

    ``topology`` says which of several replicas sends; give the one that the plan was made for.
    """
    types, out = plan.types, []
    for start, end, digits in runs_of(plan):
        run_types, steps = types[start : end + 1], plan.steps[start:end]
        if digits is None:
            mesh = types[start].mesh
            atoms = tuple(whole(mesh, name) for name, size in mesh.axes if size > 1)
            permute = permute_of(steps[0], types[start], topology)
            out.append(Calls(types[start], types[end], atoms, (permute,), (1,)))
        else:
            out.append(lower_run(run_types, steps, digits, topology))
    return tuple(out)


def runs_of(plan: Plan) -> Iterator[tuple[int, int, Digits | None]]:
    """First step, end and digits of every run of steps that share digits; None for one that has none."""
    types, start = plan.types, 0
    while start < len(plan.steps):
        end, digits = start + 1, find_digits(types[start : start + 2])
        while digits is not None and end < len(plan.steps):
            more = find_digits(types[start : end + 2])
            if more is None:
                break
            end, digits = end + 1, more
        yield start, end, digits
        start = end


def lower_run(
    types: Sequence[ArrayType], steps: Sequence[Step], digits: Digits, topology: Topology = FLAT
) -> Calls:
    """The calls of steps that share digits; tiles are in their own order before and after."""
    run = _Run(digits, digits.in_tile(0))
    ends = []
    for number, step in enumerate(steps):
        if not run.step(number, types[number + 1].pending_op or types[number].pending_op):
            run.arrange(digits.in_tile(number))
            run.calls.append(permute_of(step, types[number], topology))
            run.now = digits.in_tile(number + 1)
        ends.append(len(run.calls))
    run.arrange(digits.in_tile(len(steps)))
    ends[-1] = len(run.calls)
    return Calls(types[0], types[-1], digits.atoms, tuple(run.calls), tuple(ends))


def permute_of(step: Step, before: ArrayType, topology: Topology) -> Permute:
    """Any step as boxes that change hands."""
    assert not isinstance(step.action, AllReduce), "an all_reduce is a plain collective"
    pieces, _ = list_pieces(step.action, before, step.after, topology)
    op = before.pending_op or step.after.pending_op
    is_partial = bool(resolved_axes(before, step.after))
    fills = step.after.pending_op is not None or is_partial
    shapes = before.tile_shape, step.after.tile_shape
    return Permute(*shapes, in_rows(pieces), op if fills else None)


@dataclass(slots=True)
class _Run:
    """The calls so far, and the digits of the tile in the order in which they lie now."""

    digits: Digits
    now: tuple[Digit, ...]
    calls: list[Call] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile now, with a dim for every digit."""
        return tuple(digit.size for digit in self.now)

    def step(self, number: int, op: str | None) -> bool:
        """Add the calls of a step; False if it is not a plain collective."""
        before, after = self.digits.types[number : number + 2]
        gained = {a: d for d, a in before.atom_of.items() if d not in after.atom_of}
        lost = {a: d for d, a in after.atom_of.items() if d not in before.atom_of}
        if any(after.atom_of.get(d, a) != a for d, a in before.atom_of.items()):
            return False
        resolved = set(before.pending) - set(after.pending)
        added = set(after.pending) - set(before.pending)
        if added and (resolved or set(lost) & set(gained) or set(gained) - added):
            return False  # of what becomes pending, not all devices need the values
        name = op or ""

        def chosen(atoms: set[SubAxis]) -> Axes:
            return tuple(a for a in self.digits.atoms if a in atoms)

        selects = chosen(set(lost) - set(gained) - resolved)
        if selects:
            self._select(selects, [lost[a] for a in selects])
        scatters = chosen(set(lost) & resolved)
        if scatters:
            self._lead([lost[a] for a in scatters])
            self._call(Scatter(scatters, self.shape, name), len(scatters), ())
        combines = chosen(resolved - set(lost))
        if combines:
            self.calls.append(CombineAll(combines, name))
        swaps = chosen(set(lost) & set(gained))
        if swaps:
            self._lead([lost[a] for a in swaps])
            self._call(Swap(swaps, self.shape), len(swaps), [gained[a] for a in swaps])
        collects = chosen(set(gained) - set(lost) - added)
        if collects:
            self._call(Collect(collects, self.shape), 0, [gained[a] for a in collects])
        embeds = chosen(set(gained) & added)
        if embeds:
            self._call(Embed(embeds, self.shape, name), 0, [gained[a] for a in embeds])
        keeps = chosen(added - set(gained))
        if keeps:
            self.calls.append(Keep(keeps, name))
        return True

    def _select(self, axes: Axes, gone: Sequence[Digit]) -> None:
        """Drop digits, wherever they lie."""
        at = tuple(self.now.index(digit) for digit in gone)
        self.calls.append(Select(axes, self.shape, at))
        self.now = tuple(digit for digit in self.now if digit not in gone)

    def _lead(self, first: Sequence[Digit]) -> None:
        """Bring some digits to the front."""
        self.arrange((*first, *(d for d in self.now if d not in first)))

    def _call(self, call: Call, taken: int, made: Sequence[Digit]) -> None:
        """Make a call that takes this many leading digits away and puts others there."""
        self.calls.append(call)
        self.now = (*made, *self.now[taken:])

    def arrange(self, wanted: tuple[Digit, ...]) -> None:
        """Put the digits into another order."""
        if wanted == self.now:
            return
        place = {digit: k for k, digit in enumerate(self.now)}
        self.calls.append(Arrange(self.shape, tuple(place[digit] for digit in wanted)))
        self.now = wanted
