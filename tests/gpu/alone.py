"""NCCL itself, by a communicator of one rank that sends to itself. Needs a GPU.

As in ``python -m tests.gpu.alone``.
"""

from __future__ import annotations

import itertools

import numpy as np
from mpi4py import MPI

from redist.errors import TransferError
from redist.runtime.cuda_moves import CudaMoves
from redist.runtime.cuda_nccl import joined, nccl_version
from redist.runtime.cuda_program import CudaRound
from redist.runtime.moves import Move
from redist.runtime.program import Message
from redist.runtime.strided import Strided
from redist.runtime.worlds import world_of
from tests.mpi.together import main

TARGET, SOURCE, SEND, RECEIVE = range(4)
ROWS, COLUMNS, ROUNDS = 1024, 384, 8


def program() -> int:
    """0 if every other column arrived, packed in rounds of many messages."""
    import cupy

    try:
        version = nccl_version()
    except TransferError as error:
        print(f"SKIP {error}", flush=True)
        return 0
    carrier = joined(world_of(MPI.COMM_SELF), 60.0)
    carrier.try_out(60.0)
    rows = ROWS // ROUNDS
    part = rows * COLUMNS // 2  # bytes of a round
    rounds = []
    for k in range(ROUNDS):
        at = k * rows * COLUMNS
        form = Strided(1, ((rows, COLUMNS // 2, COLUMNS), (COLUMNS // 2, 1, 2)))
        back = Strided(1, ((rows, COLUMNS, COLUMNS // 2), (COLUMNS // 2, 2, 1)))
        cuts = [0, 1, 33, part // 2 + 5, part]
        ends = list(itertools.pairwise(cuts))
        rounds.append(
            CudaRound(
                CudaMoves.of([Move(SEND, 0, SOURCE, at, form)]),
                tuple(Message(0, SEND, a, b - a) for a, b in ends),
                tuple(Message(0, RECEIVE, a, b - a) for a, b in ends),
                CudaMoves.of([]),
                CudaMoves.of([Move(TARGET, at, RECEIVE, 0, back)]),
                (),
            )
        )
    values = np.random.default_rng(3).integers(0, 256, (ROWS, COLUMNS), np.uint8)
    for _ in range(3):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            source, target = cupy.asarray(values), cupy.zeros((ROWS, COLUMNS), np.uint8)
            room = carrier.room()
            room.reserve(part, part)
            before = cupy.get_default_memory_pool().used_bytes()
            with room.lent() as (send, receive):
                taken = cupy.get_default_memory_pool().used_bytes() - before
                table = np.array([target.data.ptr, source.data.ptr, send, receive], np.uintp)
                carrier.carry(rounds, room, table, stream, None, 60.0)
            source[...] = 0
            got = cupy.asnumpy(target)
        assert np.array_equal(got[:, ::2], values[:, ::2]) and not got[:, 1::2].any()
        assert taken <= room.n_bytes + 1024, (taken, room.n_bytes)
    print(f"NCCL agrees (1 rank), version {'.'.join(map(str, version))}", flush=True)
    return 0


if __name__ == "__main__":
    main(program)
