"""What the kernels read: the structs of tiles.cu as NumPy has them, and the numbers of kinds of tiles."""

from __future__ import annotations

import numpy as np

THREAD_BITS = 8
MAX_TILE_DIMS = 10
MAX_BITS = 14
MAX_GROUP = 64
"""Pieces that interleave in one row."""
DIRECT, SHARED, GROUPED = range(3)
"""Straight copies; through shared memory; the same for rows that interleave."""

LOOSE = 5
"""In place of log2 of a word: long runs that lie anywhere. The kernel aligns what it writes."""

CELLS = {6: 1, 7: 2}
"""In place of log2 of a word: transposes of elements of this many bytes, in words of 4; see blocking.py."""

NEVER = 0xFFFFFFFF
"""The limit of a shape whose tiles are never whole."""
KIND_AT = 24
"""In a row the kind of its tiles stands above the number of their shape."""

DIM = np.dtype(
    [
        ("n", "u4"),
        ("magic", "u4"),
        ("shift", "u4"),
        ("full", "u4"),
        ("dst_step", "i8"),
        ("src_step", "i8"),
        ("last", "u4"),
        ("tracked", "u4"),
        ("unused", "u4", (2,)),
    ]
)
BIT = np.dtype([("offset", "i8"), ("place", "u4"), ("slot", "u4")])
SHAPE = np.dtype(
    [
        ("kind", "u4"),
        ("n_dims", "u4"),
        ("limit", "u4"),
        ("guard", "u4"),
        ("tracked_at", "u4"),
        ("tracked_mask", "u4"),
        ("tracked_shift", "u4"),
        ("group_turns", "u4"),
        ("run", "i8"),
        ("unused", "i8"),
        ("dims", DIM, (MAX_TILE_DIMS,)),
        ("src", BIT, (MAX_BITS,)),
        ("dst", BIT, (MAX_BITS,)),
    ]
)
"""Of tiles: how their numbers are read, and what every bit of an element's number means."""

ROW = np.dtype([("first", "u4"), ("shape", "u4"), ("member", "u4"), ("n_members", "u4")])
"""Tiles that are alike: the number of the first, their shape, and where they are read and written."""
MEMBER = np.dtype(
    [
        ("dst_offset", "i8"),
        ("src_offset", "i8"),
        ("dst", "u4"),
        ("src", "u4"),
        ("n_sources", "u4"),
        ("fresh", "u4"),
    ]
)
"""A target and a source: a buffer each, and how far from its start."""
