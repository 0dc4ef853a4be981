"""NCCL itself between ranks that share one GPU, and its failures. Needs a GPU.

NCCL refuses two ranks on one GPU of one host. Ranks that each name a host of their own are taken for ranks of
several hosts, and their data passes through sockets: right, but at rates that mean nothing. redist never does
this by itself; here the names of GPUs are replaced too, so that it finds one for every rank.

As in ``mpirun -n 4 python -m tests.programs.gpu.real_nccl``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.runtime.cuda.transports import carrier_choice
from redist.runtime.cuda.transports.nccl import ByNccl
from redist.runtime.ranks.world import world_of
from tests.fakes.nccl_hosts import host_of
from tests.programs.together import all_well, main

OWN_GPU, PASS, JOIN = "own_gpu", "_pass", "NcclCommunicator"
TIMEOUT_S, SOON_S = 20.0, 15.0
ROWS, COLUMNS = "f32[64{x}, 96]", "f32[64, 96{x}]"


@dataclass
class Passed:
    """What carriers gave to NCCL: groups of messages, and ranks and bytes of every all-gather."""

    groups: int = 0
    gathers: list[tuple[tuple[int, ...], int]] = field(default_factory=list)


def let_ranks_share() -> Passed:
    """Let NCCL and redist take ranks of one GPU for ranks with one each, and note what is passed."""
    rank, passed = MPI.COMM_WORLD.rank, Passed()
    os.environ.update(host_of(rank))
    setattr(carrier_choice, OWN_GPU, lambda: f"the GPU of rank {rank}")
    real = ByNccl._pass

    def noted(self: ByNccl, round_: Any, table: Any) -> None:
        if round_.gathered is None:
            passed.groups += 1
        else:
            passed.gathers.append((round_.gathered.ranks, round_.gathered.n_bytes))
        real(self, round_, table)

    setattr(ByNccl, PASS, noted)
    return passed


def is_chosen() -> str | None:
    """NCCL is what redist chooses."""
    found = carrier_choice.choose(world_of(MPI.COMM_WORLD.Dup(), "mpi", None, TIMEOUT_S))
    return None if found.carrier.name == "NCCL" else f"{found.carrier.name}: {found.refused}"


def is_refused() -> str | None:
    """Ranks that share a GPU and do not say otherwise are told why NCCL is not used."""
    here = getattr(carrier_choice, OWN_GPU)
    setattr(carrier_choice, OWN_GPU, lambda: "the only GPU")
    found = carrier_choice.choose(world_of(MPI.COMM_WORLD.Dup(), "mpi", None, TIMEOUT_S))
    setattr(carrier_choice, OWN_GPU, here)
    said = f"NCCL: {MPI.COMM_WORLD.size} ranks for one GPU, it needs one for each"
    return None if found.refused[:1] == (said,) else f"{found.carrier.name}: {found.refused}"


def cannot_join() -> str | None:
    """A rank that cannot join is an error that all of them hear of, within half of the time limit."""
    from cupy.cuda import nccl

    comm = MPI.COMM_WORLD.Dup()
    real, start = getattr(nccl, JOIN), time.monotonic()

    def refuse(size: int, number: Any, place: int) -> Any:
        raise RuntimeError("no way")

    if comm.rank == comm.size - 1:
        setattr(nccl, JOIN, refuse)
    found = carrier_choice.choose(world_of(comm, "mpi", None, TIMEOUT_S))
    setattr(nccl, JOIN, real)
    took = time.monotonic() - start
    if found.carrier.name == "NCCL" or "cannot join ranks by NCCL" not in found.refused[0]:
        return f"{found.carrier.name}: {found.refused}"
    return None if took < TIMEOUT_S else f"it took {took:.1f} s"


def fails_under_way() -> str | None:
    """A rank that fails when others wait on their GPUs for its messages: an error on all of them, soon."""
    import cupy

    comm = MPI.COMM_WORLD.Dup()
    mesh = redist.Mesh(x=comm.size)
    transfer = redist.Transfer(ROWS, COLUMNS, comm, mesh=mesh, node_size=1, timeout_s=TIMEOUT_S)
    n = 64 // comm.size
    whole = np.arange(64 * 96, dtype="f4").reshape(64, 96)
    local = cupy.asarray(whole[n * comm.rank : n * (comm.rank + 1)])
    columns = slice(96 // comm.size * comm.rank, 96 // comm.size * (comm.rank + 1))
    if not np.array_equal(cupy.asnumpy(transfer(local)), whole[:, columns]):
        return "the call before it is wrong"
    real = getattr(ByNccl, PASS)

    def fail(self: ByNccl, round_: Any, table: Any) -> None:
        raise MemoryError("no room")

    last = comm.rank == comm.size - 1
    if last:
        setattr(ByNccl, PASS, fail)
    start = time.monotonic()
    try:
        transfer(local)
        said = "no error"
    except MemoryError as error:
        said = "" if last else f"an error of another rank: {error!r}"
    except redist.PeerError as error:
        said = "" if "no room" in str(error) and not last else f"{error}"
    finally:
        setattr(ByNccl, PASS, real)
    took = time.monotonic() - start
    if not said and not np.array_equal(
        cupy.asnumpy(local), whole[n * comm.rank : n * (comm.rank + 1)]
    ):
        said = "the source was modified"
    return said or (None if took < SOON_S else f"it took {took:.1f} s")


CHECKS = {check.__name__: check for check in (is_chosen, is_refused, fails_under_way, cannot_join)}
"""The last leaves threads behind that wait for NCCL."""


def program() -> int:
    """0 if everything holds; ends at once, because threads may still wait for NCCL."""
    let_ranks_share()
    wrong = [name for name, check in CHECKS.items() if not all_well(MPI.COMM_WORLD, name, check())]
    if MPI.COMM_WORLD.rank == 0 and not wrong:
        print(f"NCCL is chosen, refused and fails as it should ({MPI.COMM_WORLD.size} ranks)")
    return int(bool(wrong))


if __name__ == "__main__":
    main(program)
