"""Exchange parts of arrays between GPUs: an all-to-all of which every rank knows its own counts alone.

Ranks tell each other over the host how many elements go where. What follows is one stage of a transfer, whose
pieces are the parts, so that data goes as it does there: read in place by CUDA IPC, by NCCL, or through
staging::

    host    counts and places          3 numbers for each pair of ranks
    GPU     data 0 | 1 1 1 | 2  ->  out of rank 1:  1 | 1 1 1 | 1 1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.runtime.cuda.stage import CudaStage
from redist.runtime.cuda.transports.ipc import peers_of
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.meeting import Disagreement
from redist.runtime.ranks.tokens import ON_GPU, request_token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import World, world_of
from redist.runtime.schedule.pieces import StepPieces
from redist.runtime.schedule.stages import StagePart

Counts = NDArray[np.int64]
STAGING_BYTES = 2**26
"""What parts that cannot be read in place may take on the way, in memory of the host or of the GPU."""
BYTES = DType.parse("u8")


def exchange(
    comm: MPI.Comm,
    data: Any,
    sent: tuple[Counts, Counts],
    out: Any,
    received: tuple[Counts, Counts],
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective.** Start an all-to-all on the current stream: parts of ``data`` to all, into ``out``.

    As :func:`redist.runtime.ranks.collectives.exchange`, with arrays of the GPU, of one dim, which other
    ranks read: memory of CuPy's pool. Gives the bytes that come from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    itemsize = data.dtype.itemsize
    text = f"parts of {itemsize} bytes an element between GPUs"
    try:
        with world.operation(timeout_s):
            told = _told(
                world, [*sent, received[1], [data.size] * world.size, [out.size] * world.size]
            )
            if not (told[:, 0].sum() - np.trace(told[:, 0])):
                me = world.rank
                _copy(data, int(sent[1][me]), out, int(received[1][me]), int(sent[0][me]))
                return 0
            _pass(comm, world, told * itemsize, data.view(np.uint8), out.view(np.uint8), text)
    except Disagreement as met:
        all_agree(comm, "cannot pass elements", text, met.error, timeout_s)
        raise
    return int(received[0].sum() - received[0][world.rank]) * itemsize


def _told(world: World, rows: list[Any]) -> Counts:
    """**Collective.** Numbers of all ranks: [rank, which, rank]."""
    own: Counts = np.array(rows, np.int64)
    out = np.empty((world.size, *own.shape), np.int64)
    world.wait([world.comm.Iallgather(own, out)])
    return out


def _copy(data: Any, start: int, out: Any, to: int, n: int) -> None:
    """**Local.** Copy what a rank sends itself."""
    if n:
        out[to : to + n] = data[start : start + n]


def _pass(comm: MPI.Comm, world: World, told: Counts, data: Any, out: Any, text: str) -> None:
    """**Collective.** Move the parts, which are bytes, as the pieces of a stage."""
    peers = peers_of(comm, world)
    own = peers.world
    with own.operation(world.failure.timeout_s):
        own.reserve(2, 0)
        stage = CudaStage(
            peers,
            peers.carrier.lease(),
            [_part(told, own.rank)],
            lambda rank: [_part(told, rank)],
            STAGING_BYTES,
            False,
        )
        if stage.run(request_token(text) | ON_GPU, [data], [out]).in_place:
            own.meet_node()
            stage.settle()


def _part(told: Counts, rank: int) -> StagePart:
    """What a rank gives and gets; it takes from itself first, then from the next rank, and so on."""
    size = len(told)
    counts, starts, places, n_data, n_out = (told[:, k] for k in range(5))
    pieces = []
    for distance in range(size):
        pairs = {((rank + distance) % size, rank), (rank, (rank - distance) % size)}
        for a, b in sorted(pairs):
            n = int(counts[a, b])
            if n:
                ends = (int(starts[a, b]),), (int(places[b, a]),)
                shapes = (n,), (int(n_data[a, 0]),), (int(n_out[b, 0]),)
                pieces.append(Piece(a, b, 0, *ends, *shapes))
    step = StepPieces(tuple(pieces), None, False, False, False, (1,))
    return StagePart(step, BYTES)
