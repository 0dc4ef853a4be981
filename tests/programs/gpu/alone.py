"""NCCL itself, by a communicator of one rank that sends to itself. Needs a GPU.

As in ``python -m tests.programs.gpu.alone``.
"""

from __future__ import annotations

import itertools

import numpy as np
from mpi4py import MPI

from redist.errors import TransferError
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided
from redist.runtime.cuda.kernels.rounds import CudaCopyList, CudaRound, Gathered
from redist.runtime.cuda.transports.nccl import join, nccl_version
from redist.runtime.ranks.world import world_of
from redist.runtime.schedule.compiler import Message
from tests.programs.together import main

TARGET, SOURCE, SEND, RECEIVE = range(4)
ROWS, COLUMNS, ROUNDS = 1024, 384, 8
PART_BYTES = ROWS // ROUNDS * COLUMNS // 2
"""Of a round."""


def one_round(k: int, gathers: bool) -> CudaRound:
    """Every other column of some rows, in several messages or in one all-gather."""
    rows = ROWS // ROUNDS
    at = k * rows * COLUMNS
    form = Strided(1, ((rows, COLUMNS // 2, COLUMNS), (COLUMNS // 2, 1, 2)))
    back = Strided(1, ((rows, COLUMNS, COLUMNS // 2), (COLUMNS // 2, 2, 1)))
    ends = list(itertools.pairwise([0, 1, 33, PART_BYTES // 2 + 5, PART_BYTES]))
    buffer = RECEIVE if gathers else SEND
    return CudaRound(
        CudaCopyList.of([BufferCopy(buffer, 0, SOURCE, at, form)]),
        () if gathers else tuple(Message(0, SEND, a, b - a) for a, b in ends),
        () if gathers else tuple(Message(0, RECEIVE, a, b - a) for a, b in ends),
        CudaCopyList.of([]),
        CudaCopyList.of([BufferCopy(TARGET, at, RECEIVE, 0, back)]),
        (),
        Gathered((0,), RECEIVE, PART_BYTES) if gathers else None,
    )


def program() -> int:
    """0 if every other column arrived, packed in rounds through one buffer and through two."""
    import cupy

    try:
        version = nccl_version()
    except TransferError as error:
        print(f"SKIP {error}", flush=True)
        return 0
    world = world_of(MPI.COMM_SELF, timeout_s=60.0)
    carrier = join(world)
    carrier.try_out()
    values = np.random.default_rng(3).integers(0, 256, (ROWS, COLUMNS), np.uint8)
    for halves, gathers in itertools.product((1, 2), (False, True)):
        rounds = [one_round(k, gathers) for k in range(ROUNDS)]
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            source, target = cupy.asarray(values), cupy.zeros((ROWS, COLUMNS), np.uint8)
            lease = carrier.lease()
            lease.reserve(halves * PART_BYTES, halves * PART_BYTES)
            before = cupy.get_default_memory_pool().used_bytes()
            with lease.lent() as (send, receive):
                taken = cupy.get_default_memory_pool().used_bytes() - before
                ends = int(target.data.ptr), int(source.data.ptr)
                tables = [
                    np.array([*ends, send + k * PART_BYTES, receive + k * PART_BYTES], np.uintp)
                    for k in range(halves)
                ]
                carrier.carry(rounds, lease, tables, stream, None)
            source[...] = 0
            got = cupy.asnumpy(target)
        assert np.array_equal(got[:, ::2], values[:, ::2]) and not got[:, 1::2].any()
        leased = lease.send_bytes + lease.receive_bytes
        assert taken <= leased + 1024, (taken, leased)
    print(f"NCCL agrees (1 rank), version {'.'.join(map(str, version))}", flush=True)
    return 0


if __name__ == "__main__":
    main(program)
