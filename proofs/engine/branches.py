"""Run the program's own functions on symbols: every way through their branches.

A symbol adds, multiplies and divides like an int and records the formula. Where code asks whether a
comparison of symbols is true, be it in an ``if``, a ``min`` or a ``while``, it is run once for each
answer, and the answers taken are the condition of that path. So what is proved is the code that runs,
not a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import z3

from proofs.engine.theorem import Obligation

MOST_BRANCHES = 100
"""On one way through a function; what has more is a loop, and wants an induction."""


@dataclass(slots=True)
class _Run:
    """One run: answers given in advance, conditions met, and what must hold besides."""

    answers: list[bool]
    conditions: list[Any] = field(default_factory=list)
    needs: dict[Any, Any] = field(default_factory=dict)
    known: dict[Any, bool] = field(default_factory=dict)

    def ask(self, condition: Any) -> bool:
        if condition in self.known:
            return self.known[condition]
        at = len(self.conditions)
        if at == MOST_BRANCHES:
            raise RuntimeError(f"more than {MOST_BRANCHES} branches: a loop on symbols has no end")
        if at == len(self.answers):
            self.answers.append(True)
        self.conditions.append(condition if self.answers[at] else z3.Not(condition))
        self.known[condition] = self.answers[at]
        return self.answers[at]

    def need(self, fact: Any) -> None:
        if fact not in self.needs:
            self.needs[fact] = self.implies(fact)

    def implies(self, claim: Any) -> Any:
        return z3.Implies(z3.And(*self.conditions), claim)


_RUN: ContextVar[_Run] = ContextVar("run")


class Truth:
    """A comparison of symbols; asking for its truth takes a branch."""

    __slots__ = ("term",)

    def __init__(self, term: Any) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return _RUN.get().ask(self.term)


class Symbol:
    """An integer symbol, or a formula of some, that Python code can compute with.

    ``//`` is Python's, rounded down; that the divisor is positive becomes part of the claim.
    """

    __slots__ = ("term",)
    __hash__ = object.__hash__

    def __init__(self, term: Any) -> None:
        self.term = term

    def __add__(self, other: Any) -> Symbol:
        return Symbol(self.term + term(other))

    def __sub__(self, other: Any) -> Symbol:
        return Symbol(self.term - term(other))

    def __rsub__(self, other: Any) -> Symbol:
        return Symbol(term(other) - self.term)

    def __mul__(self, other: Any) -> Symbol:
        return Symbol(self.term * term(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Symbol:
        return Symbol(-self.term)

    def __floordiv__(self, other: Any) -> Symbol:
        return Symbol(self.term / _divisor(other))

    def __rfloordiv__(self, other: int) -> Symbol:
        return Symbol(z3.IntVal(other) / _divisor(self))

    def __mod__(self, other: Any) -> Symbol:
        return Symbol(self.term % _divisor(other))

    def __rmod__(self, other: int) -> Symbol:
        return Symbol(z3.IntVal(other) % _divisor(self))

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.term < term(other))

    def __le__(self, other: Any) -> Truth:
        return Truth(self.term <= term(other))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.term > term(other))

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.term >= term(other))

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term == term(other))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term != term(other))

    def __bool__(self) -> bool:
        return bool(self != 0)


def term(value: Any) -> Any:
    """The formula of a symbol or of a comparison; anything else as it is."""
    return value.term if isinstance(value, (Symbol, Truth)) else value


def symbols(names: str) -> Any:
    """Symbols by name, to be used for ints: ``n, k = symbols("n k")``."""
    return tuple(Symbol(z3.Int(name)) for name in names.split())


def _divisor(value: Any) -> Any:
    divisor = term(value)
    if not isinstance(divisor, int) or divisor <= 0:
        _RUN.get().need(divisor > 0)
    return divisor


def ways(function: Callable[[], Any]) -> Iterator[tuple[_Run, Any]]:
    """Every way through a function, with its result; ``False`` where it fails.

    Not every way is possible: which answers go together only the solver knows.

    >>> n, k = symbols("n k")
    >>> [(run.conditions, result.term) for run, result in ways(lambda: min(n, k))]
    [([k < n], k), ([Not(k < n)], n)]
    """
    answers: list[bool] = []
    while True:
        run = _Run(answers)
        token = _RUN.set(run)
        try:
            result = function()
        except (IndexError, AssertionError):
            result = False
        finally:
            _RUN.reset(token)
        yield run, result
        while answers and not answers[-1]:
            answers.pop()
        if not answers:
            return
        answers[-1] = False


def always(claim: Callable[[], Any]) -> Any:
    """That what a function returns, a fact or several, is true whichever way it goes.

    >>> n, k = symbols("n k")
    >>> z3.prove(always(lambda: min(n, k) <= n))
    proved
    """
    out: list[Any] = []
    for run, result in ways(claim):
        facts = result if isinstance(result, (list, tuple)) else [result]
        out += run.needs.values()
        out.append(run.implies(z3.And(*map(term, facts))))
    return z3.And(*out)


def claimed(
    name: str, given: Iterable[Any], *claims: Callable[[], Any], shown: Iterable[Any] = ()
) -> Obligation:
    """The obligation that claims are always true of symbols of which facts are given.

    >>> n, k = symbols("n k")
    >>> claimed("the least", [n >= 0, k >= 0], lambda: min(n, k) >= 0).settle().verdict
    'proved'
    """
    every = z3.And(*(always(claim) for claim in claims))
    return Obligation(
        name, (*map(term, given), z3.Not(every)), tuple(term(symbol) for symbol in shown)
    )
