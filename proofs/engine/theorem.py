"""What a theorem is: obligations that Z3 must prove, and wrong variants that it must refute.

An obligation is a claim by its negation: constraints that nothing satisfies if the claim is true.
A twin is a deliberately wrong variant; Z3 must find sizes that satisfy its negation, and the
simulator must show on an array of these sizes that the variant is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

TIMEOUT_S = 60.0
PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One query. ``symbols`` names the integers whose values make up a counterexample.

    The negated claim stands last in ``negation``; what stands before are assumptions, which must be
    possible. ``witness`` may add constraints that make an example of them easy to find.
    """

    name: str
    negation: tuple[Any, ...]
    symbols: tuple[Any, ...] = ()
    witness: tuple[Any, ...] = ()

    def settle(self, timeout_s: float = TIMEOUT_S) -> Settled:
        """Ask Z3.

        >>> n = z3.Int("n")
        >>> Obligation("squares are not negative", (n * n < 0,), (n,)).settle().verdict
        'proved'
        >>> Obligation("n is not 7", (n == 7,), (n,)).settle().values
        {'n': 7}
        """
        started = time.perf_counter()
        solver = z3.Solver()
        solver.set("timeout", max(1, int(timeout_s * 1000)))
        solver.add(*self.negation)
        answer = solver.check()
        verdict = PROVED if answer == z3.unsat else REFUTED if answer == z3.sat else UNKNOWN
        values: dict[str, int] = {}
        if answer == z3.sat:
            model = solver.model()
            for symbol in self.symbols:
                values[str(symbol)] = model.eval(symbol, model_completion=True).as_long()
        reason = solver.reason_unknown() if verdict == UNKNOWN else ""
        return Settled(verdict, values, reason, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Settled:
    """What Z3 says of an obligation: a verdict, the counterexample if refuted, the time."""

    verdict: str
    values: dict[str, int]
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Shown:
    """A concrete run that contradicts a wrong variant.

    ``command`` is what a reader can type to see it; ``contradicts`` whether the simulator's result
    differs from what the variant says; ``text`` says both in words.
    """

    command: str
    contradicts: bool
    text: str


@dataclass(frozen=True, slots=True)
class Twin:
    """A wrong variant, and how its counterexample is shown on a real array."""

    name: str
    obligation: Callable[[], Obligation]
    show: Callable[[Mapping[str, int]], Shown]


@dataclass(frozen=True, slots=True)
class Theorem:
    """A claim in words, its obligations and its twins.

    ``joined`` says what joins the obligations, such as an induction; ``not_covered`` what the claim
    does not say.
    """

    name: str
    claim: str
    joined: str
    not_covered: str
    obligations: Callable[[], Iterator[Obligation]]
    twins: tuple[Twin, ...]
