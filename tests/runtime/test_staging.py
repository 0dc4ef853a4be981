"""Staging: no message is larger than every MPI takes, and what must be received finds room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redist
from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.plan.rates import FLAT
from redist.runtime.copies.strided import c_strides
from redist.runtime.host.staging import MAX_MESSAGE_BYTES, MessageNeeds, Packing, Staging
from redist.runtime.schedule.compiler import Bases, Compiler
from redist.runtime.schedule.pieces import StepPieces, pieces_of_step
from redist.runtime.schedule.rounds import parts_needed
from redist.runtime.schedule.stages import StagePart
from tests.fakes.ranks import compiled


def needs(*shapes: tuple[int, ...]) -> MessageNeeds:
    """What rank 0 needs to send contiguous pieces to rank 1, which is on another node."""
    pieces = tuple(Piece(0, 1, 0, (0,) * len(s), (0,) * len(s), s, s, s) for s in shapes)
    phase = StepPieces(pieces, None, False, False, False, shapes[0])
    return MessageNeeds(StagePart(phase, DType.parse("u8")), 0, (0,))


@given(st.lists(st.integers(1, 2**36), min_size=1, max_size=4))
def test_parts_bring_every_message_below_the_limit(sizes: list[int]) -> None:
    needed = needs(*((n,) for n in sizes))
    parts = parts_needed(needed.largest, MAX_MESSAGE_BYTES, max(sizes))
    assert needed.largest(parts) <= MAX_MESSAGE_BYTES
    assert needed.largest(1) == sum(sizes)


@pytest.mark.parametrize("shape", [(5 * 2**30,), (3, 2**31), (2**20, 4096)])
def test_contiguous_pieces_need_no_staging_but_are_cut(shape: tuple[int, ...]) -> None:
    needed = needs(shape)
    assert needed.soft(1) == needed.hard(1) == 0
    assert parts_needed(needed.largest, MAX_MESSAGE_BYTES, 2**40) > 1


@pytest.mark.parametrize("ranks", [3, 200, 300])
def test_partial_values_of_many_nodes_find_room(ranks: int) -> None:
    mesh = redist.Mesh(x=ranks)
    plan = redist.synthesize(f"c128[{ranks}] sum{{x}}", f"c128[{ranks}{{x}}]", mesh=mesh)
    (phase,) = pieces_of_step(plan.steps[0], plan.source, 0, FLAT)
    stage_part, bases = StagePart(phase, plan.source.dtype), Bases(1, (0,))
    apart: Any = SimpleNamespace(
        rank=0,
        size=ranks,
        node=SimpleNamespace(ranks=(0,), groups=tuple(range(ranks)), place=0),
        one_node=False,
        all_max=lambda values: None,
        gather_on_node=lambda value: [value],
    )
    staging = Staging.of(apart, [stage_part], plan.steps[0].staging_bytes, False)
    strides = [c_strides((ranks,), 16)], [c_strides((1,), 16)]
    room = staging.send_bytes, staging.receive_bytes
    compiler = Compiler(0, [stage_part], bases, {}, staging.offsets, *strides, room)
    for round_parts in staging.rounds:
        for message in compiler.round(round_parts).receives:
            forms = message.forms or ((message.base, message.offset, None),)
            for base, offset, form in forms:
                n_bytes = message.n_bytes if form is None else form.n_bytes
                assert base != bases.receive or offset + n_bytes <= staging.receive_bytes


@pytest.mark.parametrize(("side", "sizes"), [(2048, [2**18] * 14), (512, [2**14] * 14)])
def test_pieces_to_other_nodes_take_turns_where_staging_has_two_halves(
    side: int, sizes: list[int]
) -> None:
    ends = f"f64[{side}{{x}}, {side}]", f"f64[{side}, {side}{{x}}]"
    plan = redist.synthesize(*ends, mesh=redist.Mesh(x=8))
    _, rounds = compiled(plan, 0, 0, range(8), plan.steps[0].staging_bytes)
    for rank in (0, 5):
        sent = [m for round_ in rounds[rank] for m in round_.sends]
        assert [m.n_bytes for m in sent] == sizes and not any(m.forms for m in sent)
        peers = [m.peer for m in sent]
        assert sorted(set(peers)) == [peer for peer in range(8) if peer != rank]


@pytest.mark.parametrize("ends", [
    ("f32[30{x}, 21]", "f32[30, 21{x}]"),
    ("f32[30, 21{x}]", "f32[30{x}, 21]"),
    ("f64[300, 40] sum{x}", "f64[300{x}, 40]"),
])  # fmt: skip
def test_what_no_datatype_carries_is_packed(ends: tuple[str, str]) -> None:
    plan = redist.synthesize(*ends, mesh=redist.Mesh(x=3))
    packing = Packing(strided=True, overlaps=False, book_bytes=0)
    for staging_bytes in (0, plan.steps[0].staging_bytes):
        _, rounds = compiled(plan, 0, 0, range(3), staging_bytes, packing)
        sent = [m for own in rounds for round_ in own for m in round_.sends]
        assert sent and not any(m.forms for m in sent)
        assert not any(m.forms for own in rounds for round_ in own for m in round_.receives)
