"""Staging: no message between nodes is larger than every MPI takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.layout.dtype import DType
from redist.runtime.phases import Phase, Piece
from redist.runtime.program import Load
from redist.runtime.rounds import parts_needed
from redist.runtime.staging import MAX_MESSAGE_BYTES, _Needs


def needs(*shapes: tuple[int, ...]) -> _Needs:
    """What rank 0 needs to send contiguous pieces to rank 1, which is on another node."""
    pieces = tuple(Piece(0, 1, 0, (0,) * len(s), (0,) * len(s), s, s, s) for s in shapes)
    phase = Phase(pieces, None, False, False, False, shapes[0])
    return _Needs(Load(phase, DType.named("u8")), 0, (0,))


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
