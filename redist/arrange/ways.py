"""The ways to do a node of a program: by its rule, or by asking for every choice of types of its operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.domain import NOWHERE, TypeDomain, places_of
from redist.arrange.ein_graph import AskedNode, WayTaken
from redist.arrange.price_book import PriceBook
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints

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
