"""Measure this machine's levels: what a step, a message and a byte cost, as a topology file.

A step of k messages and b bytes is modelled as ``step + k * latency + b / bandwidth``. Three transfers are
therefore enough for a level: one small message, many small messages, and one large message, always by all
ranks at once, because that is how steps run. Where ranks share the link of their node, one large message by
one rank per node shows what a single rank can get of the link, and one by all ranks what the link carries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI

from redist.arrange.device_file import format_costs
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.measure.computing import measure_computing
from redist.measure.timing import Stopwatch, Times
from redist.plan.topology import Level, Topology, format_topology
from redist.runtime.ranks.links import ranks_of_a_node
from redist.runtime.ranks.world import world_of
from redist.runtime.transfer import Transfer
from redist.text.progress import Progress

SMALL_ELEMS = 16
LARGE_BYTES = 4 * 2**20
REPEATS = 15


@dataclass(frozen=True, slots=True)
class Trial:
    """One transfer to be timed: every rank receives ``messages`` messages and ``n_bytes`` bytes in all.

    ``sharing`` is the number of ranks of a node that do so at the same time.
    """

    level: str
    messages: int
    n_bytes: int
    source: ArrayType
    target: ArrayType
    sharing: int = 1


def fit(one: float, many: float, large: float, messages: int, n_bytes: int) -> tuple[float, ...]:
    """Fit step and latency (seconds) and bandwidth (bytes per second) to three measured times.

    >>> fit(11e-6, 17e-6, 1011e-6, 7, 10**7)
    (1e-05, 1e-06, 10000000000.0)
    """
    latency = max(1e-12, (many - one) / max(1, messages - 1))
    step = max(0.0, one - latency)
    return round(step, 12), round(latency, 12), round(n_bytes / max(1e-9, large - one), 3)


def calibrate(
    comm: MPI.Intracomm | None = None,
    node_size: int | None = None,
    watcher: Callable[[int, int], None] = lambda *_: None,
) -> Topology:
    """**Collective over** ``comm``. Measure what a step, a message and a byte cost between its ranks.

    This does what ``redist calibrate`` does, inside a program of two or more ranks::

        topology = redist.calibrate()              # of all ranks; for redist.synthesize(topology=...)

    ``comm`` is MPI's world by default. ``node_size`` pretends that nodes have this many ranks; ``watcher``
    is told how many transfers have been timed, and how many there are.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if comm.size < 2:
        raise RequestError("cannot calibrate 1 rank: it has nobody to send to; start 2 or more")
    world = world_of(comm, "auto", node_size)
    sizes = [] if world.one_node else [ranks_of_a_node(world)]
    trials = [t for t in _trials(comm.size, (*sizes, comm.size)) if t is not None]
    watch = Stopwatch.on(comm)
    times: list[Times] = []
    for number, trial in enumerate(trials):
        watcher(number, len(trials))
        times.append(_time(trial, comm, node_size, watch))
    watcher(len(trials), len(trials))
    return _topology(trials, times, (*sizes, comm.size))


def _trials(n_ranks: int, sizes: Sequence[int]) -> list[Trial | None]:
    """Per level: a small tile from a rank of another block of the level below, and more.

    The others are small pieces from many of them, and one large tile.
    """
    trials: list[Trial | None] = []
    inner = 1
    for size in sizes:
        name = "network" if len(sizes) > 1 and size == n_ranks else "node"
        if size > inner:
            here = Mesh(r=n_ranks)
            shifted = [rank // size * size + (rank + inner) % size for rank in range(n_ranks)]
            there = Mesh({"r": n_ranks}, ranks=shifted)
            large = LARGE_BYTES // 8
            for elems in (SMALL_ELEMS, large):
                shape = f"f64[{elems * n_ranks}{{r}}]"
                a, b = ArrayType.parse(shape, here), ArrayType.parse(shape, there)
                trials.append(Trial(name, 1, elems * 8, a, b, inner))
            if inner > 1:
                trials.append(_alone(name, n_ranks, inner))
            groups = Mesh(b=n_ranks // size, o=size // inner, i=inner)
            o = size // inner
            dims = (n_ranks, o * SMALL_ELEMS)
            a = ArrayType.of(groups, "f64", dims, [["b", "o", "i"], []])
            b = ArrayType.of(groups, "f64", dims, [["b", "i"], ["o"]])
            several = Trial(name, o - 1, (o - 1) * SMALL_ELEMS * 8, a, b, inner)
            trials.append(several if o > 2 else None)
        inner = size
    return trials


def _alone(name: str, n_ranks: int, inner: int) -> Trial:
    """A large tile from the first rank of every node to that of the next."""
    firsts = list(range(0, n_ranks, inner))
    here, there = (
        Mesh({"r": len(firsts)}, ranks=ranks) for ranks in (firsts, [*firsts[1:], firsts[0]])
    )
    shape = f"f64[{LARGE_BYTES // 8 * len(firsts)}{{r}}]"
    a, b = ArrayType.parse(shape, here), ArrayType.parse(shape, there)
    return Trial(name, 1, LARGE_BYTES, a, b)


def _time(trial: Trial, comm: MPI.Intracomm, node_size: int | None, watch: Stopwatch) -> Times:
    with Transfer(
        trial.source, trial.target, comm, strategy="direct", node_size=node_size
    ) as transfer:
        tiles = transfer.input, transfer.output
        local, out = (None if tile is None else np.ones(tile.shape) for tile in tiles)

        def work(times: int) -> None:
            for _ in range(times):
                transfer(local, out)

        (seconds,) = watch.in_turn([work], REPEATS)
    return seconds


def _topology(trials: Sequence[Trial], times: Sequence[Times], sizes: Sequence[int]) -> Topology:
    levels = []
    steps = []
    names = list(dict.fromkeys(trial.level for trial in trials))
    for number, name in enumerate(names):
        own = [(t, s.median_s) for t, s in zip(trials, times, strict=True) if t.level == name]
        one = next(s for t, s in own if t.messages == 1 and t.n_bytes == SMALL_ELEMS * 8)
        large = {t.sharing: s for t, s in own if t.n_bytes >= LARGE_BYTES}
        messages, many = next(((t.messages, s) for t, s in own if t.messages > 1), (2, one))
        step, latency, bandwidth = fit(one, many, large[1], messages, LARGE_BYTES)
        steps.append(step)
        size = sizes[number] if number + 1 < len(names) else None
        sharing = max(large)
        *_, together = fit(one, many, large[sharing], messages, LARGE_BYTES)
        link_fs = max(1, round(10**15 / (together * sharing))) if sharing > 1 else 0
        byte_fs = max(1, round(10**15 / bandwidth))
        levels.append(Level(name, size, max(1, round(latency * 10**12)), byte_fs, link_fs))
    return Topology(tuple(levels), round(min(steps) * 10**12))


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the program that ``redist calibrate`` starts on every rank."""
    parser = argparse.ArgumentParser(prog="python -m redist.measure.calibrate")
    parser.add_argument("--output", required=True)
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--bar", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        progress = Progress("calibrating", bar=args.bar or None)
        topology = calibrate(comm, args.node_size, progress)
        costs = measure_computing(comm, Progress("computing", bar=args.bar or None))
    else:
        topology, costs = calibrate(comm, args.node_size), measure_computing(comm)
    if comm.rank == 0:
        text = f"# measured on {comm.size} ranks with {MPI.get_vendor()[0]}\n"
        text += format_topology(topology) + "\n" + format_costs(costs)
        Path(args.output).write_text(text, encoding="utf-8")
        print(text, end="")
        print(f"redist: wrote {args.output}; use it as --topology {args.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
