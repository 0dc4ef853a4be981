"""What is moved between hosts: layouts, the collective of MPI that does the same, the links' limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import grid, tile_shapes

Work = Callable[[], None]
ByMpi = Callable[[MPI.Intracomm, ArrayType, ArrayType], Work]


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """A redistribution of f64 elements between all ranks.

    ``by_mpi`` makes what MPI does instead, on contiguous arrays that need no packing: a favour to it.
    """

    name: str
    source: ArrayType
    target: ArrayType
    by_mpi: ByMpi

    def limit_bytes(self, ranks_per_host: int) -> int:
        """Bytes that must enter or leave the busiest host, whoever moves them, however."""
        return busiest_link_bytes(self.source, self.target, ranks_per_host)


def busiest_link_bytes(source: ArrayType, target: ArrayType, ranks_per_host: int) -> int:
    """Count what the busiest host must receive or send, each element once; sums are combined first.

    Sums of values that all hosts have a part of leave a host once for every other host that wants
    them, and come back once if they are wanted everywhere, as in a ring.

    >>> mesh = Mesh(x=4)
    >>> rows, columns = (ArrayType.parse(t, mesh) for t in ("f64[8{x}, 8]", "f64[8, 8{x}]"))
    >>> busiest_link_bytes(rows, columns, 2)
    128
    """
    hosts = sorted(
        {rank // ranks_per_host for t in (source, target) for rank in t.mesh.rank_array().tolist()}
    )
    itemsize = source.dtype.itemsize
    if source.pending_axes:
        n = math.prod(source.shape) * itemsize
        once = n * (len(hosts) - 1) // len(hosts)
        return 2 * once if target.tile_bytes == n else once
    has = {host: _marked(source, host, ranks_per_host) for host in hosts}
    wants = {host: _marked(target, host, ranks_per_host) for host in hosts}
    enter = [int(np.count_nonzero(wants[h] & ~has[h])) for h in hosts]
    holders = sum(has[h].astype(np.int64) for h in hosts)
    asked = sum((wants[h] & ~has[h]).astype(np.int64) for h in hosts)
    leave = [math.ceil(float(np.sum(np.where(has[h], asked / holders, 0.0)))) for h in hosts]
    return max(*enter, *leave) * itemsize


def _marked(t: ArrayType, host: int, ranks_per_host: int) -> Any:
    """Which elements the ranks of a host hold."""
    marks = np.zeros(t.shape, bool)
    lo, hi = grid(t).boxes()
    for row, rank in enumerate(t.mesh.rank_array().tolist()):
        if rank // ranks_per_host == host:
            marks[tuple(slice(a, b) for a, b in zip(lo[row], hi[row], strict=True))] = True
    return marks


def cases_of(n_ranks: int, n_bytes: int) -> list[ClusterCase]:
    """Every case for so many ranks and about so many bytes of the whole array."""
    mesh = Mesh(x=n_ranks)
    side = max(n_ranks, math.isqrt(n_bytes // 8) // n_ranks * n_ranks)
    long = max(n_ranks, n_bytes // 8 // n_ranks * n_ranks)
    cube = max(n_ranks, round((n_bytes / 8) ** (1 / 3)) // n_ranks * n_ranks)
    half = n_ranks // 2
    here = Mesh({"x": half}, ranks=range(half))
    there = Mesh({"x": half}, ranks=range(half, n_ranks))

    def case(name: str, by_mpi: ByMpi, source: str, target: str, *meshes: Mesh) -> ClusterCase:
        first, last = meshes or (mesh, mesh)
        a, b = ArrayType.parse(source, first), ArrayType.parse(target, last)
        return ClusterCase(name, a, b, by_mpi)

    rows, columns = f"f64[{side}{{x}}, {side}]", f"f64[{side}, {side}{{x}}]"
    slab_0, slab_1 = f"f64[{cube}{{x}}, {cube}, {cube}]", f"f64[{cube}, {cube}{{x}}, {cube}]"
    tiles, whole, sums = f"f64[{long}{{x}}]", f"f64[{long}]", f"f64[{long}] sum{{x}}"
    return [
        case("rows to columns", collective("Alltoall"), rows, columns),
        case("slab to slab", collective("Alltoall"), slab_0, slab_1),
        case("gather", collective("Allgather"), tiles, whole),
        case("two meshes", hand_over, tiles, tiles, here, there),
        case("reduce_scatter", collective("Reduce_scatter_block"), sums, tiles),
        case("all-reduce", collective("Allreduce"), sums, whole),
    ]


def elems_of(comm: MPI.Intracomm, t: ArrayType) -> int:
    """Elements of this rank's tile."""
    return math.prod(tile_shapes(t).get(comm.rank, (0,)))


def collective(name: str) -> ByMpi:
    """A collective of MPI on arrays that lie ready."""

    def make(comm: MPI.Intracomm, source: ArrayType, target: ArrayType) -> Work:
        sent, got = np.ones(elems_of(comm, source)), np.empty(elems_of(comm, target))
        return partial(getattr(comm, name), sent, got)

    return make


def hand_over(comm: MPI.Intracomm, source: ArrayType, target: ArrayType) -> Work:
    """Send a tile from every rank of one mesh to its partner in the other."""
    half = comm.size // 2
    if comm.rank < half:
        sent = np.ones(elems_of(comm, source))
        return lambda: comm.Send(sent, comm.rank + half)
    got = np.empty(elems_of(comm, target))
    return lambda: comm.Recv(got, comm.rank - half)
