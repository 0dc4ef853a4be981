"""No two operations share a token, no two kinds of messages a tag."""

from __future__ import annotations

from itertools import product

import pytest

from redist.layout.mesh import Mesh
from redist.runtime.ranks.tokens import (
    FIRST_EPOCH_TOKEN,
    FIRST_ON_GPU,
    NEW,
    ON_GPU,
    EpochEvent,
    Tag,
    Token,
    epoch_token,
)
from redist.runtime.request import TransferOptions, TransferRequest


@pytest.mark.parametrize("numbers", [Token, Tag, EpochEvent], ids=lambda kind: kind.__name__)
def test_a_number_has_one_name(numbers: type[Token] | type[Tag] | type[EpochEvent]) -> None:
    assert len(numbers) == len(numbers.__members__), "a second name is an alias of the first"


def test_epochs_of_arrays_have_tokens_of_their_own() -> None:
    tokens = [epoch_token(array, event) for array, event in product(range(200), EpochEvent)]
    assert len({*tokens, *Token}) == len(tokens) + len(Token)
    assert min(tokens) == FIRST_EPOCH_TOKEN > max(Token)
    assert all(token % 2 == 1 for token in (*tokens, *Token)), "even ones are of requests"


def test_what_is_added_to_the_token_of_a_request_leaves_it_apart_from_all_others() -> None:
    request = TransferRequest.of("f32[4{x}]", "f32[4]", Mesh(x=2), None, 2, TransferOptions())
    token = request.token
    seen = {token | a | b | c for a, b, c in product((0, NEW), (0, ON_GPU), (0, FIRST_ON_GPU))}
    assert len(seen) == 8
    assert all(number % 2 == 0 and 2 * number + 1 < 2**63 for number in seen)
