"""Every number by which ranks recognise each other's operations: tokens of meetings, tags of messages.

A rank brings a token to a meeting; all others must bring the same one, else they are in different
operations. Requests have tokens of their own, made of their text: even, and below 2**57. All others
are odd and stand here, so that no two operations can be taken for each other.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

ON_GPU, FIRST_ON_GPU = 2**58, 2**59
"""Added to the token of a request if its arrays lie on GPUs, and if they do so for the first time."""
NEW = 2**57
"""Added to the token of a request if this rank has not prepared it yet."""
FIRST_EPOCH_TOKEN = 2**10 + 1
"""Smaller odd numbers are left for :class:`Token`."""


class Token(IntEnum):
    """What a rank brings to a meeting that is about no request."""

    ERROR = 1
    COMPARE_ROOM = 3
    WRITES_DONE = 5
    READ_NEIGHBOURS = 7
    PROGRAM = 9
    GRAPH_DONE = 11
    LOOP = 13


class EpochEvent(IntEnum):
    """Why ranks meet for one-sided access to an array."""

    BEGIN = 0
    FENCE = 1
    END = 2


class Tag(IntEnum):
    """Tags of messages; no two kinds of messages share one, on whatever communicator they go."""

    ABORT = 1
    DATA = 2
    ELEMENTS = 3
    RECORDS = 4
    READ_REQUEST = 5
    READ_VERDICT = 6
    READ_DATA = 7
    LINKS = 8
    ROWS = 9
    NO_ROWS = 10
    ENDED = 32749
    """On the communicator of all ranks, which is the user's: a number that others hardly take."""


def epoch_token(array: int, event: EpochEvent) -> int:
    """The token of a one-sided meeting for the array of this number.

    >>> epoch_token(0, EpochEvent.BEGIN), epoch_token(1, EpochEvent.FENCE)
    (1025, 1033)
    """
    return FIRST_EPOCH_TOKEN + 2 * (len(EpochEvent) * array + event)


def request_token(text: str) -> int:
    """The token of a request: even, below 2**57, the same on every rank that asks for the same.

    >>> request_token("f32[4{x}] -> f32[4]") % 2
    0
    """
    return 2 * int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
