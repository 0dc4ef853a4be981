"""Find out which ranks of a communicator of MPI share memory."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.kernels import kernels
from redist.runtime.copies.strided import Strided
from redist.runtime.ranks.node import Node
from redist.runtime.shm.segments import can_share


@dataclass(frozen=True, eq=False)
class MpiNode(Node):
    """A node whose ranks have a communicator of their own."""

    comm: MPI.Comm

    @staticmethod
    def find(comm: MPI.Comm, transport: str, node_size: int | None) -> MpiNode:
        """**Collective.** The ranks that can map each other's memory, as far as MPI knows.

        ``transport="mpi"`` leaves each rank alone; ``node_size`` pretends that nodes have this many.
        """
        colour = comm.rank if transport == "mpi" or not can_share() else 0
        if node_size is not None:
            colour = comm.rank // node_size
        split = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        found = MpiNode._of(comm, split.Split(colour, key=comm.rank))
        split.Free()
        return found

    def split(self, comm: MPI.Comm, works: bool) -> MpiNode:
        """**Collective.** The same node, or ranks by themselves if it does not work for one of them."""
        near = self.comm
        if near.allreduce(int(works), op=MPI.MIN) == 0:
            near = self.comm.Split(self.rank)
            self.comm.Free()
        return MpiNode._of(comm, near)

    @staticmethod
    def _of(comm: MPI.Comm, near: MPI.Comm) -> MpiNode:
        told = near.allgather((comm.rank, os.getpid()))
        nodes = comm.allgather(tuple(rank for rank, _ in told))
        groups = tuple(node[0] for node in nodes)
        compiled = comm.allreduce(int(kernels() is not None), op=MPI.MIN)
        mine = kernels() if compiled else None
        return MpiNode(comm.rank, nodes[comm.rank], groups, dict(told), mine, near)

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
