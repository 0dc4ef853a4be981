"""Ways to do an operation on factors of a mesh: each cuts a label or none, or operands stay pending."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.domain import NOWHERE, PENDING, TypeDomain, places_of
from redist.arrange.ein_graph import ADDING, SCALING, AskedNode, EinNode, WayTaken
from redist.arrange.price_book import PriceBook
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints
from redist.plan.rates import DeviceCosts
from redist.text.units import ceil_div

# The ways to do a node of a program: by its rule, or by asking for every choice of types of its operands.


MOST_ASKED = 256
"""An operation without a rule is asked for this many choices of types, beside one for every type of its
largest operand."""


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The ways to do a node: numbers of the types of its operands and results, and the time each takes."""

    operands: tuple[Ints, ...]
    results: tuple[Ints, ...]
    times: Costs

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What an operation without a rule said: types of its operands, what it makes of them, how long."""

    asked: tuple[tuple[ArrayType, ...], ...]
    answers: tuple[WayTaken, ...]

    def answer_to(self, types: tuple[ArrayType, ...]) -> WayTaken:
        """What it does with operands of some types that it was asked for."""
        return self.answers[self.asked.index(types)]

    def types_of(self, result: int) -> list[ArrayType]:
        """All types in which it makes one of its results."""
        return list(dict.fromkeys(answer.made[result] for answer in self.answers))

    def pending_op(self, result: int) -> str | None:
        """How partial values of a result are combined, if it makes any."""
        ops = [t.pending_op for t in self.types_of(result) if t.pending_op is not None]
        return ops[0] if ops else None

    def ways(
        self, operands: Sequence[TypeDomain], results: Sequence[TypeDomain], book: PriceBook
    ) -> Ways:
        """Those whose types are all among these, and whose moves have a price."""
        rows: list[tuple[list[int], int]] = []
        for asked, answer in zip(self.asked, self.answers, strict=True):
            wanted = [domain.find(t) for domain, t in zip(operands, asked, strict=True)]
            made = [domain.find(t) for domain, t in zip(results, answer.made, strict=True)]
            numbers = [n for n in (*wanted, *made) if n is not None]
            time = answer.time_ps + sum(book.price(*move) for move in answer.moves)
            if len(numbers) == len(wanted) + len(made) and time < FORBIDDEN:
                rows.append((numbers, time))
        if not rows:
            raise RequestError(
                "cannot plan an operation: none of the types that it was asked for fits"
            )
        table = np.array([numbers for numbers, _ in rows], dtype=np.int64)
        n = len(operands)
        columns = [np.ascontiguousarray(table[:, k]) for k in range(table.shape[1])]
        times = np.array([time for _, time in rows], dtype=np.int64)
        return Ways(tuple(columns[:n]), tuple(columns[n:]), times)


def ask(node: AskedNode, operands: Sequence[TypeDomain], parts: Sequence[SubAxis]) -> Answered:
    """Ask an operation what it makes of its operands, for all types that are worth it."""
    asked, answers = [], []
    for types in node.only or _choices(operands):
        answer = node.ask(types)
        if answer is not None and all(places_of(t, parts) is not None for t in answer.made):
            asked.append(types)
            answers.append(answer)
    return Answered(tuple(asked), tuple(answers))


def _choices(operands: Sequence[TypeDomain]) -> Iterable[tuple[ArrayType, ...]]:
    """All types of all operands together if they are few; else all of the largest, the others cut alike."""
    n_all = 1
    for domain in operands:
        n_all *= len(domain)
    if n_all <= MOST_ASKED:
        return itertools.product(*([d.type(n) for n in range(len(d))] for d in operands))
    return _led_by_largest(operands)


def _led_by_largest(operands: Sequence[TypeDomain]) -> Iterator[tuple[ArrayType, ...]]:
    sizes = [int(domain.tile_bytes().max()) for domain in operands]
    lead = sizes.index(max(sizes))
    for number in range(len(operands[lead])):
        row = operands[lead].places[number]
        alike, whole = [], []
        for k, domain in enumerate(operands):
            none = domain.numbers(np.full((1, len(row)), NOWHERE))[0]
            same = domain.numbers(np.minimum(row, len(domain.shape) - 1)[None])[0]
            fits = domain.shape == operands[lead].shape and same >= 0
            alike.append(domain.type(number if k == lead else int(same if fits else none)))
            whole.append(domain.type(number if k == lead else int(none)))
        yield tuple(alike)
        if whole != alike:
            yield tuple(whole)


MOST_WAYS = 4096


def kind_of(node: EinNode) -> str:
    """The class of an operation.

    >>> sizes = {"i": 4, "j": 4}
    >>> [kind_of(EinNode(*args)) for args in (("ij,j->i", (~0, ~1), sizes), ("ij->j", (~0,), sizes))]
    ['product', 'reduce']
    """
    if node.aggregated:
        is_summed = node.join in ("multiply", "product") and node.agg == "sum"
        is_product = is_summed and len(node.operands) > 1
        return "product" if is_product else "reduce"
    return "copy" if node.join == "copy" and len(node.operands) == 1 else "map"


def rate_of(node: EinNode) -> tuple[str, str]:
    """The class of an operation and the name of the dtype by which it is priced."""
    return kind_of(node), (node.worked_in or node.dtype).name


def compute_ps(work: Ints, n_bytes: Ints, elem_fs: int, byte_fs: int) -> Costs:
    """What computing takes: the longer of the busiest device's elements and of the bytes that it touches."""
    return np.maximum(_ps(work, elem_fs), _ps(n_bytes, byte_fs))


def _ps(counts: Ints, fs: int) -> Costs:
    """Picoseconds of so many that take this long each; cut back where they would overflow."""
    some = np.minimum(counts, min(FORBIDDEN // max(1, fs) * 1000, 2**62))
    return some // 1000 * fs + ceil_div(some % 1000 * fs, 1000)


def list_ways(
    node: EinNode, operands: Sequence[TypeDomain], result: TypeDomain, device: DeviceCosts
) -> Ways:
    """All ways to do a node whose types are among those of its operands and of its result.

    Each takes as long as the busiest device: elements of the join, and bytes of the tiles that it reads and
    writes.
    """
    n_factors, labels = len(result.parts), node.labels
    kept_pending = _pending_operands(node, operands)
    choices = (*range(NOWHERE - len(kept_pending), 0), *range(len(labels)))
    if len(choices) ** n_factors > 2**22:
        raise RequestError(f"cannot list the ways to do {node.notation!r} over {n_factors} factors")
    rows = np.array(list(itertools.product(choices, repeat=n_factors)), dtype=np.int64)
    rows = rows.reshape(len(rows), n_factors)
    wanted = [
        domain.numbers(_operand_places(rows, labels, term, place, kept_pending))
        for place, (term, domain) in enumerate(zip(node.terms, operands, strict=True))
    ]
    made = result.numbers(_result_places(rows, node, kept_pending))
    good = made >= 0
    for numbers in wanted:
        good &= numbers >= 0
    cuts, sizes = _cuts(rows, labels, result), node.sizes
    for at, label in enumerate(labels):
        good &= cuts[:, at] <= max(1, sizes[label])
    chosen = np.flatnonzero(good)
    if not len(chosen):
        raise RequestError(f"cannot do {node.notation!r} on these factors: no way fits")
    if len(chosen) > MOST_WAYS:
        raise RequestError(f"cannot plan {len(chosen)} ways to do {node.notation!r}: join factors")
    cuts = cuts[chosen]
    work = np.ones(len(chosen), dtype=np.int64)
    for at, label in enumerate(labels):
        work *= ceil_div(np.full_like(work, sizes[label]), cuts[:, at])
    asked = tuple(one[chosen] for one in wanted)
    n_bytes = result.tile_bytes()[made[chosen]]
    for domain, own in zip(operands, asked, strict=True):
        n_bytes = n_bytes + domain.tile_bytes()[own]
    times = compute_ps(work, n_bytes, device.of(*rate_of(node)), device.byte_fs)
    return Ways(asked, (made[chosen],), times)


def _pending_operands(node: EinNode, operands: Sequence[TypeDomain]) -> list[tuple[int, ...]]:
    """Which operands may stay pending on a factor, together: the join, and the sum after it, are linear."""
    if node.agg != "sum" or any(domain.op not in ("sum", None) for domain in operands):
        return []
    able = [place for place, domain in enumerate(operands) if domain.op == "sum"]
    if node.join in ADDING:
        return [tuple(able)] if len(able) == len(operands) else []
    return [(place,) for place in able] if node.join in SCALING else []


def _operand_places(
    rows: Ints, labels: str, term: str, place: int, kept_pending: Sequence[tuple[int, ...]]
) -> Ints:
    """Where factors are in an operand: on the dim of their label, or nowhere."""
    dim_of = np.array([term.find(label) for label in labels] or [NOWHERE], dtype=np.int64)
    out = np.where(rows >= 0, dim_of[np.maximum(rows, 0)], NOWHERE)
    for number, together in enumerate(kept_pending):
        if place in together:
            out = np.where(rows == NOWHERE - 1 - number, PENDING, out)
    return out


def _result_places(rows: Ints, node: EinNode, kept_pending: Sequence[tuple[int, ...]]) -> Ints:
    """Where factors are in the result; those on labels that are aggregated are pending."""
    dim_of = np.array([node.kept.find(label) for label in node.labels] or [NOWHERE], dtype=np.int64)
    dim_of = np.where(dim_of < 0, PENDING, dim_of)
    out = np.where(rows >= 0, dim_of[np.maximum(rows, 0)], NOWHERE)
    return np.where(rows < NOWHERE, PENDING, out)


def _cuts(rows: Ints, labels: str, domain: TypeDomain) -> Ints:
    """Into how many parts every label is cut."""
    sizes = np.array([part.size for part in domain.parts], dtype=np.int64)
    columns = [np.where(rows == at, sizes, 1).prod(axis=1) for at in range(len(labels))]
    return np.stack(columns, axis=1) if columns else np.ones((len(rows), 0), dtype=np.int64)


def least_time_ps(node: EinNode, n_devices: int, device: DeviceCosts) -> int:
    """What a node takes at least, however it is cut: the work shared by all devices."""
    elems = math.prod(node.sizes[label] for label in node.labels)
    return ceil_div(elems * device.of(*rate_of(node)), 1000 * n_devices)
