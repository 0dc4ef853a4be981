"""Refits as text: kinds of tensors, bytes, senders, rounds, and what other schedules would take.

By the same model, and with the same limit for what a rank sends and receives in a round:

=================  =========================================================================================
this plan          tensors in proportion over all holders
stage by stage     tensors of one pipeline stage of the source after those of the other
whole tensors      every rank receives all of each stored tensor of which it keeps a part, and cuts it
=================  =========================================================================================

Rounds are synchronised, so a schedule takes what the busiest rank of each round takes, added up: *in step*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from redist.layout.axes import Ints
from redist.plan.rates import FAR_LEVEL
from redist.refits.rounds import rounds_of
from redist.text.columns import table
from redist.text.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from redist.refits.pairs import Pair
    from redist.refits.plan import RefitPlan

MOST_ROWS = 24
Schedule = tuple[str, int, int, float, str]
"""Name, bytes received, bytes in step, seconds, and how many times this plan's."""


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
    for own, _, _, moved in pair.moves():
        out[own] = moved.sum(axis=1)
    return out


def _texts(plan: RefitPlan, pair: Pair) -> list[tuple[str, str]]:
    source, target = [*plan.source.types.values()], [*plan.target.types.values()]
    known: dict[int, str] = {}
    out = []
    for a, b in zip(pair.source.stored[:, 0], pair.target.stored[:, 0], strict=True):
        for t in (source[a], target[b]):
            if id(t) not in known:
                known[id(t)] = str(t)
        out.append((known[id(source[a])], known[id(target[b])]))
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


def schedules(plan: RefitPlan) -> list[Schedule]:
    """This plan beside the others."""
    own = int(plan.turns.busiest.sum())
    staged = rounds_of(plan.pairs, plan.limit_bytes, by_stage=True)
    whole, whole_step = _whole(plan)
    rows = [
        ("this plan", plan.received_bytes, own),
        ("stage by stage", plan.received_bytes, int(staged.busiest.sum())),
        ("whole tensors", whole, whole_step),
    ]
    return [
        (name, received, step, _seconds(plan, step), f"{step / own:.2f} x" if own else "")
        for name, received, step in rows
    ]


def _seconds(plan: RefitPlan, n_bytes: int) -> float:
    """By the rate of the farthest level: the sides are usually on different nodes."""
    far = FAR_LEVEL if plan.topology is None else plan.topology.levels[-1]
    return n_bytes * far.byte_fs / 1e15


def _whole(plan: RefitPlan) -> tuple[int, int]:
    """Bytes that all ranks, and the busiest one, receive if stored tensors travel whole.

    Each stored tensor of the target is put together once by its first holder and passed on, so ranks
    receive, and are taken to forward at most what they receive.
    """
    received: dict[int, int] = {}
    for t in plan.target.types.values():
        n_bytes = math.prod(t.shape) * t.dtype.itemsize
        for rank in t.mesh.ranks:
            received[rank] = received.get(rank, 0) + n_bytes
    return sum(received.values()), max(received.values(), default=0)
