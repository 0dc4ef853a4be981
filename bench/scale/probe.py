"""The job of ``python -m bench scale --check``: what a simulation must know of the machine it runs on.

Each figure is measured by itself, from work that no case of the check does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.cluster import cases_of, measure_case
from bench.report.figures import repeated
from bench.report.job import say
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.strided import canonical
from redist.runtime.ranks.world import World, world_of
from redist.runtime.schedule.compiler import Combine
from redist.runtime.shm.segments import shared_empty

REPEATS = 7
RING_BYTES = 2**22, 2**24
"""Two sizes: their difference is free of what a message costs however short it is."""
BLOCK = 2**18
TINY = 64
"""Elements of a tile that costs nothing to move."""
SIDE = 1024
"""Of the matrix whose columns are copied: 8 MiB."""
PIECES = 16
LIMITED_SIDE, LIMITED_STAGING = 256, 2**14
"""A matrix that passes in many rounds, because its limit leaves this much for them."""


def measure(ranks: int, sizes: list[int], repeat: int) -> dict[str, Any]:
    """Probe hosts of so many ranks, and time the cases of these sizes. **Collective over all ranks.**"""
    comm, rows = MPI.COMM_WORLD, []
    probes = Probes(comm, ranks)
    found = [probes.all() if sizes else probes.links()]
    for n_bytes in sizes:
        for case in cases_of(comm.size, n_bytes):
            rows.append(measure_case(comm, case, n_bytes, repeat))
            say(f"scale: {case.name} {n_bytes}: {rows[-1]['redist_median'] * 1e3:.3g} ms")
        found.append(probes.all())
    medians = {key: float(np.median([one[key] for one in found])) for key in found[0]}
    return {"mpi": mpi_name(), "ranks": comm.size, "probes": medians, "rows": rows}


class Probes:
    """Small measurements, each **collective over** ``comm``; seconds are of all ranks together."""

    def __init__(self, comm: MPI.Intracomm, ranks_per_host: int) -> None:
        self.comm, self.per_host = comm, ranks_per_host
        self.world: World = world_of(comm)
        self.watch = Stopwatch(comm, True)  # hosts here are of one machine: one clock
        self.rounds = 1

    def all(self) -> dict[str, float]:
        """Every figure, in half a dozen seconds; taken before, between and after the cases."""
        return self.links() | self.meetings() | self.copies() | self.calls()

    def _time(self, work: Callable[[], object]) -> float:
        return self.watch.in_turn([repeated(work)], REPEATS)[0].median_s

    def links(self) -> dict[str, float]:
        """Seconds of rings of all hosts, one rank of each, for two sizes; of a small message."""
        comm, size, per = self.comm, self.comm.size, self.per_host
        to, of = (comm.rank + per) % size, (comm.rank - per) % size
        sent, got = np.zeros((2, max(RING_BYTES) // BLOCK, BLOCK), np.uint8)

        def ring(n_bytes: int) -> Callable[[], None]:
            def work() -> None:
                if comm.rank % per == 0:
                    rows = n_bytes // BLOCK
                    requests = [comm.Irecv(row, of) for row in got[:rows]]
                    self.world.wait([*requests, *(comm.Isend(row, to) for row in sent[:rows])])

            return work

        few, many = (self._time(ring(n_bytes)) for n_bytes in RING_BYTES)
        small = np.zeros(1, np.int64)
        back_and_forth = 50

        def ping() -> None:
            for _ in range(back_and_forth):
                if comm.rank == 0:
                    comm.Send(small, per)
                    comm.Recv(small, per)
                elif comm.rank == per:
                    comm.Recv(small, 0)
                    comm.Send(small, 0)

        return {
            "ring_byte_s": (many - few) / (RING_BYTES[1] - RING_BYTES[0]),
            "message_latency_s": self._time(ping) / back_and_forth / 2,
        }

    def meetings(self) -> dict[str, float]:
        """Seconds of a meeting of all ranks, and of those of a host."""
        return {
            "meeting_s": self._time(lambda: self.world.meet(1)),
            "node_meeting_s": self._time(self.world.meet_node),
        }

    def copies(self) -> dict[str, float]:
        """Seconds to copy, to add up and to touch new pages, all ranks at once."""
        source, target = (shared_empty((SIDE, SIDE), np.dtype("f8")) for _ in range(2))
        source[...], target[...] = 1.0, 0.0
        width = SIDE // PIECES
        packed = (8 * width, 8)
        moves = [
            BufferCopy(0, k * SIDE * width * 8, 1, k * width * 8,
                       canonical((SIDE, width), 8, packed, source.strides))
            for k in range(PIECES)
        ]  # fmt: skip
        table = addresses([target, source])
        copies = CopyList.of(moves)
        whole = BufferCopy(0, 0, 1, 0, canonical((SIDE, SIDE), 8, target.strides, source.strides))
        combine = Combine("sum", DType.parse("f64"), CopyList.of([whole]))

        def fresh() -> None:
            shared_empty((SIDE, SIDE), np.dtype("f8")).fill(1.0)

        return {
            "copied_bytes": source.nbytes,
            "pack_s": self._time(lambda: copies.run(table)),
            "combine_s": self._time(lambda: combine.run(table)),
            "fresh_s": self._time(fresh),
            "fill_s": self._time(lambda: target.fill(1.0)),
        }

    def calls(self) -> dict[str, float]:
        """Seconds of transfers that move next to nothing: one message, all to all, rounds."""
        n = self.comm.size
        mesh, half = Mesh(x=n), n // 2
        here, there = Mesh({"x": half}, ranks=range(half)), Mesh({"x": half}, ranks=range(half, n))
        side = LIMITED_SIDE
        tile = side * side // n * 8
        flat = f"f64[{TINY * n}{{x}}]"
        small = f"f64[{n}{{x}}, {n}]", f"f64[{n}, {n}{{x}}]"
        large = f"f64[{side}{{x}}, {side}]", f"f64[{side}, {side}{{x}}]"
        return {
            "local_s": self._transfer("f64[64]", "f64[64{x}]", mesh),
            "one_message_s": self._transfer(flat, flat, here, there),
            "all_to_all_s": self._transfer(*small, mesh),
            "rounds_s": self._transfer(*large, mesh, limit=2 * tile + LIMITED_STAGING),
            "rounds": self.rounds,
        }

    def _transfer(
        self,
        source: str,
        target: str,
        mesh: Mesh,
        there: Mesh | None = None,
        limit: int | None = None,
    ) -> float:
        a, b = ArrayType.parse(source, mesh), ArrayType.parse(target, there or mesh)
        with redist.Transfer(
            a, b, self.comm, limit_bytes=limit, topology="flat", strategy="direct"
        ) as transfer:
            if transfer.input is not None:
                transfer.input[...] = 1.0
            self.rounds = len(transfer._host.stages[0].staging.rounds)
            return self._time(transfer)
