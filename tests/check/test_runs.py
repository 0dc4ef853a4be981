"""The judge of transfers agrees with carrying them out, byte by byte, on right lists and on mutants."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import redist
from redist.check.verdict import Fault, Verdict
from tests.check.transfers import (
    Outcome,
    Problem,
    Run,
    carry_out,
    least_bytes,
    random_problem,
)
from tests.tiers import sample

ROUND, FROM, PLACE, TO, AT, BYTES, COUNT, HERE, THERE = range(9)


def judge(p: Problem, limit_bytes: int | None = None) -> Verdict:
    return redist.check_runs(p.runs, p.source.made(), p.target.made(), limit_bytes=limit_bytes)


def faults_of(verdict: Verdict) -> dict[str, Fault]:
    return {fault.kind: fault for fault in verdict.faults}


@pytest.mark.parametrize("seed", range(sample(20, of=4000)))
def test_right_lists_pass_with_the_figures_of_the_oracle(seed: int) -> None:
    p = random_problem(random.Random(seed))
    outcome, verdict = carry_out(p), judge(p)
    assert outcome.is_right
    assert verdict.is_right, verdict
    least = least_bytes(p)
    for one in verdict.ranks:
        peak = max((n for (_, rank), n in outcome.load.items() if rank == one.rank), default=0)
        assert one.received_bytes == outcome.received[one.rank]
        assert one.sent_bytes == outcome.sent[one.rank]
        assert (one.peak_bytes, one.lower_bound_bytes) == (peak, least[one.rank])
    sent = [one.sent_bytes for one in verdict.ranks if one.sent_bytes]
    if sent:
        ranks = {rank for rank, _, _ in p.source.buffers}
        assert verdict.balance == pytest.approx(max(sent) * len(ranks) / sum(sent))
        assert judge(p, verdict.peak_bytes).is_right
        assert [one.kind for one in judge(p, verdict.peak_bytes - 1).faults] == [
            "too much in a round"
        ]


def changed(run: Run, **fields: int) -> Run:
    names = ("round", "come", "place", "to", "at", "n_bytes", "count", "here", "there")
    return tuple(fields.get(name, old) for name, old in zip(names, run, strict=True))


def one_less(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return []


def one_twice(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [r, r]


def moved_at_the_target(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, at=r[AT] + rng.choice([-1, 1]) * rng.choice([1, p.target.item]))]


def moved_at_the_source(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, place=r[PLACE] + rng.choice([-1, 1]) * rng.choice([1, p.source.item]))]


def longer(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, n_bytes=r[BYTES] + rng.choice([1, p.source.item]))]


def shorter(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    wire = min(p.source.item, p.target.item)
    n_bytes = r[BYTES] - rng.choice([1, wire])
    return [changed(r, n_bytes=n_bytes)] if n_bytes > 0 else []


def from_another_place(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, place=rng.randint(0, p.source.buffers[r[FROM]][2]))]


def from_another_buffer(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, come=rng.randrange(len(p.source.buffers)))]


def to_another_buffer(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, to=rng.randrange(len(p.target.buffers)))]


def of_another_tensor(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    name = p.source.buffers[r[FROM]][1][0]
    others = [k for k, buffer in enumerate(p.source.buffers) if buffer[1][0] != name]
    return [changed(r, come=rng.choice(others))] if others else []


def out_of_bounds(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    side, field = rng.choice([(p.source, "place"), (p.target, "at")])
    size = side.buffers[r[FROM] if side is p.source else r[TO]][2]
    return [changed(r, **{field: rng.choice([-1, size - r[BYTES] + 1, size, 2**61])})]


def gap_beside_an_overlap(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    way = rng.choice([-1, 1])
    return [changed(r, place=r[PLACE] + way * p.source.item, at=r[AT] + way * p.target.item)]


def step_off_by_one(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    way = rng.choice([-1, 1])
    sides = [("here", r[HERE], p.source.item), ("there", r[THERE], p.target.item)]
    name, step, item = rng.choice(sides)
    return [changed(r, **{name: step + way * rng.choice([1, item])})]


def one_block_less(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, count=r[COUNT] - 1)] if r[COUNT] > 1 else []


def one_block_more(r: Run, p: Problem, rng: random.Random) -> list[Run]:
    return [changed(r, count=r[COUNT] + 1)]


MUTATIONS: tuple[Callable[[Run, Problem, random.Random], list[Run]], ...] = (
    one_less,
    one_twice,
    moved_at_the_target,
    moved_at_the_source,
    longer,
    shorter,
    from_another_place,
    from_another_buffer,
    to_another_buffer,
    of_another_tensor,
    out_of_bounds,
    gap_beside_an_overlap,
    step_off_by_one,
    one_block_less,
    one_block_more,
)


def two_swapped(p: Problem, rng: random.Random) -> Problem:
    """Two runs bring each other's bytes."""
    runs = list(p.runs)
    if len(runs) > 1:
        a, b = rng.sample(range(len(runs)), 2)
        one, other = runs[a], runs[b]
        runs[a] = changed(one, come=other[FROM], place=other[PLACE], here=other[HERE])
        runs[b] = changed(other, come=one[FROM], place=one[PLACE], here=one[HERE])
    return replace(p, runs=runs)


def mutant_of(p: Problem, rng: random.Random, mutation: Callable[..., list[Run]]) -> Problem:
    at = rng.randrange(len(p.runs))
    strided = [k for k, run in enumerate(p.runs) if run[COUNT] > 1]
    if strided and mutation in (step_off_by_one, one_block_less, one_block_more):
        at = rng.choice(strided)
    return replace(p, runs=[*p.runs[:at], *mutation(p.runs[at], p, rng), *p.runs[at + 1 :]])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.__name__)
def test_every_mutant_is_found_and_named_as_the_oracle_does(
    mutation: Callable[..., list[Run]],
) -> None:
    wrong = 0
    for seed in range(sample(8, of=3000)):
        rng = random.Random(seed)
        p = mutant_of(random_problem(rng), rng, mutation)
        wrong += agree(p)
    assert wrong >= 1


def test_two_runs_that_are_swapped_are_found() -> None:
    found = 0
    for seed in range(sample(8, of=3000)):
        rng = random.Random(seed)
        found += agree(two_swapped(random_problem(rng), rng))
    assert found >= 2


def test_several_faults_at_once_are_all_found() -> None:
    for seed in range(sample(8, of=3000)):
        rng = random.Random(seed)
        p = random_problem(rng)
        for _ in range(rng.randint(2, 5)):
            if p.runs:
                p = mutant_of(p, rng, rng.choice(MUTATIONS))
        agree(p)


def agree(p: Problem) -> bool:
    """Compare the verdict with carrying the runs out; whether something is wrong."""
    outcome, verdict = carry_out(p), judge(p)
    assert verdict.is_right == outcome.is_right, (verdict, p.runs)
    found = faults_of(verdict)
    if p.source.item != p.target.item:
        whole = all(run[BYTES] % min(p.source.item, p.target.item) == 0 for run in p.runs)
        if outcome.writes or outcome.out or not whole:
            return not outcome.is_right  # how wide is an element where none is, or half of one
    for kind, runs in (
        ("out of bounds", outcome.out),
        ("writes what nobody asked for", set(outcome.writes)),
    ):
        assert (found[kind].count if kind in found else 0) == len(runs), (kind, verdict)
    bad = {*outcome.reads, *outcome.wrong}
    told = [found[kind].count for kind in ("reads what nobody has", "wrong bytes") if kind in found]
    assert len(bad) <= sum(told) <= len(bad) + len({*outcome.reads} & {*outcome.wrong})
    assert ("written twice" in found) == bool(outcome.twice)
    assert ("never written" in found) == bool(outcome.never)
    for kind, fault in found.items():
        is_named_right(p, outcome, kind, fault)
    return not outcome.is_right


def is_named_right(p: Problem, outcome: Outcome, kind: str, fault: Fault) -> None:
    """Rank, tensor and index of a fault, and the bytes of its text, are those of the oracle."""
    if kind == "out of bounds":
        run = int(re.search(r"run (\d+)", fault.text)[1])  # type: ignore[index]
        assert run == min(outcome.out)
        come, to = p.source.buffers[p.runs[run][FROM]], p.target.buffers[p.runs[run][TO]]
        assert fault.rank in (come[0], to[0])
        return
    match = re.match(r"byte (\d+) of '(\w+)' on rank (\d+)", fault.text)
    assert match is not None
    byte, name, rank = int(match[1]), match[2], int(match[3])
    assert rank == fault.rank
    (buffer,) = (k for k, one in enumerate(p.target.buffers) if one[:2] == (rank, name))
    place = (buffer, byte)
    places = {
        "reads what nobody has": set().union(*outcome.reads.values()),
        "writes what nobody asked for": set().union(*outcome.writes.values()),
        "wrong bytes": set().union(*outcome.wrong.values()),
        "written twice": outcome.twice,
        "never written": outcome.never,
    }[kind]
    assert place in places, (kind, fault)
    if kind == "writes what nobody asked for":
        return
    tensor, element, _ = p.target.tags()[buffer][byte]
    names = list(p.target.tensors)
    assert fault.tensor == names[tensor]
    shape = p.target.tensors[names[tensor]]
    assert fault.index == (tuple(map(int, np.unravel_index(element, shape))) if shape else ())
    if kind in ("written twice", "never written"):
        assert all((buffer, byte + k) in places for k in range(fault.bytes))
        assert place == min(places) or kind == "written twice" or interleaved(p, buffer)


def interleaved(p: Problem, buffer: int) -> bool:
    """Whether several boxes are in a buffer: then a later box may lack an earlier byte."""
    return sum(box[0] == buffer for box in p.target.boxes) > 1
