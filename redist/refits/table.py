"""Refits as text: kinds of tensors, bytes, senders, rounds, and what other schedules would take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from redist.layout.axes import Ints
from redist.refits.others import schedules
from redist.text.columns import table
from redist.text.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from redist.refits.pairs import Pair
    from redist.refits.plan import RefitPlan

MOST_ROWS = 24


def format_refit(plan: RefitPlan) -> str:
    """A row for each kind of tensor, then totals."""
    source, target = plan.source, plan.target
    lines = [
        f"refit of {len(plan.names)} tensors: {len(source.stored)} stored on {len(source.ranks)} ranks -> "
        f"{len(target.stored)} stored on {len(target.ranks)} ranks"
    ]
    rows = _kinds(plan)
    shown = rows[:MOST_ROWS]
    head = ("tensors", "source type", "target type", "count", "received", "runs/tensor")
    lines += table([head, *(row[1] for row in shown)], (0, 1, 2), "  ")
    if len(rows) > len(shown):
        rest = sum(row[0] for row in rows[MOST_ROWS:])
        lines.append(f"  and {len(rows) - len(shown)} kinds more, {format_bytes(rest)}")
    return "\n".join([*lines, *_totals(plan)])


def _kinds(plan: RefitPlan) -> list[tuple[int, tuple[str, ...]]]:
    """Tensors whose names differ in numbers alone, with types of the first; most bytes first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for pair in plan.pairs:
        n_bytes = _received(pair)
        types = _texts(plan, pair)
        runs = _runs(pair)
        for i, name in enumerate(pair.names):
            key = (_starred(name), *types[i])
            row = found.setdefault(key, [0, 0, runs])
            row[0] += 1
            row[1] += int(n_bytes[i])
    rows = [
        (total, (*key, str(count), format_bytes(total), str(runs)))
        for key, (count, total, runs) in found.items()
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def _received(pair: Pair) -> Ints:
    out = np.zeros(len(pair.names), dtype=np.int64)
    for own, ranks, needing in pair.classes():
        away = ranks[pair.sender[own]] != needing[pair.slot][None]
        out[own] = np.where(away, (pair.elems * pair.wire)[None], 0).sum(axis=1)
    return out


def _texts(plan: RefitPlan, pair: Pair) -> list[tuple[str, str]]:
    source = [*plan.source.types.values()]
    target = [*plan.target.types.values()]
    known: dict[tuple[int, int], tuple[str, str]] = {}
    out = []
    for i in range(len(pair.names)):
        a, b = source[pair.source.stored[i, 0]], target[pair.target.stored[i, 0]]
        key = (id(a), id(b))
        if key not in known:
            known[key] = (str(a), str(b))
        out.append(known[key])
    return out


def _runs(pair: Pair) -> int:
    """Runs of one tensor, over all its receivers."""
    chosen = pair.source.tile[pair.sender[0].astype(np.int64)]
    asked = zip(
        pair.target.tile[pair.slot].tolist(), pair.atom.tolist(), chosen.tolist(), strict=True
    )
    return sum(len(pair.meeting.records(*one)) for one in asked)


def _starred(name: str) -> str:
    """A name with its numbers as stars.

    >>> _starred("layers.12.experts.3.w1"), _starred("linear_fc1.weight7"), _starred("w1")
    ('layers.*.experts.*.w1', 'linear_fc1.weight*', 'w1')
    """
    return re.sub(r"(?<=\.)\d+(?=\.|$)|(?<=weight)\d+$", "*", name)


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.2f}" if b else "1.00"


def _totals(plan: RefitPlan) -> list[str]:
    sent, received = plan.sent_bytes, plan.received_by_rank
    got, bound = plan.received_bytes, plan.lower_bound_bytes
    most, busiest = max(received.values(), default=0), max(sent.values(), default=0)
    least = plan.least_sent_bytes
    limit = "" if plan.limit_bytes is None else f", limit {format_bytes(plan.limit_bytes)}"
    lines = [
        f"received   {format_bytes(got)} = {_ratio(got, bound)} x lower bound, at most {format_bytes(most)} "
        "a rank; all bytes go straight from tile to tile",
        f"sent       at most {format_bytes(busiest)} a rank = {_ratio(busiest, least)} x the least possible",
        f"rounds     {plan.rounds}, at most {format_bytes(plan.staging_bytes)} sent and received by a rank "
        f"in one{limit}",
    ]
    rows: Sequence[tuple[str, ...]] = [
        (name, format_bytes(received), format_bytes(step), format_seconds(seconds), times)
        for name, received, step, seconds, times in schedules(plan)
    ]
    head = ("schedule", "received", "in step", "modelled", "")
    lines += ["", *table([head, *rows], (0,), "  ")]
    if "certificate" in plan.__dict__:
        lines += ["", str(plan.certificate)]
    return lines
