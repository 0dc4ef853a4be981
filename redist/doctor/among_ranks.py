"""Find out how data would get from each rank to each other rank, in the way that transfers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpi4py import MPI

from redist.doctor.process import CANNOT_READ, NO, READS, YES, Fact, gpu_name
from redist.runtime.copies.kernels import why_no_kernels
from redist.runtime.cuda.transports.carriers import AWARE, PINNED
from redist.runtime.ranks.links import LARGE_BYTES, find_topology
from redist.runtime.ranks.waiting import gather
from redist.runtime.ranks.world import World, world_of

READ = "shared memory in place, other arrays by process reads or a pool"
POOL = "shared memory in place, other arrays through a pool"
MESSAGES = "messages of MPI, packed in rounds"
IPC = "CUDA IPC, one copy"
NEEDS_KERNELS = "they need the compiled kernels"
PAIRS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Way:
    """Pairs of ranks that are joined alike: how arrays in memory travel, and arrays on GPUs ('' without)."""

    pairs: tuple[tuple[int, int], ...]
    in_memory: str
    on_gpus: str

    @property
    def shown(self) -> str:
        """The pairs as text.

        >>> Way(((0, 1), (0, 2)), "", "").shown
        '0-1 0-2'
        """
        names = [f"{a}-{b}" for a, b in self.pairs[:PAIRS_SHOWN]]
        more = len(self.pairs) - len(names)
        return " ".join([*names, *([f"and {more} more"] if more else [])])


@dataclass(frozen=True, slots=True)
class Pairing:
    """The ranks of a communicator: where each is, what joins them, and why."""

    ranks: tuple[tuple[str, str], ...]
    """The machine of every rank, and its GPU or why it has none."""
    ways: tuple[Way, ...]
    why: tuple[tuple[str, str], ...]


def pair_ranks(comm: MPI.Comm, node_size: int | None, timeout_s: float | None) -> Pairing:
    """**Collective over** ``comm``. Try out every way between the ranks, as a first transfer would."""
    world = world_of(comm, "auto", node_size, timeout_s)
    gpu, has_one = _own_gpu()
    told = gather(world.comm, (MPI.Get_processor_name(), gpu, has_one), timeout_s)
    ranks = tuple((machine, text) for machine, text, _ in told)
    near = READ if all(gather(world.comm, world.reads_memory, timeout_s)) else POOL
    with world.operation(timeout_s):
        planned_for = find_topology(world, None, LARGE_BYTES)
    why = [
        ("plans assume", str(planned_for)),
        (
            READS,
            YES if near == READ else f"no; {NEEDS_KERNELS if why_no_kernels() else CANNOT_READ}",
        ),
    ]
    if not all(has for _, _, has in told):
        return Pairing(ranks, _ways(world.node.groups, near, (), "", ""), tuple(why))
    from redist.runtime.cuda.transports.carrier_choice import choose
    from redist.runtime.cuda.transports.ipc import peers_of

    with world.operation(timeout_s):
        peers = peers_of(comm, world)
    why.append(("CUDA IPC", _said(peers.problems, world)))
    with peers.world.operation(timeout_s):
        choice = choose(peers.world)
    why += [_split(text) for text in choice.refused]
    best = "yes: the best that joins GPUs of different nodes here"
    more = "; all-gathers of 3 ranks and more by its own call, others as grouped messages"
    why.append((choice.carrier.name, best + (more if choice.carrier.name == "NCCL" else "")))
    ways = _ways(world.node.groups, near, peers.world.node.groups, IPC, choice.carrier.name)
    return Pairing(ranks, ways, tuple(why))


def likely(facts: Sequence[Fact]) -> list[tuple[str, str, str]]:
    """What one process alone can say about ranks of one node, and of different nodes.

    >>> for row in likely([Fact("shared memory", "yes"), Fact("GPUs", "2"), Fact("NCCL", "yes")]):
    ...     print(row[0], "|", row[2])
    of one node | NCCL if each has its GPU, else pinned memory and MPI
    of different nodes | NCCL if each has its GPU, else pinned memory and MPI
    """
    found = {fact.name: fact.found for fact in facts}
    reads = found.get(READS) == YES
    near = (READ if reads else POOL) if found.get("shared memory") == YES else MESSAGES
    on_gpus = far = "-"
    if found.get("GPUs", NO) not in (NO, "0"):
        far = AWARE if found.get(AWARE) == YES else PINNED
        far = f"NCCL if each has its GPU, else {far}" if found.get("NCCL") == YES else far
        on_gpus = f"{IPC} if ranks can open it" if found.get("CUDA IPC") == YES else far
    return [("of one node", near, on_gpus), ("of different nodes", MESSAGES, far)]


def _own_gpu() -> tuple[str, bool]:
    try:
        import cupy

        return gpu_name(int(cupy.cuda.Device().id)), True
    except ModuleNotFoundError:
        return "none: CuPy is not installed", False
    except Exception as error:
        return f"none: {error}", False


def _said(problems: Sequence[str], world: World) -> str:
    if problems:
        return f"no: {problems[0]}"
    if all(world.node.groups.count(group) == 1 for group in world.node.groups):
        return "not tried: no two ranks are on one node"
    return "yes: every rank has read a number from every other rank on its node"


def _split(text: str) -> tuple[str, str]:
    name, _, reason = text.partition(": ")
    return name, f"no: {reason}"


def _ways(
    nodes: Sequence[int], near: str, joined: Sequence[int], inside: str, outside: str
) -> tuple[Way, ...]:
    """Pairs by how they are joined.

    >>> [(way.shown, way.in_memory) for way in _ways((0, 0, 2), "near", (), "", "")]
    [('0-1', 'near'), ('0-2 1-2', 'messages of MPI, packed in rounds')]
    """
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for a in range(len(nodes)):
        for b in range(a + 1, len(nodes)):
            in_memory = near if nodes[a] == nodes[b] else MESSAGES
            on_gpus = ""
            if joined:
                on_gpus = inside if joined[a] == joined[b] else outside
            found.setdefault((in_memory, on_gpus), []).append((a, b))
    return tuple(Way(tuple(pairs), *how) for how, pairs in found.items())
