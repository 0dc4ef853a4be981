"""The judge of refits: what the planner makes is right, what is changed is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redist
from redist import Mesh, RefitPlan, Weights
from redist.check.refits import certify
from tests.refits.test_random import plan_of, refit_of
from tests.tiers import sample


@pytest.mark.parametrize("seed", range(sample(6, of=300)))
def test_plans_are_proved_by_kinds_and_run_by_run(seed: int) -> None:
    plan = plan_of(refit_of(seed))
    assert plan.certificate.verdict == "proved", plan.certificate
    verdict = plan.check()
    assert verdict.is_right, verdict
    assert plan.certificate.received_bytes == plan.certificate.lower_bound_bytes


def small() -> RefitPlan:
    """Rows of a fused weight to columns of its parts, in several rounds, with copies."""
    source = Weights(
        {f"l.{n}.qk": "f32[16{x}+8{x}, 8]" for n in range(4)}, Mesh(x=4, copy=2),
        names="*.qk[16|8, :] = *.q, *.k",
    )  # fmt: skip
    types = {
        f"l.{n}.{x}": f"f32[{rows}, 8{{y}}]" for n in range(4) for x, rows in (("q", 16), ("k", 8))
    }
    target = Weights(types, Mesh({"y": 2, "copy": 2}, ranks=range(8, 12)))
    return redist.refit(source, target, limit_bytes=300)


Mutant = Callable[[RefitPlan], RefitPlan]


def with_sender(plan: RefitPlan) -> RefitPlan:
    """A request is sent by a rank that does not hold it."""
    pair = plan.pairs[0]
    sender = pair.sender.copy()
    held = pair.slots_of(int(pair.atom[0]))
    sender[0, 0] = next(slot for slot in range(len(pair.source.tile)) if slot not in held)
    return replace(plan, pairs=(replace(pair, sender=sender), *plan.pairs[1:]))


def without_turn(plan: RefitPlan) -> RefitPlan:
    return with_turns(plan, slice(1, None))


def twice(plan: RefitPlan) -> RefitPlan:
    n = len(plan.turns.pair)
    return with_turns(plan, np.append(np.arange(n), n - 1))


def with_turns(plan: RefitPlan, chosen: Any) -> RefitPlan:
    t = plan.turns
    rows = (t.pair, t.instance, t.round, t.slice, t.slices, t.first, t.last)
    a, b, c, d, e, f, g = (column[chosen] for column in rows)
    return replace(plan, turns=type(t)(a, b, c, d, e, f, g, t.busiest))


def in_one_round(plan: RefitPlan) -> RefitPlan:
    t = plan.turns
    return replace(plan, turns=replace(t, round=np.zeros_like(t.round)))


def with_records(change: Callable[[list[np.ndarray]], None]) -> Mutant:  # type: ignore[type-arg]
    """The first records that the plan uses, changed."""

    def mutant(plan: RefitPlan) -> RefitPlan:
        pair = plan.pairs[0]
        key = (
            int(pair.target.tile[pair.slot[0]]),
            int(pair.atom[0]),
            int(pair.source.tile[int(pair.sender[0, 0])]),
        )
        records = pair.meeting.records(*key)
        columns = [column.copy() for column in records.columns]
        change(columns)
        pair.meeting._made[key] = type(records)(*columns)
        return plan

    return mutant


def shift_source(columns: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    columns[0] += 4


def shift_target(columns: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    columns[1] += 4


def shorter(columns: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    columns[2] -= 1


def fewer(columns: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    columns[3] -= 1


def other_step(columns: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    columns[5] += 4


def without_pair(plan: RefitPlan) -> RefitPlan:
    """A kind of tensors is left out, turns and all."""
    last = len(plan.pairs) - 1
    found = with_turns(plan, plan.turns.pair != last)
    return replace(found, pairs=plan.pairs[:-1])


def without_tensor(plan: RefitPlan) -> RefitPlan:
    """A pair with one instance less."""
    pair = plan.pairs[0]
    last = len(pair.names) - 1
    sides: dict[str, Any] = {
        side: replace(held, rank_row=held.rank_row[:-1], base_row=held.base_row[:-1], stored=held.stored[:-1])
        for side, held in (("source", pair.source), ("target", pair.target))
    }  # fmt: skip
    less = replace(pair, names=pair.names[:-1], sender=pair.sender[:-1], **sides)
    found = with_turns(plan, (plan.turns.pair != 0) | (plan.turns.instance != last))
    return replace(found, pairs=(less, *plan.pairs[1:]))


def with_side(side: str, field: str) -> Mutant:
    """A pair that says of its tensors what is another's."""

    def mutant(plan: RefitPlan) -> RefitPlan:
        pair = plan.pairs[0]
        values = getattr(getattr(pair, side), field).copy()
        values[0] = values[0] + 4 if field == "bases" else np.roll(values, 1, axis=0)[0]
        if field == "ranks":
            values[0] = np.roll(getattr(pair, side).ranks[0], 1)
        changed = replace(getattr(pair, side), **{field: values})
        return replace(plan, pairs=(replace(pair, **{side: changed}), *plan.pairs[1:]))

    return mutant


def with_requests(field: str) -> Mutant:
    """A pair that asks for more, or for another part, or sends wider elements."""

    def mutant(plan: RefitPlan) -> RefitPlan:
        pair = plan.pairs[0]
        values = getattr(pair, field)
        changed = values * 2 if field in ("wire", "elems") else values[::-1].copy()
        return replace(plan, pairs=(replace(pair, **{field: changed}), *plan.pairs[1:]))

    return mutant


def with_turn(name: str, value: int) -> Mutant:
    """A turn of nobody, or in no round."""

    def mutant(plan: RefitPlan) -> RefitPlan:
        values = getattr(plan.turns, name).copy()
        values[-1] = value
        return replace(plan, turns=replace(plan.turns, **{name: values}))

    return mutant


TURNS = {
    f"{name} {value}": with_turn(name, value)
    for name in ("pair", "instance", "round", "slice", "first", "last", "busiest") for value in (-1, 999)
}  # fmt: skip
SIDES = {
    f"{field} of the {side}": with_side(side, field)
    for side in ("source", "target") for field in ("stored", "bases", "ranks")
}  # fmt: skip
REQUESTS = {field: with_requests(field) for field in ("wire", "elems", "slot")}
MUTANTS: dict[str, Mutant] = {
    "no pair": without_pair, "no tensor": without_tensor, **SIDES, **REQUESTS, **TURNS,
    "sender": with_sender, "no turn": without_turn, "turn twice": twice, "one round": in_one_round,
    "source shifted": with_records(shift_source), "target shifted": with_records(shift_target),
    "shorter": with_records(shorter), "fewer blocks": with_records(fewer),
    "other step": with_records(other_step),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refuted(name: str) -> None:
    plan = small()
    assert certify(plan).verdict == "proved"
    found = certify(MUTANTS[name](plan))
    assert found.verdict == "refuted", found
    assert "refuted" in str(found)


def test_a_plan_may_not_say_less_staging_than_it_takes() -> None:
    plan = small()
    less = replace(plan.turns, busiest=plan.turns.busiest - 4)
    assert certify(replace(plan, turns=less)).verdict == "refuted"
