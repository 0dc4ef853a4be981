"""The random problems of ``fuzz`` by ranks that share pretended GPUs: one rank moves for all.

Memory of the pretended GPU lies in files that other processes map, as CUDA IPC would let them. As in
``mpirun -n 4 python -m tests.programs.gpu.sharing --gpus 2 --n 30``.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import itertools
import mmap
import os
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from redist.runtime.cuda.transports import ipc as cuda_peers
from redist.runtime.cuda.transports import opened_memory
from redist.runtime.cuda.transports import shared_gpu as cuda_sharing
from redist.runtime.cuda.transports.opened_memory import OpenedMemory
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu import fuzz
from tests.programs.together import all_well, main

FOLDER = "/dev/shm/"
LATE_S = 2e-3
"""So long the rank that moves for all lets the others wait: none may go on before."""


class SharedMemory:
    """Bytes that other processes can map; they stay until the end, as those of a pool do."""

    _numbers = itertools.count(1)
    made: dict[int, SharedMemory]

    def __init__(self, n_bytes: int) -> None:
        self.number = next(self._numbers)
        self.name = f"pretended_gpu_{os.getpid()}_{self.number}"
        NAMES.append(self.name)
        self.n_bytes = max(1, n_bytes)
        file = os.open(FOLDER + self.name, os.O_CREAT | os.O_RDWR)
        os.ftruncate(file, self.n_bytes)
        self.bytes = np.frombuffer(mmap.mmap(file, self.n_bytes), np.uint8)
        os.close(file)
        self.bytes[:] = 0xA5
        self.ptr = int(self.bytes.ctypes.data)
        self.made[self.ptr] = self


SharedMemory.made = {}
NAMES: list[str] = []
"""Files to be removed in the end: an address may come again."""
OPENED: dict[int, Any] = {}


def place_of(address: int) -> OpenedMemory:
    """Where an address lies in memory of this process."""
    for start, memory in SharedMemory.made.items():
        if start <= address < start + memory.n_bytes:
            return OpenedMemory(
                memory.name.encode().ljust(64, b"\0"), memory.number, address - start
            )
    raise ValueError("no such memory")


def open_memory(handle: bytes, flags: int) -> int:
    """Memory of another process, mapped here."""
    file = os.open(FOLDER + handle.rstrip(b"\0").decode(), os.O_RDWR)
    found = np.frombuffer(mmap.mmap(file, 0), np.uint8)
    os.close(file)
    OPENED[int(found.ctypes.data)] = found
    return int(found.ctypes.data)


def forget() -> None:
    """Remove the files."""
    for name in NAMES:
        with contextlib.suppress(OSError):
            os.unlink(FOLDER + name)


LEAD = "one of every GPU moves for the others"
CHECKS = (*fuzz.CHECKS, LEAD)


@contextlib.contextmanager
def pretended_gpus(gpus: int) -> Iterator[list[int]]:
    """Ranks on so many pretended GPUs while the block runs; how often this one moved for all of its own."""
    atexit.register(forget)
    pretend.Memory = SharedMemory  # type: ignore[misc, assignment]
    gpu = MPI.COMM_WORLD.rank * gpus // MPI.COMM_WORLD.size
    pretend.install(f"gpu {gpu}", quick=MPI.COMM_WORLD.rank % 2 == 1)
    runtime: Any = sys.modules["cupy.cuda"].runtime
    runtime.ipcOpenMemHandle = open_memory
    runtime.ipcCloseMemHandle = lambda address: None
    runtime.ipcOpenEventHandle = lambda handle: 0
    led = [0]
    run: Any = cuda_sharing.GpuMates.run

    def counted(self: cuda_sharing.GpuMates, *given: Any) -> None:
        led[0] += 1
        time.sleep(LATE_S)
        run(self, *given)

    with (
        patch.object(opened_memory, "place_of", place_of),
        patch.object(cuda_peers, "can_open", lambda world: []),
        patch.object(cuda_sharing.GpuMates, "run", counted),
    ):
        yield led


def program() -> int:
    """0 if all ranks agree with the simulator, and the first of every GPU has moved for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=1)
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    with pretended_gpus(args.gpus) as led:
        status = fuzz.program()
    leaders = sum(n > 0 for n in MPI.COMM_WORLD.allgather(led[0]))
    wrong = None if leaders == args.gpus else f"{leaders} ranks, not {args.gpus}"
    return status if all_well(MPI.COMM_WORLD, LEAD, wrong) else 1


if __name__ == "__main__":
    main(program)
