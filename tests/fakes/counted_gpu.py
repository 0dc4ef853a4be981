"""A pretended GPU that all ranks share, whose pool is counted and takes its memory back."""

from __future__ import annotations

import atexit
import sys
from types import SimpleNamespace
from typing import Any

from redist.runtime.cuda.transports import ipc as cuda_peers
from redist.runtime.cuda.transports import opened_memory
from tests.fakes import nccl_doubles as doubles
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu import carrying
from tests.programs.gpu.sharing import SharedMemory, forget, open_memory, place_of


class Lent(SharedMemory):
    """Memory that neighbours map; its file stays, but the pool has it again when nobody holds it.

    Where the pool is greedy, another stream writes into it at that moment.
    """

    def __init__(self, n_bytes: int) -> None:
        super().__init__(n_bytes)
        file: Any = SimpleNamespace(
            name=self.name, number=self.number, n_bytes=self.n_bytes, bytes=self.bytes
        )
        self.made[self.ptr] = file
        self.stream = pretend.CURRENT[0].ptr
        self.lent = pretend.lend(n_bytes)

    def __del__(self) -> None:
        pretend.LIVE[0] -= self.lent
        if pretend.GREEDY[0] and self.stream != pretend.CURRENT[0].ptr:
            self.bytes[:] = 0x5A


def install() -> None:
    """Be CuPy in this process; between nodes, messages of MPI out of pinned memory."""
    atexit.register(forget)
    pretend.Memory = Lent  # type: ignore[misc, assignment]
    nccl = doubles.Nccl(doubles.put_off)
    pretend.install("gpu", nccl)
    runtime: Any = sys.modules["cupy.cuda"].runtime
    runtime.ipcOpenMemHandle = open_memory
    runtime.ipcCloseMemHandle = lambda address: None
    runtime.ipcOpenEventHandle = lambda handle: 0
    replaced: list[tuple[Any, str, Any]] = [
        (opened_memory, "place_of", place_of),
        (cuda_peers, "can_open", lambda world: []),
        (cuda_peers, carrying.CHOOSE, carrying.choosing("pinned", nccl, [])),
    ]
    for module, name, thing in replaced:
        setattr(module, name, thing)
