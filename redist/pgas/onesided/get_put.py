"""The global address space: any rank reads and writes any element, without the others' help.

In an SPMD program::

    with a.epoch():                                  # all ranks begin
        if comm.rank == 2:
            row = a.get((7, slice(None)))            # nobody else takes part
            a.put((0, slice(0, 10, 2)), 1.0)
        a.accumulate(([1, 1, 5], 0), 1.0, "sum")     # repeated indices all count
    print(a.get((0, 0)))                             # all ranks have ended: everything is there

**When effects are visible.** :func:`fence` divides an epoch into intervals. Reads in an interval see
the values from its start, even of elements that the reading rank itself has put. Writes are kept by the
rank that makes them (their values, stored once where they repeat, and one word for each index in a list;
counted against the memory limit) and performed by the owners of the elements when the interval ends. They
are performed in the order of the ranks that made them and, for one rank, in the order in which it made
them: of several puts to one element, the last one of the highest rank stays, and sums of floats are the
same in every run. Every copy of a replicated tile is written. Values of 64 KiB or more stay in shared
memory, where owners on the same node read them; other records are sent in messages of 1 MiB.

Outside an epoch, :func:`get` reads the current values; what it sees of writes to ``a.local`` since the
ranks last met is undefined. Inside an epoch, do not use ``a.local`` or in-place operators of ``a``.

**Errors** of an operation (an index out of range, values that do not fit, no epoch) are raised at once, on
its rank only, and the epoch goes on. If an exception leaves the epoch on one rank, the others learn of it at
their next fence, or at the end: they raise :class:`redist.PeerError`, and nothing in that interval is done.
The array and the communicator stay usable.

**Where tiles are.** Tiles of 64 KiB or more lie in shared memory: within a node, a read is a load. Smaller
tiles, and tiles from :func:`from_local`, are read through the kernel. On other nodes, a thread answers.
An array becomes reachable with its first epoch or fence, and its tiles then stay in memory until it has
died on every rank and another array becomes reachable.

**On GPUs**, the result of a read is a CuPy array, even for a single element: looking at its value waits for
the stream and for a copy to the host. Every rank waits for its current stream before it meets the others.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from redist.errors import ArgumentTypeError, IndexKeyError, RequestError
from redist.pgas.kinds import can_cast, promote
from redist.pgas.onesided.address_space import NAMES, ArrayAccess
from redist.pgas.onesided.epochs import begin
from redist.pgas.onesided.index_selection import select
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device
from redist.runtime.ranks.tokens import EpochEvent


def get(a: Tiled, index: Any) -> Any:
    """**Local.** Read the elements at a global index, by NumPy's rules, as a NumPy array or one number.

    Inside an epoch, these are the values from the start of the interval; outside, the current values.
    """
    space = _space(a)
    at = (index,) if type(index) is int else index
    if type(at) is tuple and len(at) == len(space.shape):
        shard = 0
        inside = []
        for i, n, cut in zip(at, space.shape, space.cuts):  # noqa: B905
            if type(i) is not int or not -n <= i < n:
                break
            tile, place = cut.place_of(i + n if i < 0 else i)
            shard = shard * cut.n_tiles + tile
            inside.append(place)
        else:
            view = space.views[shard]
            if view is not None:
                return view[tuple(inside)]
            private = space.peeked.get(shard)
            if private is not None:
                return private.item(inside)
    return space.read(select(index, space.shape))


def put(a: Tiled, index: Any, values: Any) -> None:
    """**Local.** Write values at a global index when the interval ends; NumPy's ``a[index] = values``.

    ``values`` are broadcast and cast as in NumPy, and may be changed after the call.
    """
    space = _open(a, "put into")
    values = _own_kind(a, "put", values)
    space.write(select(index, space.shape), values, "replace")


def accumulate(a: Tiled, index: Any, values: Any, op: str = "sum") -> None:
    """**Local.** Combine elements with values when the interval ends: sum, prod, max, min or replace.

    An element that the index names several times is combined several times. Values are first cast to the
    array's dtype, and refused where NumPy's ``a[index] += values`` would refuse them.
    """
    space = _open(a, "accumulate into")
    values = _own_kind(a, "accumulate", values)
    if op not in NAMES:
        raise RequestError(f"cannot accumulate by {op!r}: known are {', '.join(NAMES)}")
    if op != "replace":
        if space.type.dtype.extended_name is not None:
            raise RequestError(f"cannot accumulate {space.type.dtype}: NumPy has no sums of it")
        if not (isinstance(values, (bool, int, float, complex)) or is_device(values)):
            values = np.asarray(values)
        if not can_cast(promote(space.dtype, values), space.dtype, "same_kind"):
            kind = getattr(values, "dtype", type(values).__name__)
            raise ArgumentTypeError(
                f"cannot accumulate {kind} into {space.type}: it would lose its kind"
            )
    space.write(select(index, space.shape), values, op)


def _space(a: Tiled) -> ArrayAccess:
    """The array's place in the global address space, as it is now."""
    space: ArrayAccess | None = a._space
    if space is None:
        if a.comm.size > 1:
            _refuse(a, "it has not been made reachable")
        return begin(a, EpochEvent.FENCE, None)
    if space.tile is not a.tile or space.type is not a._type:
        if a.comm.size > 1:
            _refuse(a, "its tiles have changed places since the ranks last met")
        return begin(a, EpochEvent.FENCE, None)
    return space


def _own_kind(a: Tiled, verb: str, values: Any) -> Any:
    """Values as they are; those of a GPU as an array of CuPy. Refuse what one rank alone cannot write."""
    if isinstance(values, Tiled):
        raise ArgumentTypeError(
            f"cannot {verb} the global array {values.type} into {a.type}: one rank alone has no other "
            "rank's values; write a.gather() for all of it, or a.local for this rank's tile"
        )
    if not is_device(values):
        return values
    if not a.memory.on_device:
        raise ArgumentTypeError(
            f"cannot {verb} values of a GPU into {a.type}: it lies in memory; give cupy.asnumpy(values)"
        )
    return as_device(values)


def check_closed(a: Tiled, verb: str) -> None:
    """**Local.** Refuse a call of all ranks inside an epoch, where each rank calls alone."""
    space: ArrayAccess | None = a._space
    if space is not None and space.is_open:
        raise IndexKeyError(
            f"cannot {verb} {a.type} at a global array of indices: an epoch is open, in which each rank "
            "calls alone; end it, or give all indices to this rank by .gather()"
        )


def _refuse(a: Tiled, why: str) -> NoReturn:
    raise RequestError(
        f"cannot get elements of {a.type}: {why}; call a.fence() on all ranks, "
        "or read inside `with a.epoch():`"
    )


def _open(a: Tiled, verb: str) -> ArrayAccess:
    space: ArrayAccess | None = a._space
    if space is None or not space.is_open:
        raise RequestError(f"cannot {verb} {a.type}: no epoch is open; write `with a.epoch():`")
    if space.window.fixed:
        raise RequestError(
            f"cannot {verb} {a.type}: the tile of rank {space.window.fixed[0]} is read-only"
        )
    return space
