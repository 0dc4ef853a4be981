"""The job of ``python -m bench refit gpu``: trainers and engines that share a GPU, or else a host.

Tiles of a rank lie in one allocation, which others open once. Ways run in turn; the clock runs from a barrier
behind the last write of the trainers to one before the first use by the engines.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import redist
from bench.refits.decoder import DECODERS, TINY, Decoder, has_version, train
from bench.refits.gpu_race import KEPT, OURS, RAW, TRAINERS, WHOLE
from bench.report.figures import timed
from bench.report.job import say
from redist.layout.tiles import tile_shapes
from redist.runtime.refit.bind import bind
from redist.runtime.shm import segments

ALIGN = 256
PACKED_BYTES = 10**9
"""Whole tensors are gathered and handed on so many bytes at a time."""
Pairs = list[tuple[torch.Tensor, torch.Tensor]]


class OnGpu:
    """Memory of the GPU that other processes open by CUDA IPC."""

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


class Colocated:
    """Trainers and engines that share a device. Making one is **collective**."""

    def __init__(self, decoder: Decoder, engines: int, memory: type[OnGpu] | type[OnHost]) -> None:
        self.comm, self.decoder, self.memory = MPI.COMM_WORLD, decoder, memory
        self.rank, self.engines = self.comm.rank, engines
        self.train = redist.Mesh(dp=2, tp=TRAINERS // 2)
        serve = redist.Mesh({"tp": engines}, ranks=range(TRAINERS, TRAINERS + engines))
        self.trains, self.place = self.rank < TRAINERS, self.rank - TRAINERS
        self.plan = redist.refit(decoder.trained(self.train), decoder.served(serve))
        side = self.plan.source if self.trains else self.plan.target
        types = {name: t for name, t in side.types.items() if self.rank in t.mesh.ranks}
        shapes = {name: tile_shapes(t)[self.rank] for name, t in types.items()}
        self.own = memory(sum(map(_padded, shapes.values())))
        self.tiles = carved(self.own.bytes, shapes)
        self.told = self.comm.allgather((shapes, self.own.handle()))
        self.opened = {rank: memory.opened(self.told[rank][1])
                       for rank in range(TRAINERS) if rank != self.rank}  # fmt: skip
        self.bound: Any = None
        self._buckets: list[tuple[Pairs, Pairs]] = []

    @property
    def target_bytes(self) -> int:
        """Of the tiles of all engines."""
        return sum(2 * math.prod(s) for shapes, _ in self.told[TRAINERS:] for s in shapes.values())

    def fill(self, version: int) -> None:
        """**Local.** Train, and wait until all is written; engines forget what they have."""
        if not self.trains:
            self.own.bytes.fill_(0)
        else:
            train(self.decoder, self.tiles, self.train, self.rank, version)
        self.memory.wait()

    def is_right(self, version: int) -> bool:
        """**Collective.** Whether all engines have a version, bit for bit."""
        good = self.trains or has_version(
            self.decoder, self.tiles, self.place, self.engines, version
        )
        return bool(self.comm.allreduce(int(good), MPI.MIN))

    def bind(self, commit: str) -> None:
        """**Collective.** Bind the plan."""
        send, receive = (self.tiles, None) if self.trains else (None, self.tiles)
        self.bound = bind(self.plan, send, receive, commit=commit, transport="ipc")

    def close(self) -> None:
        """**Collective.** Let go what was bound or packed."""
        if self.bound is not None:
            self.bound.close()
        self.bound = None
        self._buckets.clear()
        self.comm.Barrier()

    def ours(self, version: int) -> None:
        """**Collective.** A refit: every engine starts one kernel, which reads the trainers' tiles."""
        self.bound.send(version) if self.trains else self.bound.receive()

    def raw(self, version: int) -> None:
        """**Collective.** Every engine copies as many bytes as its tiles have, contiguous."""
        at, left = 0, 0 if self.trains else self.own.bytes.numel()
        for k in range(TRAINERS) if left else ():
            source = self.opened[(k + self.place) % TRAINERS]
            n = min(source.numel(), left)
            self.own.bytes[at : at + n].copy_(source[:n])
            at, left = at + n, left - n
        self.memory.wait()

    def pack(self) -> None:
        """**Collective.** Prepare whole tensors: what the first trainer gathers, what engines keep."""
        shapes = self.decoder.shapes()
        buckets = list(bucketed(shapes, PACKED_BYTES))
        n_bytes = max(sum(_padded(shapes[name]) for name in some) for some in buckets)
        packed = self.memory(n_bytes) if self.rank == 0 else None
        handle = self.comm.bcast(None if packed is None else packed.handle())
        there = self.memory.opened(handle) if packed is None else packed.bytes
        tiles = {0: self.tiles} if self.rank == 0 else {}
        for rank, memory in self.opened.items() if self.rank == 0 else ():
            tiles[rank] = carved(memory, self.told[rank][0])
        for names in buckets:
            whole = carved(there, {name: shapes[name] for name in names})
            gathers: Pairs = []
            keeps: Pairs = []
            for name in names:
                seen = set()
                for rank, held in tiles.items():
                    part = self.decoder.trained_part(name, self.train, rank)
                    if part is not None and str(part) not in seen:
                        seen.add(str(part))
                        gathers.append((whole[name][part], held[name]))
                if not self.trains:
                    stored, to, of = self.decoder.served_part(name, self.engines, self.place)
                    target = self.tiles[stored][to]
                    keeps.append((target, whole[name][of].reshape(target.shape)))
            self._buckets.append((gathers, keeps))
        self._held = packed

    def whole_tensors(self, version: int) -> None:
        """**Collective.** Gather whole tensors, hand them on, narrow and copy: bucket by bucket."""
        for pairs in self._buckets:
            for some in pairs:
                for to, of in some:
                    to.copy_(of)
                self.memory.wait()
                self.comm.Barrier()


def bucketed(shapes: Mapping[str, tuple[int, ...]], n_bytes: int) -> Iterator[list[str]]:
    """Names in order, as many at a time as take this many bytes.

    >>> list(bucketed({"a": (300,), "b": (4,), "c": (200,)}, 1024))
    [['a', 'b'], ['c']]
    """
    some: list[str] = []
    taken = 0
    for name, shape in shapes.items():
        if some and taken + _padded(shape) > n_bytes:
            yield some
            some, taken = [], 0
        some.append(name)
        taken += _padded(shape)
    if some:
        yield some


def _padded(shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of bf16 and of what is left free behind it."""
    return -(-2 * math.prod(shape) // ALIGN) * ALIGN


def carved(memory: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Tensors of bf16, one behind another in a block of bytes."""
    found, at = {}, 0
    for name, shape in shapes.items():
        n_bytes = 2 * math.prod(shape)
        found[name] = memory[at : at + n_bytes].view(torch.bfloat16).view(shape)
        at += _padded(shape)
    return found


def measure(model: str, engines: int, repeat: int, device: str) -> dict[str, Any]:
    """All ways in turn, each checked first. **Collective.**"""
    memory = OnGpu if device == "cuda" else OnHost
    comm = MPI.COMM_WORLD
    rate = 0.0
    if comm.rank == 0:
        rate = memory.copy_rate(2**30 if device == "cuda" else 2**24)
    rate = comm.bcast(rate)
    gpu = torch.cuda.get_device_name() if device == "cuda" else "memory of the host"
    colocated = Colocated(DECODERS.get(model, TINY), engines, memory)
    ways: dict[str, tuple[Callable[[], None], Callable[[int], None]]] = {
        OURS: (partial(colocated.bind, "in place"), colocated.ours),
        RAW: (lambda: None, colocated.raw),
        WHOLE: (colocated.pack, colocated.whole_tensors),
    }
    if model != "30B":  # one more set of these weights finds no room
        ways[KEPT] = partial(colocated.bind, "copy"), colocated.ours
    rows = {}
    for version, (way, (prepare, work)) in enumerate(ways.items(), 1):
        colocated.fill(version)
        before = _least_free(comm, memory)
        prepare_s = timed(prepare)[0]
        first_s = _slowest(comm, partial(work, version))
        more_bytes = before - _least_free(comm, memory)
        is_right = way == RAW or colocated.is_right(version)
        seconds = [_slowest(comm, partial(work, version)) for _ in range(repeat)]
        rows[way] = {
            "right": is_right, "prepare_s": prepare_s, "first_s": first_s, "seconds": seconds,
            "more_bytes": more_bytes,
        }  # fmt: skip
        colocated.close()
        memory.free_bytes()
        say(f"refit gpu: {way}: {rows[way]}")
    return {
        "gpu": gpu, "model": model, "engines": engines, "repeat": repeat, "bytes": colocated.target_bytes,
        "copy_bytes_per_s": rate, "tensors": len(colocated.plan.names), "rows": rows,
        "torch": torch.__version__.partition("+")[0], "mps": bool(os.environ.get("CUDA_MPS_PIPE_DIRECTORY")),
    }  # fmt: skip


def _least_free(comm: MPI.Comm, memory: type[OnGpu] | type[OnHost]) -> int:
    """**Collective.** What nobody uses, when all pools have given back what they can."""
    memory.free_bytes()
    comm.Barrier()
    return int(comm.allreduce(memory.free_bytes(), MPI.MIN))


def _slowest(comm: MPI.Comm, work: Callable[[], Any]) -> float:
    """**Collective.** Seconds from one barrier to the next."""
    comm.Barrier()
    start = time.perf_counter()
    work()
    comm.Barrier()
    return float(comm.allreduce(time.perf_counter() - start, MPI.MAX))
