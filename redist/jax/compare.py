"""Compare a plan with XLA's own resharding: bytes received, and memory of the compiled programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax

from redist.errors import ArgumentError, RequestError
from redist.jax.arguments import checked
from redist.jax.choose import goes_as_bits, is_reused, parts_of
from redist.jax.moves import LeafMove, is_on_devices, plan_between
from redist.jax.trees import given_away, moves_of, order_of, others_bytes, steps_of
from redist.lower.calls import peak_bytes
from redist.lower.hlo import received_bytes
from redist.lower.lowering import lower_plan
from redist.plan.plan import Plan
from redist.plan.rates import XLA
from redist.text.columns import table
from redist.text.units import count_of, format_bytes, limit_from


@dataclass(frozen=True, slots=True)
class CompiledFigures:
    """What a compiled program costs; a figure is None where XLA does not report it.

    ``received_bytes`` is what all devices together receive. ``held_bytes`` is the most that a device holds:
    arguments, results and temporaries, as reported by ``memory_analysis``.
    """

    received_bytes: int | None
    held_bytes: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A move by redist compared with XLA's own (``jax.jit(lambda x: x, out_shardings=...)``), as a table.

    ``redist`` and ``xla`` have the figures of both compiled programs. For a tree, whose arrays move one
    after the other, ``received_bytes`` is the sum and ``held_bytes`` the fullest moment, with everything
    that a device holds of the tree.

    ``tiles_bytes`` is the part that both hold anyway: source and target, which share their memory if the
    array is donated and XLA can reuse it. ``bound_bytes`` is the most that a device holds according to
    redist, before anything is compiled. ``certified_bytes`` is what the plan proves for tiles and staging
    alone, without the copies that XLA makes. For a tree both refer to the fullest moment, and
    ``others_bytes`` is what the device then holds of the arrays that are not being moved.
    """

    n_arrays: int
    n_devices: int
    redist: CompiledFigures
    xla: CompiledFigures
    lower_bound_bytes: int
    tiles_bytes: int
    bound_bytes: int
    certified_bytes: int
    others_bytes: int = 0
    is_donated: bool = False

    @property
    def saved_bytes(self) -> int | None:
        """Memory per device that the plan saves; negative if XLA's own resharding needs less."""
        if self.redist.held_bytes is None or self.xla.held_bytes is None:
            return None
        return self.xla.held_bytes - self.redist.held_bytes

    def __str__(self) -> str:
        what = f"{count_of(self.n_arrays, 'array')}, {count_of(self.n_devices, 'device')}"
        least = CompiledFigures(self.lower_bound_bytes, self.tiles_bytes)
        rows = [
            (what, "received by all", "/ least", "peak per device", "= source, target", "+ extra"),
            self._row("redist", self.redist),
            self._row("XLA's own", self.xla),
            self._row("least possible", least),
        ]
        bounds = (
            f"redist guarantees at most {format_bytes(self.bound_bytes, round_up=True)} on any device: "
            f"{self._parts()}; tiles and staging are proved"
        )
        return "\n".join([*table(rows), self._verdict(), bounds])

    def _parts(self) -> str:
        need = self.bound_bytes - self.others_bytes
        return parts_of(self.others_bytes, self.certified_bytes, need)

    def _row(self, name: str, found: CompiledFigures) -> tuple[str, ...]:
        ratio = ""
        if found.received_bytes is not None and self.lower_bound_bytes:
            ratio = f"{found.received_bytes / self.lower_bound_bytes:.2f} x"
        peak, tiles, extra = found.held_bytes, format_bytes(self.tiles_bytes), self._extra(found)
        return name, _text(found.received_bytes), ratio, _text(peak), tiles, _text(extra)

    def _extra(self, found: CompiledFigures) -> int | None:
        """What a way takes on top of what both hold anyway."""
        return None if found.held_bytes is None else found.held_bytes - self.tiles_bytes

    def _verdict(self) -> str:
        saved, ours, theirs = self.saved_bytes, self._extra(self.redist), self._extra(self.xla)
        if saved is None:
            return "XLA does not report here how much memory its programs need"
        both = "source and target"
        if self.is_donated:
            both += " (donated)"
        if saved == 0:
            return f"in addition to {both}, both need {_text(ours)} per device"
        end = f"{format_bytes(abs(saved))} {'less' if saved > 0 else 'more'}"
        return (
            f"in addition to {both}, redist needs {_text(ours)} per device and XLA's own resharding "
            f"{_text(theirs)}: redist needs {end}"
        )


def _text(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else format_bytes(n_bytes)


@checked
def compare(
    x: Any, sharding: Any, limit_bytes: int | str | None = None, *, donate: bool = False
) -> Comparison:
    """The memory and traffic that :func:`redistribute` saves, compared with XLA's own resharding.

    ``print(redist.jax.compare(x, sharding))`` shows both in a table: the part of the peak that both hold
    anyway (source and target), and what each takes on top of it. Nothing moves; both programs are compiled.
    With ``donate`` both may reuse the memory of the source, although no array is given away here. For a
    tree, arrays that JAX moves by itself, from the host or between different devices, are left out.
    """
    moves, _ = moves_of(x, sharding)
    rooms = {k: room for k, room, _ in steps_of(moves, limit_from(limit_bytes), donate)}
    planned = [k for k, move in enumerate(moves) if move.ends is not None]
    if not planned:
        raise RequestError(f"cannot compare: no plan moves anything here; {_why_no_plan(moves)}")
    gives = given_away(moves, donate)
    others = others_bytes(moves, order_of(moves, gives), gives)
    held = [others[k] for k in planned]
    found = [_measured(moves[k], rooms[k], gives[k]) for k in planned]
    plans = [one.plan for one in found]
    bounds = [one.bound_bytes + other for one, other in zip(found, held, strict=True)]
    most = bounds.index(max(bounds))
    return Comparison(
        len(planned),
        plans[0].source.mesh.n_devices,
        _together([one.redist for one in found], held),
        _together([one.xla for one in found], held),
        sum(plan.lower_bound_bytes for plan in plans),
        _fullest([one.tiles_bytes for one in found], held),
        bounds[most],
        plans[most].peak_bytes,
        held[most],
        donate,
    )


def _why_no_plan(moves: Sequence[LeafMove]) -> str:
    moved = [move for move in moves if move.is_moved]
    far = [move for move in moved if is_on_devices(move.value)]
    if far:
        wanted = far[0].wanted
        assert wanted is not None
        if far[0].is_kind_alone:
            return (
                f"{far[0].name or 'the array'} only changes its kind of memory, and JAX moves it by itself, "
                "with jax.device_put"
            )
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


@dataclass(frozen=True, slots=True)
class _Measured:
    """One move: its plan, what it costs, what XLA's own way costs, and what both hold anyway."""

    plan: Plan
    redist: CompiledFigures
    xla: CompiledFigures
    tiles_bytes: int
    bound_bytes: int


def _measured(move: LeafMove, limit_bytes: int | None, donate: bool) -> _Measured:
    assert move.ends is not None and move.wanted is not None
    like = jax.ShapeDtypeStruct(move.value.shape, move.value.dtype, sharding=move.own)
    plan = plan_between(*move.ends, limit_bytes, donate, move.platform)
    is_gone = donate and is_reused(*move.ends)
    return _Measured(
        plan,
        _figures(move.program(limit_bytes, donate), like),
        _figures(_own_way(move.wanted, is_gone), like),
        move.after_bytes + (0 if is_gone else move.before_bytes),
        peak_bytes(lower_plan(plan, XLA), is_gone, goes_as_bits(plan.source.dtype, move.platform)),
    )


@lru_cache(maxsize=2**12)
def _own_way(sharding: Any, donate: bool) -> Any:
    given = (0,) if donate else ()
    return jax.jit(lambda x: x, out_shardings=sharding, donate_argnums=given)


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
