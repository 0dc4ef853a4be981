"""What ranks find out about the links between their nodes, and that plans make use of it.

As in ``mpirun -n 4 python -m tests.programs.mpi.links`` on several hosts, or with ``--node-size 2``.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.plan.rates import FLAT
from redist.plan.topology import Level
from redist.runtime.ranks.links import LARGE_BYTES, measure_links, ranks_of_a_node
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


def planned_for(world: World, n: int, options: Any, **more: Any) -> str:
    """What the plan of a gather of n elements a rank was made for."""
    comm = world.comm.Dup()
    mesh = redist.Mesh(x=comm.size)
    source, target = f"f64[{n * comm.size}{{x}}]", f"f64[{n * comm.size}]"
    with redist.Transfer(source, target, comm, mesh=mesh, **{**options, **more}) as t:
        said = t.plan.explain().splitlines()[-1]
    comm.Free()
    return said


def links_are_measured_once_by_a_large_transfer(world: World, options: Any) -> str | None:
    """Why not, if small or limited transfers measure them, or a large one does not, or two do."""
    limit = 16 * LARGE_BYTES
    small = planned_for(world, 64, options)
    limited = planned_for(world, LARGE_BYTES // 8, options, limit_bytes=limit * world.size)
    said = [planned_for(world, LARGE_BYTES // 8, options) for _ in range(2)]
    if world.one_node:
        good = all("one node" in text for text in (small, limited, *said))
        return None if good else f"{small}; {limited}; {said}"
    if "built-in" not in small or "built-in" not in limited:
        return f"{small}; {limited}"
    return None if "links measured" in said[0] and said[0] == said[1] else f"{said}"


def what_is_asked_for_is_used(world: World, options: Any) -> str | None:
    """Why not, if a topology that was given, or ``flat`` or ``nodes``, is not the one in use."""
    for wanted, word in (
        (FLAT, "given"),
        ("flat", "flat, as asked"),
        ("nodes", "built-in costs, as"),
    ):
        said = planned_for(world, LARGE_BYTES // 8, options, topology=wanted)
        if word not in said:
            return f"{wanted}: {said}"
    try:
        planned_for(world, 8, options, topology="fast")
    except redist.RequestError as error:
        return None if "'flat', 'nodes'" in str(error) else str(error)
    return "any word will do"


def elements_enter_a_node_once(world: World, options: Any) -> str | None:
    """Why not, if a gather brings elements over a link twice, where nodes have several ranks."""
    comm = world.comm.Dup()
    size = ranks_of_a_node(world)
    if size == 1 or len(set(world.comm.allgather(MPI.Get_processor_name()))) == 1:
        return None  # ranks that only pretend to be of several nodes share no link
    found = measure_links(world)
    far = found.levels[-1]  # on busy cores one rank alone may not fill the link; here it does
    full = dataclasses.replace(far, byte_fs=min(far.byte_fs, far.link_fs))
    links = dataclasses.replace(found, levels=(*found.levels[:-1], full))
    n = 2**10 * LARGE_BYTES // 8 * comm.size  # the plan alone is made, whatever a step takes here
    mesh = redist.Mesh(x=comm.size)
    with redist.Transfer(
        f"f64[{n}{{x}}]", f"f64[{n}]", comm, mesh=mesh, topology=links, **options
    ) as t:
        steps = [step.op for step in t.plan.steps]
    return None if len(steps) > 1 else f"one step: {steps}; {links}"


def sums_in_several_steps_are_right(world: World, options: Any) -> str | None:
    """Why not, if sums whose tiles between steps lie in the target go wrong, or change what is given."""
    comm, n = world.comm.Dup(), 2**16
    total, values = sum(range(1, comm.size + 1)), np.arange(n) % 1000
    size = max(2, ranks_of_a_node(world))
    near, far = (
        Level("node", size, 10**6, 10**5),
        Level("net", None, 5 * 10**7, 8 * 10**6, 8 * 10**6),
    )
    mesh, topology = redist.Mesh(x=comm.size), redist.Topology((near, far))
    for dtype in ("i64", "f32"):
        ends = f"{dtype}[{n}] sum{{x}}", f"{dtype}[{n}]"
        with redist.Transfer(*ends, comm, mesh=mesh, topology=topology, **options) as t:
            placed_tiles = len(t._own_tiles.placed_tiles)
            if (comm.size, size) == (4, 2) and placed_tiles == 0:
                return f"no tile lies in the target: {[step.op for step in t.plan.steps]}"
            own = values.astype(t.plan.source.dtype.to_numpy()) * (comm.rank + 1)
            t.input[...] = own
            wide = np.empty((n, 2), own.dtype)
            outs = (None, np.empty_like(own), wide[:, 0], t.output)
            for number, out in enumerate(outs):
                local = t.input if number == 3 else own.copy()
                got = t() if number == 3 else t(local, out)
                if not np.array_equal(got, values * total) or not np.array_equal(local, own):
                    return f"{dtype}, way {number}, {placed_tiles} tiles in the target"
    return None


PARTS: tuple[Callable[[World, Any], str | None], ...] = (
    measuring_is_short_and_the_same_on_all_ranks,
    links_are_measured_once_by_a_large_transfer,
    what_is_asked_for_is_used,
    elements_enter_a_node_once,
    sums_in_several_steps_are_right,
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
