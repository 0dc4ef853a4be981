"""What ranks find out about the links between their nodes, and that plans make use of it.

As in ``mpirun -n 4 python -m tests.programs.mpi.links`` on several hosts, or with ``--node-size 2``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

import redist
from redist.plan.topology import FLAT
from redist.runtime.ranks.links import LARGE_BYTES, MeasuredLinks, measure_links, node_size
from redist.runtime.ranks.world import World, world_of
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main

MOST_S = 1.0


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def measuring_is_short_and_the_same_on_all_ranks(world: World, options: Any) -> str | None:
    """Why not, if figures differ between ranks or are not rounded, or it takes long."""
    start = time.monotonic()
    topology = measure_links(world)
    seconds = time.monotonic() - start
    if len(set(world.comm.allgather(topology))) > 1:
        return "ranks found different links"
    far = topology.levels[-1]
    rounded = all(map(is_power_of_two, (far.latency_ps, far.byte_fs, topology.step_ps)))
    if not rounded:
        return f"not rounded: {topology}"
    return None if seconds < MOST_S else f"took {seconds:.1f} s"


def small_transfers_measure_nothing(world: World, options: Any) -> str | None:
    """Why not, if a small transfer has links measured."""
    comm = world.comm.Dup()
    with redist.Transfer(
        "f64[64{x}]", "f64[64]", comm, mesh=redist.Mesh(x=comm.size), **options
    ) as t:
        measured = t._world.kept(MeasuredLinks)
        text = t.plan.explain()
    if measured is not None:
        return "they were measured"
    return None if "built-in costs" in text else text


def large_transfers_measure_once(world: World, options: Any) -> str | None:
    """Why not, if the first large transfer does not measure links, or the second does again."""
    comm = world.comm.Dup()
    n = LARGE_BYTES // 8 * comm.size
    mesh = redist.Mesh(x=comm.size)
    kept = []
    for source in (f"f64[{n}{{x}}]", f"f64[{n}] sum{{x}}"):
        with redist.Transfer(source, f"f64[{n}]", comm, mesh=mesh, **options) as t:
            kept.append(t._world.kept(MeasuredLinks))
            text = t.plan.explain()
    if world.one_node:
        return None if kept == [None, None] else "one node has no links"
    if kept[0] is None or kept[0] is not kept[1]:
        return f"{kept}"
    return None if "links measured" in text else text


def what_is_asked_for_is_used(world: World, options: Any) -> str | None:
    """Why not, if a topology that was given, or ``flat`` or ``nodes``, is not the one in use."""
    comm = world.comm.Dup()
    n = LARGE_BYTES // 8 * comm.size
    mesh = redist.Mesh(x=comm.size)
    for wanted in (FLAT, "flat", "nodes"):
        with redist.Transfer(
            f"f64[{n}{{x}}]", f"f64[{n}]", comm, mesh=mesh, topology=wanted, **options
        ) as t:
            if t._world.kept(MeasuredLinks) is not None:
                return f"{wanted}: links were measured"
            if wanted != "nodes" and t.topology != FLAT:
                return f"{wanted}: {t.topology}"
    try:
        redist.Transfer("f64[8{x}]", "f64[8]", comm, mesh=mesh, topology="fast")
    except redist.RequestError as error:
        return None if "'flat', 'nodes'" in str(error) else str(error)
    return "any word will do"


def elements_enter_a_node_once(world: World, options: Any) -> str | None:
    """Why not, if a gather brings elements over a link twice, where nodes have several ranks."""
    comm = world.comm.Dup()
    size = node_size(world)
    if size == 1 or len(set(world.comm.allgather(MPI.Get_processor_name()))) == 1:
        return None  # ranks that only pretend to be of several nodes share no link
    n = 16 * LARGE_BYTES // 8 * comm.size  # the plan alone is made
    with redist.Transfer(
        f"f64[{n}{{x}}]", f"f64[{n}]", comm, mesh=redist.Mesh(x=comm.size), **options
    ) as t:
        steps = [step.op for step in t.plan.steps]
    return None if len(steps) > 1 else f"one step: {steps}"


PARTS: tuple[Callable[[World, Any], str | None], ...] = (
    measuring_is_short_and_the_same_on_all_ranks,
    small_transfers_measure_nothing,
    large_transfers_measure_once,
    what_is_asked_for_is_used,
    elements_enter_a_node_once,
)
CHECKS = names_of(PARTS)


def program() -> int:
    """0 if everything is as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node-size", type=int, default=None)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    options = {"node_size": args.node_size, "timeout_s": 60.0}
    world = world_of(comm, "auto", args.node_size)
    wrong = sum(not all_well(comm, part.__name__, part(world, options)) for part in PARTS)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
