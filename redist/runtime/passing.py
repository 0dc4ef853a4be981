"""Pass elements between tiles that no plan describes, wherever these lie: in memory, or on GPUs.

All ranks have their tiles in the same kind of memory. Those outside the mesh have no tile: an empty array in
such a memory, or ``gpu_dtype``, says where the others' lie, and what their elements are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.tiles import Ints
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.elements import by_index, by_position, inspected
from redist.runtime.elements.by_index import Side
from redist.runtime.elements.inspected import Inspection, Passed
from redist.runtime.ranks import collectives
from redist.runtime.ranks.world import Comm

Parts = tuple[Ints, Ints]
Tile = Any


def exchange(comm: Comm, data: Tile, sent: Parts, out: Tile, received: Parts) -> int:
    """**Collective.** An all-to-all: parts of ``data`` to every rank, what comes into ``out``."""
    if not is_device(data):
        return collectives.exchange(comm, data, sent, out, received)
    from redist.runtime.cuda.exchange import exchange as between_gpus

    return between_gpus(comm, data, sent, out, received)


def select(
    comm: Comm, source: Side, target: Side, of: Tile | None, to: Tile | None, room: int,
    gpu_dtype: DType | None = None,
) -> int:  # fmt: skip
    """**Collective.** Fill a part of a tile from a part of another array, by index along every dim.

    ``gpu_dtype`` is that of tiles on GPUs, also on ranks that have none; None if tiles lie in host memory.
    """
    if gpu_dtype is None:
        return by_index.exchange(comm, source, target, of, to, room)
    from redist.runtime.cuda.by_index import exchange as between_gpus

    return between_gpus(comm, source, target, of, to, gpu_dtype, room)


def fetch(
    comm: Comm, t: ArrayType, tile: Tile | None, rounds: int,
    positions: Callable[[int, int], Ints], out: Tile, round_elems: int,
) -> int:  # fmt: skip
    """**Collective.** Fill ``out`` with elements at any positions of an array."""
    if not is_device(out):
        return by_position.fetch(comm, t, tile, rounds, positions, out, round_elems)
    from redist.runtime.cuda.by_position import fetch as from_gpus

    return from_gpus(comm, t, tile, rounds, positions, out, round_elems)


def store(
    comm: Comm, t: ArrayType, tile: Tile | None, rounds: int, n: int,
    positions: Callable[[int, int], Ints], values: Callable[[int, int], Tile], round_elems: int,
) -> int:  # fmt: skip
    """**Collective.** Write elements to any positions of an array; of several at one place one stays."""
    if not is_device(values(0, 0)):
        return by_position.store(comm, t, tile, rounds, n, positions, values, round_elems)
    from redist.runtime.cuda.by_position import store as to_gpus

    return to_gpus(comm, t, tile, rounds, n, positions, values, round_elems)


def inspect(
    comm: Comm, t: ArrayType, positions: Ints, width: int, every_copy: bool = False
) -> Inspection:
    """**Collective.** Tell ranks which elements this one asks for, and hear what they ask of it."""
    found = inspected.inspect(comm, t, to_host(positions), width, every_copy)
    if not is_device(positions):
        return found
    from redist.runtime.cuda.inspected import on_gpu

    return on_gpu(found)


def joined(several: Sequence[Inspection]) -> Inspection:
    """**Local.** What several inspections of one array ask for, as one."""
    if not is_device(several[0].given):
        return inspected.joined(several)
    from redist.runtime.cuda.inspected import joined_on_gpu

    return joined_on_gpu(several)


def read(
    comm: Comm, t: ArrayType, found: Inspection, tile: Tile | None, outs: Sequence[Tile]
) -> Passed:
    """**Collective.** Fill results with the elements that an inspection is of."""
    if not is_device(found.given):
        return inspected.read(comm, t, found, tile, outs)
    from redist.runtime.cuda.inspected import read as from_gpus

    return from_gpus(comm, t, found, tile, outs)


def combine(
    comm: Comm, t: ArrayType, found: Inspection, tile: Tile | None, values: Tile, op: str
) -> Passed:
    """**Collective.** Combine elements that an inspection is of with values, or replace them."""
    if not is_device(values):
        return inspected.combine(comm, t, found, tile, values, op)
    from redist.runtime.cuda.inspected import combine as on_gpus

    return on_gpus(comm, t, found, tile, values, op)
