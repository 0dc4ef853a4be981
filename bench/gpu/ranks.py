"""Whole redistributions by several ranks that share a GPU: ours, CuPy's copies, a raw copy by IPC."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from mpi4py import MPI

import redist
from bench.gpu.generic import GenericMoves, generic_copies
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.measure.cases import Case, make_case
from redist.measure.values import boxes

CASES = (
    "rows-columns",
    "columns-rows",
    "slab-0-1",
    "slab-0-2",
    "slab-pencil",
    "pencil-pencil",
    "thin",
    "thin-back",
    "single",
    "single-back",
    "transposed",
    "gather",
    "sum-cut",
)
THIN = {"thin": 4, "thin-back": 4, "single": 1, "single-back": 1}
"""Cases whose last dim is cut, and to how many elements."""
_LAZY_PEER_ACCESS = 1
_ON_DEVICE = 3


def f32_case(name: str, total_bytes: int, n_ranks: int) -> Case:
    """A case of f32 whose fuller end takes about so many bytes on all ranks together.

    Besides those of ``redist bench``: ``thin``, with runs of 16 bytes, ``single``, with runs of one
    element, both also the other way round (``-back``); and ``transposed``, rows to columns with
    targets in Fortran's order, as a matrix product may want them.

    >>> print(f32_case("columns-rows", 2**32, 4))
    f32[32768, 32768{x}] -> f32[32768{x}, 32768] on x=4
    """
    if name in THIN:
        return _thin(name, total_bytes, n_ranks)
    like = {"columns-rows": "rows-columns", "transposed": "rows-columns"}.get(name, name)
    made = make_case(like, 2 * total_bytes, n_ranks)
    ends = [
        ArrayType.parse(str(t).replace("f64", "f32", 1), t.mesh) for t in (made.source, made.target)
    ]
    if name == "columns-rows":
        ends.reverse()
    return Case(name, *ends)


def _thin(name: str, total_bytes: int, n_ranks: int) -> Case:
    """The last of three dims is cut to a few elements: short runs on one side."""
    inner = THIN[name] * n_ranks
    rows = max(1, total_bytes // 4 // (inner * 2048 * n_ranks)) * n_ranks
    mesh = Mesh(x=n_ranks)
    ends = [f"f32[{rows}{{x}}, 2048, {inner}]", f"f32[{rows}, 2048, {inner}{{x}}]"]
    if name.endswith("-back"):
        ends.reverse()
    return Case(name, *(ArrayType.parse(text, mesh) for text in ends))


def traffic_bytes(case: Case) -> int:
    """Bytes that must be read and written by all ranks together.

    >>> traffic_bytes(f32_case("rows-columns", 2**20, 4)) == 2 * 2**20
    True
    """
    target = case.target.tile_bytes * case.target.mesh.n_devices
    if case.source.pending_op is None:
        return 2 * target
    return case.source.tile_bytes * case.source.mesh.n_devices + target


class Tiles:
    """A rank's source and target, each an allocation of its own. **Local.**"""

    def __init__(self, case: Case, rank: int) -> None:
        self.source = _tile(case.source, rank)
        self.target = _tile(case.target, rank, "F" if case.name == "transposed" else "C")


def _tile(t: ArrayType, rank: int, order: str = "C") -> Any:
    import cupy

    shape = boxes(t)[rank].shape
    n_bytes = math.prod(shape) * t.dtype.itemsize
    memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(1, n_bytes)), 0)
    return cupy.ndarray(shape, t.dtype.to_numpy(), memptr=memory, order=order)


class Mover(ABC):
    """One way to do the work of a case on tiles that are there; making one is **collective**."""

    label: str
    checked = True

    def __init__(self, case: Case, comm: MPI.Intracomm, tiles: Tiles) -> None:
        import cupy

        self.case, self.comm, self.tiles = case, comm, tiles
        self.stream = cupy.cuda.get_current_stream()

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Why it does not take part in a case; None if it does."""
        return None

    @abstractmethod
    def run(self) -> None:
        """Start to move once. **Collective over `comm`.**"""

    def repeat(self, times: int) -> None:
        """Move so many times, each to its end. **Collective over `comm`.**"""
        for _ in range(times):
            self.run()
            self.stream.synchronize()

    def close(self) -> None:
        """Nobody moves any more. **Collective over `comm`.**"""
        self.comm.Barrier()


class RawCopy(Mover):
    """As many bytes as the target has, contiguous, out of the neighbours' memory: no plan, no order."""

    label = "raw IPC copy"
    checked = False

    def __init__(self, case: Case, comm: MPI.Intracomm, tiles: Tiles) -> None:
        super().__init__(case, comm, tiles)
        from cupy.cuda import runtime

        handles = comm.allgather(runtime.ipcGetMemHandle(tiles.source.data.ptr))
        sizes = comm.allgather(tiles.source.nbytes)
        self._opened = {
            rank: runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS)
            for rank, handle in enumerate(handles)
            if rank != comm.rank
        }
        self._copies = list(self._planned(sizes))

    def _planned(self, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Offset in the target, address to read from, bytes: from the next rank on."""
        at, rank = 0, self.comm.rank
        while at < self.tiles.target.nbytes:
            rank = (rank + 1) % self.comm.size
            n_bytes = min(sizes[rank], self.tiles.target.nbytes - at)
            yield at, self._opened.get(rank, self.tiles.source.data.ptr), n_bytes
            at += n_bytes

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Sums are no copies."""
        return "it adds nothing up" if case.source.pending_op else None

    def run(self) -> None:
        """The copies, between two barriers. **Collective over `comm`.**"""
        from cupy.cuda import runtime

        self.comm.Barrier()
        to = self.tiles.target.data.ptr
        for at, of, n_bytes in self._copies:
            runtime.memcpyAsync(to + at, of, n_bytes, _ON_DEVICE, self.stream.ptr)
        self.stream.synchronize()
        self.comm.Barrier()

    def close(self) -> None:
        """Close the neighbours' memory. **Collective over `comm`.**"""
        from cupy.cuda import runtime

        self.comm.Barrier()
        for address in self._opened.values():
            runtime.ipcCloseMemHandle(address)
        self.comm.Barrier()


class Ours(Mover):
    """``transfer(source, out=target)``."""

    label = "redist, IPC"
    transport = "auto"

    def __init__(self, case: Case, comm: MPI.Intracomm, tiles: Tiles) -> None:
        super().__init__(case, comm, tiles)
        self._transfer = redist.Transfer(case.source, case.target, comm, transport=self.transport)

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self._transfer(self.tiles.source, out=self.tiles.target)

    def close(self) -> None:
        """Free what the transfer keeps. **Collective over `comm`.**"""
        self._transfer.close()


class Generic(Ours):
    """The same transfer with CuPy's own copies in the place of our kernels."""

    label = "redist with CuPy's copies"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Only copies are replaced."""
        return "only copies are replaced" if case.source.pending_op else None

    def __init__(self, case: Case, comm: MPI.Intracomm, tiles: Tiles) -> None:
        self._lists: dict[int, GenericMoves] = {}
        super().__init__(case, comm, tiles)

    def repeat(self, times: int) -> None:
        """As above, under the other copies. **Collective over `comm`.**"""
        with generic_copies(self._lists):
            super().repeat(times)


class Staged(Ours):
    """The same through pinned memory of the host and MPI, as between nodes without GPU transports."""

    label = "redist, host staging"
    transport = "mpi"


MOVERS: dict[str, type[Mover]] = {"raw": RawCopy, "ipc": Ours, "cupy": Generic, "staged": Staged}
