"""Join the GPUs of the ranks of a communicator: directly on a node, by a carrier between nodes."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from redist.runtime.cuda.transports.carrier_choice import choose
from redist.runtime.cuda.transports.ipc import Peers, can_open
from redist.runtime.ranks.world import World, world_of


def peers_of(comm: MPI.Comm, world: World) -> Peers:
    """**Collective, the first time.** What joins the GPUs of a world.

    If the ranks of a node cannot read each other's GPU memory, they are joined as if each were on a
    node of its own. NCCL joins nodes unless only messages of MPI were asked for.
    """
    found = world.kept(Peers)
    if found is not None:
        return found
    problems = can_open(world) if len(world.node.ranks) > 1 else []
    bad = np.array([len(problems)], np.int64)
    world.all_max(bad)
    if bad[0]:
        apart = world_of(comm, world.transport, 1, world.failure.timeout_s)
        with apart.operation(world.failure.timeout_s):
            found = peers_of(comm, apart)
    else:
        found = Peers(world)
        if not world.one_node:
            found.carrier = choose(world, world.transport != "mpi").carrier
    found.problems = problems
    return world.keep(found)
