"""Blocks of memory that other processes open: of a GPU, or of the host where there is none."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bench.report.figures import timed
from redist.runtime.shm import segments


class OnGpu:
    """Memory of the GPU that other processes open by CUDA IPC."""

    device = "cuda"

    def __init__(self, n_bytes: int) -> None:
        self.bytes = torch.empty(n_bytes, dtype=torch.uint8, device="cuda")

    def handle(self) -> Any:
        """How others open it, and how far it begins behind the start of its allocation."""
        from redist.runtime.cuda.transports.opened_memory import place_of

        place = place_of(self.bytes.data_ptr())
        return place.handle, place.offset, self.bytes.numel()

    @staticmethod
    def opened(handle: Any) -> torch.Tensor:
        """The bytes of another process."""
        from cupy.cuda import runtime

        memory, offset, n_bytes = handle
        interface = {
            "data": (int(runtime.ipcOpenMemHandle(memory, 1)) + offset, False),
            "shape": (n_bytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device="cuda")

    @staticmethod
    def wait() -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize()

    @staticmethod
    def free_bytes() -> int:
        """What nobody uses of the GPU, once pools of this process have given back what they can."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    @staticmethod
    def copy_rate(n_bytes: int) -> float:
        """Bytes read and written in a second by the driver's contiguous copy."""
        from bench.gpu.copies import copy_rate

        return copy_rate(n_bytes)


class OnHost:
    """The same in memory of the host, to try the job where there is no GPU."""

    device = "cpu"

    def __init__(self, n_bytes: int) -> None:
        self.memory = segments.shared_bytes(n_bytes)
        self.bytes = torch.from_numpy(self.memory)

    def handle(self) -> Any:
        """The segment."""
        return segments.find(self.memory), self.bytes.numel()

    @staticmethod
    def opened(handle: Any) -> torch.Tensor:
        """The bytes of another process."""
        (segment, offset), n_bytes = handle
        return torch.from_numpy(segments.attach(segment, writes=True)[offset : offset + n_bytes])

    @staticmethod
    def wait() -> None:
        """There is nothing to wait for."""

    @staticmethod
    def free_bytes() -> int:
        """Nobody counts."""
        return 0

    @staticmethod
    def copy_rate(n_bytes: int) -> float:
        """As NumPy copies."""
        a, b = np.zeros(n_bytes, np.uint8), np.ones(n_bytes, np.uint8)
        return 2 * n_bytes / timed(partial(np.copyto, a, b))[0]
