"""Which ranks share memory: the node of this rank, and the nodes of all others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from mpi4py import MPI

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.kernels import Kernels, kernels
from redist.runtime.copies.strided import Strided
from redist.runtime.shm.segments import can_share


@dataclass(frozen=True, eq=False)
class Node:
    """The ranks that share memory with this one, itself included.

    ``groups`` has for every rank of the communicator the first rank of its node; ``place`` says which
    of ``ranks`` this one is; ``kernels`` are None on all ranks if one of them has none.
    """

    comm: MPI.Comm
    rank: int
    ranks: tuple[int, ...]
    groups: tuple[int, ...]
    pids: dict[int, int]
    kernels: Kernels | None

    @cached_property
    def place(self) -> int:
        """Which of the ranks of the node this one is."""
        return self.ranks.index(self.rank)

    @cached_property
    def is_everyone(self) -> bool:
        """Whether all ranks share memory."""
        return len(self.ranks) == len(self.groups)

    @staticmethod
    def find(comm: MPI.Comm, transport: str, node_size: int | None) -> Node:
        """**Collective.** The ranks that can map each other's memory, as far as MPI knows.

        ``transport="mpi"`` leaves each rank alone; ``node_size`` pretends that nodes have this many.
        """
        colour = comm.rank if transport == "mpi" or not can_share() else 0
        if node_size is not None:
            colour = comm.rank // node_size
        split = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        found = Node._of(comm, split.Split(colour, key=comm.rank))
        split.Free()
        return found

    def split(self, comm: MPI.Comm, works: bool) -> Node:
        """**Collective.** The same node, or ranks by themselves if it does not work for one of them."""
        near = self.comm
        if near.allreduce(int(works), op=MPI.MIN) == 0:
            near = self.comm.Split(self.rank)
            self.comm.Free()
        return Node._of(comm, near)

    @staticmethod
    def _of(comm: MPI.Comm, near: MPI.Comm) -> Node:
        told = near.allgather((comm.rank, os.getpid()))
        nodes = comm.allgather(tuple(rank for rank, _ in told))
        groups = tuple(node[0] for node in nodes)
        compiled = comm.allreduce(int(kernels() is not None), op=MPI.MIN)
        mine = kernels() if compiled else None
        return Node(near, comm.rank, nodes[comm.rank], groups, dict(told), mine)

    def can_read_memory(self) -> bool:
        """**Collective over the node.** Whether the system lets each rank read the others' memory."""
        if self.kernels is None:
            return False
        mine, got = np.array([self.rank + 1], dtype=np.int64), np.zeros(1, dtype=np.int64)
        places = self.comm.allgather(address_of(mine))
        ok = True
        for rank, address in zip(self.ranks, places, strict=True):
            moves = CopyList.of([BufferCopy(0, 0, 1, 0, Strided(8, ()))])
            try:
                moves.read(self.pids[rank], np.array([address_of(got), address], dtype=np.uintp))
            except TransferError:
                ok = False
            ok = ok and int(got[0]) == rank + 1
        return bool(self.comm.allreduce(int(ok), op=MPI.MIN))
