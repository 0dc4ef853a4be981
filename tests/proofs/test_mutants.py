"""The obligations can fail: with a wrong function in the program's place, one of them is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from proofs.engine.theorem import REFUTED
from redist.layout import segments
from redist.plan import memory
from redist.runtime.ranks.control_page import ControlPage
from redist.runtime.schedule import rounds
from redist.runtime.schedule.stages import TransferStages


def floored_box(shape: Any, counts: Any, place: Any) -> Any:
    lo = [min(i * (n // k), n) for n, k, i in zip(shape, counts, place, strict=True)]
    size = [min(a + n // k, n) - a for n, k, a in zip(shape, counts, lo, strict=True)]
    return tuple(lo), tuple(size)


def greedy_counts(shape: Any, parts: Any) -> Any:
    return tuple(max(1, min(n, parts)) for n in shape)


def forgetful_hop(
    source: Any, target: Any, before: Any, after: Any, first: bool, donate: bool
) -> Any:
    return memory.hop_live_bytes(source, target, before, after, True, donate)


def bound_by_peaks(route: Any) -> Any:
    bare = 0
    for plan in route.plans:
        bare += plan.peak_bytes - max(step.staging_bytes for step in plan.steps)
    return bare + max(route.staging_bytes(k) for k in range(len(route.stages)))


def slot_behind(board: Any, parity: int, slot_bytes: Any) -> Any:
    return board.pool_address + (slot_bytes if parity else 0)


def joined_uneven(one: Any, other: Any) -> Any:
    return replace(one, size=one.size * other.size)


def dealt_swapped(factor: Any) -> Any:
    return segments._simplify(factor)[::-1]


def added_once(one: Any, other: Any) -> Any:
    return one


WRONG: dict[str, tuple[str, Any, str, Any]] = {
    "boxes rounded down": ("rounds", None, "box_at", floored_box),
    "places with dims swapped": (
        "rounds",
        None,
        "place_at",
        lambda number, counts: rounds.place_at(number, counts)[::-1],
    ),
    "parts for every dim": ("rounds", None, "part_counts", greedy_counts),
    "a byte more in a round": (
        "rounds",
        None,
        "make_rounds",
        lambda weights, parts, slot: rounds.make_rounds(weights, parts, slot + 1),
    ),
    "a byte more in a part": (
        "rounds",
        None,
        "parts_needed",
        lambda need, limit, most: rounds.parts_needed(need, limit + 1, most),
    ),
    "a turn that never comes": (
        "rounds",
        None,
        "turn_of",
        lambda sender, receiver, is_near, turns: 1 + (receiver - sender) % turns,
    ),
    "freed a step too early": ("memory", None, "freed_at", lambda number, last: number),
    "a kept source forgotten": ("memory", None, "hop_live_bytes", forgetful_hop),
    "staging not rounded down": (
        "memory",
        None,
        "staging_for",
        lambda received, budget, itemsize: min(2 * received, max(0, budget)),
    ),
    "staging up to the larger end": (
        "memory",
        None,
        "default_staging_bytes",
        lambda source, target: max(source.tile_bytes, target.tile_bytes),
    ),
    "bound of a batch from peaks": ("allocations", TransferStages, "peak_bytes", bound_by_peaks),
    "only the tile before counted": (
        "rewrites",
        None,
        "hop_live_bytes",
        lambda source, target, before, after, first, donate: before.tile_bytes,
    ),
    "factors joined across an uneven cut": ("factors", None, "_times_factor", joined_uneven),
    "a deal whose blocks and turns are swapped": ("factors", None, "_simplify", dealt_swapped),
    "a neighbour forgotten": ("factors", None, "_add", added_once),
    "slots one behind the other": ("pairing", ControlPage, "slot", slot_behind),
}
"""Theorem, where the function stands (None: as the theorem imports it), its name, what is put there."""


LONG = {
    "only the tile before counted",
    "bound of a batch from peaks",
    "staging not rounded down",
    "staging up to the larger end",
    "freed a step too early",
    "a turn that never comes",
    "places with dims swapped",
    "parts for every dim",
}
"""Found by an obligation that Z3 takes seconds to settle."""


def named(name: str) -> Any:
    marks = pytest.mark.slow("Z3 takes seconds to refute it") if name in LONG else ()
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [*map(named, WRONG)])
def test_a_wrong_function_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theorem, owner, attribute, wrong = WRONG[name]
    module = import_module(f"proofs.theorems.{theorem}")
    obligations: Callable[[], Any] = module.obligations
    monkeypatch.setattr(owner or module, attribute, wrong)
    last_first = reversed(list(obligations()))
    assert any(obligation.settle(5.0).verdict == REFUTED for obligation in last_first)
