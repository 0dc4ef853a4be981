"""Compare a plan with XLA's own resharding: bytes that are received, and memory of the compiled programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax

from redist.errors import ArgumentError, RequestError
from redist.jax.choose import XLA
from redist.jax.moves import LeafMove, is_on_devices, plan_between
from redist.jax.trees import moves_of, order_of, others_bytes, steps_of
from redist.jax.types import sharding_from
from redist.lower.hlo import received_bytes
from redist.lower.lowering import lower_plan
from redist.lower.memory import peak_bytes
from redist.plan.plan import Plan
from redist.text.columns import table
from redist.text.units import format_bytes, limit_from


@dataclass(frozen=True, slots=True)
class CompiledFigures:
    """What a compiled program costs; None where XLA does not tell.

    ``received_bytes`` is what all devices together receive. ``held_bytes`` is what a device holds at most:
    arguments, results and temporaries, as ``memory_analysis`` has them.
    """

    received_bytes: int | None
    held_bytes: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A move by redist beside XLA's own (``jax.jit(lambda x: x, out_shardings=...)``); it prints as a table.

    ``redist`` and ``xla`` have the figures of both compiled programs; of a tree, whose arrays move one
    after the other, ``received_bytes`` is the sum and ``held_bytes`` the fullest moment, with everything
    that a device holds of the tree. ``bound_bytes`` is what redist says a device holds at most, before
    anything is compiled. ``certified_bytes`` is what the plan proves for tiles and staging alone, without
    the copies that XLA makes; of a tree it is the largest of its plans'.
    """

    n_arrays: int
    n_devices: int
    redist: CompiledFigures
    xla: CompiledFigures
    lower_bound_bytes: int
    tiles_bytes: int
    bound_bytes: int
    certified_bytes: int

    @property
    def saved_bytes(self) -> int | None:
        """Memory of a device that the plan saves; below 0 where XLA's own takes less."""
        if self.redist.held_bytes is None or self.xla.held_bytes is None:
            return None
        return self.xla.held_bytes - self.redist.held_bytes

    def __str__(self) -> str:
        arrays = "1 array" if self.n_arrays == 1 else f"{self.n_arrays} arrays"
        rows = [
            (f"{arrays}, {self.n_devices} devices", "received by all", "", "peak per device"),
            self._row("redist", self.redist),
            self._row("XLA's own", self.xla),
            (
                "least possible",
                format_bytes(self.lower_bound_bytes),
                "",
                format_bytes(self.tiles_bytes),
            ),
        ]
        bounds = (
            f"redist guarantees at most {format_bytes(self.bound_bytes, round_up=True)} on any device; "
            f"{format_bytes(self.certified_bytes)} of tiles and staging are proved, the rest is XLA's copies"
        )
        return "\n".join([*table(rows), self._verdict(), bounds])

    def _row(self, name: str, found: CompiledFigures) -> tuple[str, str, str, str]:
        ratio = ""
        if found.received_bytes is not None and self.lower_bound_bytes:
            ratio = f"{found.received_bytes / self.lower_bound_bytes:.2f} x"
        return name, _text(found.received_bytes), ratio, _text(found.held_bytes)

    def _verdict(self) -> str:
        saved = self.saved_bytes
        if saved is None:
            return "XLA does not tell how much memory its programs take here"
        if saved == 0:
            return "both hold the same on a device"
        more = "less" if saved > 0 else "more"
        return (
            f"redist holds {format_bytes(abs(saved))} {more} on a device than XLA's own resharding"
        )


def _text(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else format_bytes(n_bytes)


def compare(x: Any, sharding: Any, limit_bytes: int | str | None = None) -> Comparison:
    """What :func:`redistribute` saves of memory and traffic beside XLA's own resharding.

    ``print(redist.jax.compare(x, sharding))`` has both in a table. Nothing moves; both programs are
    compiled. Of a tree, arrays that JAX moves by itself, from the host or between different devices, are
    left out.
    """
    moves, _ = moves_of(x, sharding)
    rooms = {k: room for k, room, _ in steps_of(moves, limit_from(limit_bytes), False)}
    planned = [k for k, move in enumerate(moves) if move.ends is not None]
    if not planned:
        raise RequestError(f"cannot compare: no plan moves anything here; {_why_no_plan(moves)}")
    gives = [False] * len(moves)
    others = others_bytes(moves, order_of(moves, gives), gives)
    held = [others[k] for k in planned]
    found = [_measured(moves[k], rooms[k]) for k in planned]
    plans = [plan for plan, _, _ in found]
    tiles = [moves[k].before_bytes + moves[k].after_bytes for k in planned]
    return Comparison(
        len(planned),
        plans[0].source.mesh.n_devices,
        _together([ours for _, ours, _ in found], held),
        _together([theirs for _, _, theirs in found], held),
        sum(plan.lower_bound_bytes for plan in plans),
        _fullest(tiles, held),
        _fullest([peak_bytes(lower_plan(plan, XLA)) for plan in plans], held),
        max(plan.peak_bytes for plan in plans),
    )


def _why_no_plan(moves: Sequence[LeafMove]) -> str:
    moved = [move for move in moves if move.is_moved]
    far = [move for move in moved if is_on_devices(move.value)]
    if far:
        wanted = far[0].wanted
        assert wanted is not None
        n, to = len(far[0].value.sharding.device_set), len(wanted.device_set)
        return (
            f"{far[0].name or 'the array'} changes devices ({n} to {to}), and JAX moves it by itself, with "
            "jax.device_put; compare shardings over the same devices"
        )
    if moved:
        return "the arrays come from the host, and JAX puts them on the devices by itself"
    return "the arrays are in place already"


def _fullest(needs: Sequence[int], others: Sequence[int]) -> int:
    return max(map(sum, zip(needs, others, strict=True)))


def _together(figures: Sequence[CompiledFigures], others: Sequence[int]) -> CompiledFigures:
    """The figures of moves that come one after the other."""
    received = [one.received_bytes for one in figures if one.received_bytes is not None]
    held = [one.held_bytes for one in figures if one.held_bytes is not None]
    return CompiledFigures(
        sum(received) if len(received) == len(figures) else None,
        _fullest(held, others) if len(held) == len(figures) else None,
    )


def _measured(
    move: LeafMove, limit_bytes: int | None
) -> tuple[Plan, CompiledFigures, CompiledFigures]:
    """The plan of a move, what it costs, and what XLA's own way costs."""
    assert move.ends is not None and move.wanted is not None
    own = sharding_from(move.value)
    like = jax.ShapeDtypeStruct(move.value.shape, move.value.dtype, sharding=own)
    plan = plan_between(*move.ends, limit_bytes, False)
    ours = move.program(limit_bytes)
    return plan, _figures(ours, like), _figures(_own_way(move.wanted), like)


@lru_cache(maxsize=2**12)
def _own_way(sharding: Any) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


@lru_cache(maxsize=2**12)
def _figures(way: Any, like: jax.ShapeDtypeStruct) -> CompiledFigures:
    """What a function costs for an array like this one, once XLA has compiled it."""
    program = way.lower(like).compile()
    received: int | None = None
    with suppress(ArgumentError):  # send and recv, or a collective in a loop
        received = received_bytes(program.as_text(), like.sharding.mesh.size)[0]
    memory = program.memory_analysis()
    held: int | None = None
    if memory is not None:
        held = memory.argument_size_in_bytes + memory.output_size_in_bytes
        held += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    return CompiledFigures(received, held)
