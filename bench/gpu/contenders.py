"""Whole redistributions by several ranks that share a GPU: ours, CuPy's copies, a raw copy by IPC."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mpi4py import MPI

from bench.gpu.copies import GenericMoves, generic_copies
from bench.tables.gpu import LABELS
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.measure.cases import Case, make_case
from redist.measure.contenders.contender import POISON, Contender, Ends
from redist.measure.contenders.registry import AnyArrays, Ways
from redist.measure.values import ValueBox, boxes, parts

CASES = tuple(LABELS)
MODULUS = 4093
"""Values stay below this, so that f32 adds up a few thousand of them exactly."""
_FACTORS = (1009, 2003, 3001, 331)
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
    ends = [t.with_dtype("f32") for t in (made.source, made.target)]
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


def gpu_ends(case: Case, rank: int) -> Ends:
    """**Local.** A rank's source and target on the current GPU, each an allocation of its own."""
    order = "F" if case.name == "transposed" else "C"
    return Ends(_new_tile(case.source, rank), _new_tile(case.target, rank, order))


def gpu_floors(case: Case, comm: MPI.Intracomm) -> list[Contender]:
    """**Local.** Every rank copies its tile of the target once on its GPU."""
    return [DeviceCopy(case, comm, Ends(*(_new_tile(case.target, comm.rank) for _ in range(2))))]


def free_pool() -> None:
    """**Local.** What the pool keeps goes back: many ranks share the memory of one GPU."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def _new_tile(t: ArrayType, rank: int, order: str = "C") -> Any:
    import cupy

    box = boxes(t).get(rank)
    if box is None:
        return None
    n_bytes = math.prod(box.shape) * t.dtype.itemsize
    memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(1, n_bytes)), 0)
    return cupy.ndarray(box.shape, t.dtype.to_numpy(), memptr=memory, order=order)


def values(box: ValueBox, shape: Sequence[int]) -> Any:
    """**Local.** A box of an array of this shape, whose indices go round its ends, without partial values.

    f32 on the current GPU.
    """
    import cupy

    total: Any = cupy.zeros((1,) * len(box.lo), cupy.int32)
    for dim, (lo, hi, n) in enumerate(zip(box.lo, box.hi, shape, strict=True)):
        line = cupy.arange(lo, hi, dtype=cupy.int64) % n * _FACTORS[dim] % MODULUS
        across = [-1 if k == dim else 1 for k in range(len(shape))]
        total = total + line.astype(cupy.int32).reshape(across)
    return cupy.remainder(total, cupy.int32(MODULUS)).astype(cupy.float32)


def fill(tile: Any, t: ArrayType, rank: int) -> None:
    """**Local.** Write what a rank holds of the source; partial values differ by one."""
    box = boxes(t).get(rank)
    if box is not None:
        tile[...] = values(box, t.shape)
        tile += parts(t).get(rank, 0)


def is_right(tile: Any, source: ArrayType, target: ArrayType, rank: int) -> bool:
    """**Local.** Whether a rank's tile of the target is what it must be, bit for bit."""
    box = boxes(target).get(rank)
    if box is None:
        return True
    want = values(box, target.shape)
    if source.pending_op is not None:
        n = max(parts(source).values()) + 1
        want *= n
        want += n * (n - 1) // 2
    return bool((tile == want).all())


class GpuContender(Contender):
    """A contender whose arrays lie on a GPU; a run ends when its stream has come to the end."""

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        import cupy

        super().__init__(case, comm, ends)
        self.stream = cupy.cuda.get_current_stream()

    def fill(self) -> None:
        """Write this rank's tile of the source. **Local.**"""
        if self.input is not None:
            fill(self.input, self.case.source, self.comm.rank)
            self.stream.synchronize()
            free_pool()

    def poison_target(self) -> None:
        """Overwrite this rank's tile of the target with bytes that no check accepts. **Local.**"""
        if self.output is not None:
            flat = self.output if self.output.flags.c_contiguous else self.output.T
            flat.reshape(-1).view("u1").fill(POISON)
            self.stream.synchronize()

    def holds_target(self) -> bool:
        """Whether this rank's tile of the target is what it must be, bit for bit. **Local.**"""
        if self.target_box is None:
            return True
        good = is_right(self.output, self.case.source, self.case.target, self.comm.rank)
        free_pool()
        return good

    def close(self) -> None:
        """Let the arrays go when nobody moves any more. **Collective over `comm`.**"""
        self.comm.Barrier()
        super().close()


class DeviceCopy(GpuContender):
    """No contender but the measure of all: a contiguous copy on the GPU by every rank at once."""

    label = "device copy floor"

    def run(self) -> None:
        """One copy. **Local.**"""
        from cupy.cuda import runtime

        if self.input is not None and self.output is not None:
            to, of = _address(self.output), _address(self.input)
            runtime.memcpyAsync(to, of, self.output.nbytes, _ON_DEVICE, self.stream.ptr)
        self.stream.synchronize()


class RawCopy(GpuContender):
    """As many bytes as the target has, contiguous, out of the neighbours' memory: no plan, no order."""

    label = "raw IPC copy"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        from cupy.cuda import runtime

        handles = comm.allgather(runtime.ipcGetMemHandle(_address(self.input)))
        sizes = comm.allgather(0 if self.input is None else int(self.input.nbytes))
        self._opened = {
            rank: runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS)
            for rank, handle in enumerate(handles)
            if rank != comm.rank
        }
        self._copies = list(self._pieces(sizes))

    def _pieces(self, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Offset in the target, address to read from, bytes: from the next rank on."""
        at, rank = 0, self.comm.rank
        n_target = 0 if self.output is None else int(self.output.nbytes)
        while at < n_target:
            rank = (rank + 1) % self.comm.size
            n_bytes = min(sizes[rank], n_target - at)
            yield at, self._opened.get(rank, _address(self.input)), n_bytes
            at += n_bytes

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Sums are no copies."""
        return "it adds nothing up" if case.source.pending_op else None

    def is_right(self) -> bool:
        """Nothing to check: it brings bytes, not the target. **Local.**"""
        return True

    def run(self) -> None:
        """The copies, between two barriers. **Collective over `comm`.**"""
        from cupy.cuda import runtime

        self.comm.Barrier()
        to = _address(self.output)
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
        super().close()


class OurTransfer(AnyArrays, GpuContender):
    """``transfer(source, out=target)``."""

    label = "redist, IPC"

    def run(self) -> None:
        """One call, to its end. **Collective over `comm`.**"""
        super().run()
        self.stream.synchronize()


class GenericTransfer(OurTransfer):
    """The same transfer with CuPy's own copies in the place of our kernels."""

    label = "redist with CuPy's copies"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Only copies are replaced."""
        return "only copies are replaced" if case.source.pending_op else None

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        self._lists: dict[int, GenericMoves] = {}
        super().__init__(case, comm, ends)

    def run(self) -> None:
        """One call under the other copies. **Collective over `comm`.**"""
        self.repeat(1)

    def repeat(self, times: int) -> None:
        """As above, under the other copies. **Collective over `comm`.**"""
        with generic_copies(self._lists):
            for _ in range(times):
                super().run()


class StagedTransfer(OurTransfer):
    """The same through pinned memory of the host and MPI, as between nodes without GPU transports."""

    label = "redist, host staging"
    transport = "mpi"


def _address(tile: Any) -> int:
    """Where an array of a GPU begins."""
    return int(tile.data.ptr)


MOVERS: dict[str, Ways] = {
    "raw": (RawCopy,),
    "ipc": (OurTransfer,),
    "cupy": (GenericTransfer,),
    "staged": (StagedTransfer,),
}
