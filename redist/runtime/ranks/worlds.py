"""One world per communicator, remembered with it."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from redist.plan.topology import Level, Topology
from redist.runtime.ranks.waiting import wait_for
from redist.runtime.ranks.world import World
from redist.runtime.request import TIMEOUT_S

STEP_PS = 20_000_000
_KEY = MPI.Comm.Create_keyval(delete_fn=lambda comm, key, worlds: _close(worlds))


def world_of(
    comm: MPI.Comm,
    transport: str = "auto",
    node_size: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> World:
    """The world of a communicator; **collective over** ``comm`` the first time."""
    worlds: Any = comm.Get_attr(_KEY)
    if worlds is None:
        worlds = {}
        comm.Set_attr(_KEY, worlds)
    key = transport, node_size
    if key not in worlds:
        wait_for([comm.Ibarrier()], timeout_s)
        worlds[key] = World(comm, transport, node_size, timeout_s)
    return worlds[key]


def default_topology(world: World) -> Topology:
    """What to plan for where nothing was measured: a node is near, the network far.

    Within a node a message is a copy: it costs next to nothing beyond its bytes, but ranks wait for
    each other in every step. ``redist calibrate`` measures the real figures.
    """
    sizes = {world.groups.count(group) for group in world.groups}
    in_blocks = world.groups == tuple(r // max(sizes) * max(sizes) for r in range(world.size))
    network = Level("network", None, 2_000_000, 100_000)
    if world.one_node:
        return Topology((Level("node", None, 0, 100_000),), STEP_PS)
    if len(sizes) == 1 and in_blocks and max(sizes) > 1:
        return Topology((Level("node", max(sizes), 0, 100_000), network), STEP_PS)
    return Topology((network,), STEP_PS)


def _close(worlds: dict[tuple[str, int | None], World]) -> None:
    for world in worlds.values():
        world.close()
