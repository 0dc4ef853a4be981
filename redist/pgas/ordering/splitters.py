"""Find where to cut sorted runs of several ranks so that each part has an exact number of elements.

Ranks show samples of what is still open, and all conclude the same from them: each round narrows every
interval several times, and no data moves before the places are known. Samples of runs on GPUs come to the
host.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.tiles import Ints
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.ranks.world import Comm
from redist.text.units import ceil_div

FEW, MANY = 8, 64
"""Elements that a rank shows of one open interval in a round: at least, at most."""
FLAG_BYTES = 8


def find_splitters(
    comm: Comm, rows: Tile, members: list[int], sizes: Ints, targets: Ints, most_rows: int
) -> tuple[Ints, int]:
    """**Collective over** ``comm``. Count how many elements of every member belong left of each target.

    ``rows`` has this rank's sorted rows; ``members`` are the ranks that hold parts of them, in the
    order of equal elements, with ``sizes`` elements in each row. Groups of ranks work side by side,
    with as many targets, the same sizes, and at most ``most_rows`` rows. Gives [row, target, member],
    and the bytes that other ranks showed this one.
    """
    n_rows, n_targets = len(rows), len(targets)
    lo = np.zeros((n_rows, n_targets, len(members)), dtype=np.int64)
    hi = np.broadcast_to(sizes, lo.shape).copy()
    me = members.index(comm.rank) if comm.rank in members else None
    n = samples(int(sizes.max(initial=0)), len(members))
    shape = most_rows, n_targets, n
    message = np.zeros(FLAG_BYTES + math.prod(shape) * rows.dtype.itemsize, np.uint8)
    shown = message[FLAG_BYTES:].view(rows.dtype).reshape(shape)
    received = 0
    while True:
        _close_ends(lo, hi, targets)
        still = np.argwhere((lo < hi).any(axis=2)) if me is not None else np.empty((0, 2), np.int64)
        if len(members) == comm.size and not len(still):
            return lo, received
        message[0] = len(still) > 0
        _show(shown, rows, still, *(one[:, :, me] for one in (lo, hi) if me is not None))
        told = traffic().tell_all(comm, message)
        received += told.nbytes - message.nbytes
        if not told[:, 0].any():
            return lo, received
        if me is None:
            continue
        seen = np.ascontiguousarray(told[members, FLAG_BYTES:]).view(rows.dtype)
        seen = seen.reshape(len(members), *shape)
        for r, k in still.tolist():
            _narrow(lo[r, k], hi[r, k], int(targets[k]), seen[:, r, k])


def _show(shown: Tile, rows: Tile, still: Ints, *ends: Ints) -> None:
    """**Local.** Put samples of all open intervals into a message: a GPU is asked once."""
    if not len(still):
        return
    lo, hi = ends
    n = shown.shape[-1]
    every = [_sample_places(int(lo[r, k]), int(hi[r, k]), n) for r, k in still.tolist()]
    places = [r * rows.shape[1] + at for (r, _), at in zip(still.tolist(), every, strict=True)]
    values = values_at(rows.reshape(-1), np.concatenate(places))
    start = 0
    for (r, k), at in zip(still.tolist(), every, strict=True):
        shown[r, k, : len(at)] = values[start : start + len(at)]
        start += len(at)


def values_at(row: Any, places: Ints) -> Tile:
    """**Local.** Some values of a row, which may lie on a GPU, in memory: samples."""
    return to_host(row[to_device(places)]) if is_device(row) else row[places]


def samples(size: int, members: int) -> int:
    """How many of ``size`` elements to show, so that what all show of all targets is about as large.

    >>> samples(5, 4), samples(300, 4), samples(10**6, 4)
    (5, 25, 64)
    """
    return min(size, MANY, max(FEW, size // max(1, members * (members - 1))))


def _close_ends(lo: Ints, hi: Ints, targets: Ints) -> None:
    """Close intervals whose lower or upper ends sum to the target."""
    low = lo.sum(axis=2) == targets
    hi[low] = lo[low]
    high = hi.sum(axis=2) == targets
    lo[high] = hi[high]


def _sample_places(lo: int, hi: int, n: int) -> Ints:
    """Places to show between lo and hi, the last of each of up to ``n`` equal steps."""
    step = max(1, ceil_div(hi - lo, max(1, n)))
    return np.arange(lo + step - 1, hi, step, dtype=np.int64)


def _narrow(lo: Ints, hi: Ints, target: int, seen: Tile) -> None:
    """Move the ends of every member's interval as far as the samples allow.

    Of a sample, each member has at least as many smaller elements as its last smaller sample says,
    and at most as many as its next one says.
    """
    shown = seen.shape[-1]
    places = [_sample_places(int(a), int(b), shown) for a, b in zip(lo, hi, strict=True)]
    owner = np.repeat(np.arange(len(lo)), [len(at) for at in places])
    place = np.concatenate(places)
    value = np.concatenate([seen[q, : len(at)] for q, at in enumerate(places)])
    order = np.lexsort((place, owner, value))
    owner, place = owner[order], place[order]
    every = np.arange(len(order))
    least = np.tile(lo, (len(order), 1))
    least[every[1:], owner[:-1]] = place[:-1] + 1
    least = np.maximum.accumulate(least, axis=0)
    top = np.tile(hi, (len(order), 1))
    top[every, owner] = place
    top = np.minimum.accumulate(top[::-1], axis=0)[::-1]
    below = int(np.searchsorted(top.sum(axis=1), target, "right")) - 1
    above = int(np.searchsorted(least.sum(axis=1), target, "left"))
    if below >= 0:
        lo[:] = least[below]
    if above < len(order):
        hi[:] = top[above]
