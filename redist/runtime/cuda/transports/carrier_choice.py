"""Choose the carrier between GPUs of different nodes, by all ranks together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpi4py import MPI

from redist.runtime.cuda.transports.carriers import AWARE, ByMessages, Carrier
from redist.runtime.cuda.transports.mpi_aware import PROBE_S, Answer, cuda_aware
from redist.runtime.cuda.transports.nccl import ByNccl, join, nccl_version
from redist.runtime.ranks.world import World


@dataclass(frozen=True, slots=True)
class Choice:
    """The carrier that was chosen, and for each better one why it was refused."""

    carrier: Carrier
    refused: tuple[str, ...]


def choose(world: World, may_nccl: bool = True) -> Choice:
    """**Collective.** Choose NCCL if every rank has a GPU of its own, else MPI, from GPU memory if it can."""
    refused = []
    if may_nccl:
        carrier, why = _by_nccl(world)
        if carrier is not None:
            return Choice(carrier, ())
        refused.append(f"NCCL: {why}")
    answer = all_aware(world)
    if answer.works:
        return Choice(ByMessages(world, on_device=True), tuple(refused))
    return Choice(ByMessages(world), (*refused, f"{AWARE}: {answer.why}"))


def own_gpu() -> str:
    """**Local.** A name of the current GPU that no other GPU has."""
    import cupy

    device = cupy.cuda.Device()
    number = cupy.cuda.runtime.getDeviceProperties(device.id).get("uuid", b"")
    return bytes(number).hex() or f"{MPI.Get_processor_name()} {device.pci_bus_id}"


def shared_gpus(gpus: list[str]) -> str:
    """Why ranks with these GPUs cannot use NCCL; empty if they can.

    >>> shared_gpus(["a", "b"]), shared_gpus(["a", "b", "a"])
    ('', '3 ranks for 2 GPUs, it needs one for each')
    """
    n = len(set(gpus))
    have = "one GPU" if n == 1 else f"{n} GPUs"
    return f"{len(gpus)} ranks for {have}, it needs one for each" if n < len(gpus) else ""


def have_own_gpus(world: World) -> bool:
    """**Collective over the node.** Whether each of its ranks has a GPU of its own."""
    return not shared_gpus(world.gather_on_node(own_gpu()))


def _by_nccl(world: World) -> tuple[ByNccl | None, str]:
    problem = gpu = ""
    try:
        gpu = own_gpu()
        nccl_version()
    except Exception as error:
        problem = f"rank {world.rank}: {error}"
    told = world.gather((gpu, problem))
    why = next((text for _, text in told if text), "") or shared_gpus([gpu for gpu, _ in told])
    if why:
        return None, why
    found: list[ByNccl] = []
    steps: tuple[Callable[[], None], ...] = (
        lambda: found.append(join(world)),
        lambda: found[0].try_out(),
    )
    for step in steps:  # all ranks have joined before one tries it out
        try:
            step()
        except Exception as error:
            problem = f"rank {world.rank}: {error}"
        why = next((text for text in world.gather(problem) if text), "")
        if why:
            for carrier in found:
                carrier.communicator.abort()
            return None, why
    return found[0], ""


def all_aware(world: World) -> Answer:
    """**Collective.** Whether MPI reads GPU memory on every node; one rank of each finds out."""
    names = world.gather(MPI.Get_processor_name())
    mine = None
    if names.index(names[world.rank]) == world.rank:
        timeout_s = world.failure.timeout_s
        mine = cuda_aware(PROBE_S if timeout_s is None else min(PROBE_S, timeout_s / 2))
    answers = [answer for answer in world.gather(mine) if answer is not None]
    return next((answer for answer in answers if not answer.works), answers[0])
