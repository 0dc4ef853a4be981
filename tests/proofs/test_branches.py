"""What a function says of symbols, with numbers put in, is what it does to numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import z3

from proofs.engine.branches import claimed, symbols, term, ways
from proofs.theorems.memory import ONE
from redist.layout.cuts import EvenCut
from redist.plan.memory import (
    alive_events,
    default_staging_bytes,
    freed_at,
    hop_live_bytes,
    rounds_for,
    staging_for,
)
from redist.plan.pieces import Piece
from redist.plan.steps import Event
from redist.runtime.ranks.control_page import ControlPage
from redist.runtime.schedule.pieces import box_at
from redist.runtime.schedule.rounds import (
    Exports,
    RoundPart,
    make_rounds,
    part_counts,
    part_elems,
    part_of,
    place_at,
)
from redist.text.units import ceil_div
from tests.tiers import sample


def flat(value: Any) -> list[Any]:
    """Numbers and symbols of a result, in order."""
    match value:
        case None | str():
            return [value]
        case Piece():
            return flat((value.src_lo, value.dst_lo, value.shape))
        case RoundPart():
            return flat((value.item, value.parts, value.number))
        case Event():
            return flat((value.n_bytes, value.born, value.freed))
        case dict():
            return flat(list(value.values()))
        case list() | tuple():
            return [x for item in value for x in flat(item)]
        case _:
            return [value]


def tile(n_bytes: Any, itemsize: Any) -> Any:
    return SimpleNamespace(tile_bytes=n_bytes, mesh=ONE, dtype=SimpleNamespace(itemsize=itemsize))


def board(start: Any, pool: Any) -> Any:
    return SimpleNamespace(pool_address=start, pool_bytes=pool)


def whole_piece(n: Any, a: Any, b: Any) -> Piece:
    return Piece(0, 1, 0, (a,), (b,), (n,), (n,), (n,))


FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "ceil_div": (ceil_div, "0 1"),
    "range_of": (lambda n, k, i: EvenCut(n, k).range_of(i), "0 1 0"),
    "ranges_of": (lambda n, k, i: tuple(EvenCut(n, k).ranges_of(i)), "0 1 0"),
    "tile_of": (lambda n, k, i: EvenCut(n, k).tile_of(i), "0 1 0"),
    "box_at": (lambda n, m, k, i: box_at((n, m), (k, 2), (i, 1)), "0 0 1 0"),
    "part_counts": (lambda n, m, p: part_counts((n, m), p), "0 0 1"),
    "part_elems": (lambda n, m, p: part_elems((n, m), p), "0 0 1"),
    "place_at": (lambda number, k, m: place_at(number, (m, k)), "0 1 1"),
    "part_of": (
        lambda n, p, i, a, b: part_of(whole_piece(n, a, b), RoundPart(0, p, i)),
        "1 1 0 0 0",
    ),
    "make_rounds": (lambda a, b, slot: make_rounds((a, b), (1, 2), slot), "0 0 0"),
    "Exports": (
        lambda n, m, p, size: Exports((((0,), (n,), ()), ((1,), (m,), ())), size, 64).offsets(p, 7),
        "1 1 1 1",
    ),
    "rounds_for": (rounds_for, "0 0"),
    "staging_for": (staging_for, "0 0 1"),
    "default_staging_bytes": (
        lambda a, b, size: default_staging_bytes(tile(a, size), tile(b, size)),
        "0 0 1",
    ),
    "hop_live_bytes": (
        lambda s, t, a, b: hop_live_bytes(
            tile(s, 4), tile(t, 4), tile(a, 4), tile(b, 4), first=False, donate=False
        ),
        "0 0 0 0",
    ),
    "freed_at": (freed_at, "0 0"),
    "alive_events": (
        lambda born, freed, at: alive_events([Event("middle", 4, born, freed, "both")], at, "both"),
        "0 0 0",
    ),
    "ControlPage.slot": (
        lambda start, pool, parity, size: ControlPage.slot(board(start, pool), parity, size),
        "0 0 0 0",
    ),
}
"""Each function of some numbers, and the least that each number may be."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_symbols_and_numbers_agree(name: str) -> None:
    function, least = FUNCTIONS[name]
    low = [int(text) for text in least.split()]
    names = symbols(" ".join(f"v{k}" for k in range(len(low))))
    found = [(run.conditions, flat(result)) for run, result in ways(lambda: function(*names))]
    rng = Random(7)
    for _ in range(sample(30, of=180)):
        top = rng.choice([4, 12, 500])
        values = [rng.randint(a, top) for a in low]
        put = [(term(v), z3.IntVal(x)) for v, x in zip(names, values, strict=True)]
        fitting = [
            result
            for conditions, result in found
            if z3.is_true(z3.simplify(z3.substitute(z3.And(*conditions), *put)))
        ]
        assert len(fitting) == 1
        said = [
            z3.simplify(z3.substitute(term(x), *put)).as_long()
            if isinstance(term(x), z3.ExprRef)
            else x
            for x in fitting[0]
        ]
        done = [int(x) if isinstance(x, np.integer) else x for x in flat(function(*values))]
        assert said == done


def test_division_by_what_may_be_zero_is_no_proof() -> None:
    n, k = symbols("n k")
    assert claimed("any", [n >= 0], lambda: [n // k == n // k]).settle().verdict == "refuted"
    assert claimed("any", [n >= 0, k >= 1], lambda: n // k <= n).settle().verdict == "proved"


def test_a_function_that_fails_proves_nothing() -> None:
    (n,) = symbols("n")

    def fails() -> Any:
        return [n == n][0 if n < 5 else 1]

    assert claimed("any", [n >= 0], fails, shown=[n]).settle().values["n"] >= 5
    assert claimed("small", [n >= 0, n < 5], fails).settle().verdict == "proved"


def test_every_way_is_taken_once() -> None:
    a, b, c = symbols("a b c")
    runs = [run.conditions for run, _ in ways(lambda: sorted([a, b, c])[0])]
    texts = {str(conditions) for conditions in runs}
    assert len(texts) == len(runs) > 2
    union = z3.Or(*(z3.And(*conditions) for conditions in runs))
    solver = z3.Solver()
    solver.add(z3.Not(union))
    assert solver.check() == z3.unsat


def test_a_loop_that_depends_on_symbols_is_refused() -> None:
    (n,) = symbols("n")

    def loop() -> int:
        k = 0
        while k < n:
            k += 1
        return k

    with pytest.raises(RuntimeError, match="branches"):
        list(ways(loop))
