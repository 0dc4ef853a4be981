"""Run the stages of a transfer on GPUs, with tiles from CuPy's pool."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mpi4py import MPI

from redist.errors import RequestError
from redist.plan.topology import Topology
from redist.runtime.cuda.arguments import give_up
from redist.runtime.cuda.arrays import empty_on_device, overlap
from redist.runtime.cuda.stage import CudaStage
from redist.runtime.cuda.transports.ipc import NoPeers, peers_of
from redist.runtime.cuda.transports.opened_memory import check_shareable
from redist.runtime.host.executor import CallRecord, Executor, HostExecutor, Tiles
from redist.runtime.host.stage import StageRecord
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.schedule.stages import Key, StagePart, TransferStages


class CudaExecutor(Executor):
    """Does on GPUs what ``host`` does in memory. Making one is **collective** if ranks meet."""

    def __init__(
        self, host: HostExecutor, comm: MPI.Comm, topology: Topology, is_limited: bool, meets: bool
    ) -> None:
        peers = peers_of(comm, host.world) if meets else NoPeers(host.world)
        super().__init__(peers.world, host.schedule, host.counts, host.donates)
        self.peers = peers
        lease = peers.carrier.lease()
        if not all(stage.is_local for stage in host.stages):  # else no other rank may be here
            self.world.reserve(2 * len(self.schedule.plans), 0)
        self.stages = [
            CudaStage(
                peers,
                lease,
                parts,
                partial(self._parts_of, topology, k),
                self.schedule.staging_bytes(k),
                is_limited,
            )
            for k, parts in enumerate(self.schedule.stages)
        ]

    def _parts_of(self, topology: Topology, stage: int, rank: int) -> Sequence[StagePart]:
        """What a stage asks of another rank."""
        return TransferStages.of(self.schedule.plans, rank, topology).stages[stage]

    def run(self, token: int, tiles: Tiles) -> CallRecord:
        """**Collective.** Run all stages. Nothing is given up for a call that will be refused."""
        if self.donates and len(self.stages) > 1 and not all(s.is_local for s in self.stages):
            error = self._unshareable(tiles)
            met = self.world.meet(token if error is None else Token.ERROR)
            if error is not None or met is Met.DISAGREE:
                raise Disagreement(error)
        return super().run(token, tiles)

    def _unshareable(self, tiles: Tiles) -> RequestError | None:
        """Why an array of the caller cannot be read, or written, by neighbours; None if it can."""
        if len(self.world.node.ranks) == 1:
            return None
        shares_gpu = len(self.peers.mates) > 1
        try:
            for stage, parts in zip(self.stages, self.schedule.stages, strict=True):
                for part in () if stage.is_local else parts:
                    for buffer in (part.source, part.target) if shares_gpu else (part.source,):
                        array = tiles.get((part.item, buffer))
                        if array is not None and array.size:
                            check_shareable(array, "source tile" if buffer == 0 else "target tile")
        except RequestError as error:
            return error
        return None

    @property
    def keeps_tiles(self) -> bool:
        """Never: the pool keeps memory."""
        return False

    def is_local(self, number: int) -> bool:
        """Whether a stage moves nothing between ranks."""
        return self.stages[number].is_local

    def new_tile(self, key: Key, tiles: Tiles) -> Any:
        """A tile between two steps, or a target; None outside the mesh."""
        shape = self.schedule.shape_of(*key)
        if shape is None:
            return None
        return empty_on_device(shape, self.schedule.plans[key[0]].source.dtype.to_numpy())

    def run_stage(
        self, number: int, token: int, ins: list[Any], outs: list[Any], release: Sequence[Any]
    ) -> StageRecord:
        """**Collective.** Start one stage on the current stream."""
        return self.stages[number].run(token, ins, outs)

    def wait_for_readers(self) -> None:
        """**Collective over the node.** Let the stream wait until the neighbours have read."""
        self.world.meet_node()
        self.stages[0].settle()

    def free(self, array: Any, rest: Sequence[Any], is_source: bool) -> None:
        """Give up a tile: the pool has it again; a donated source is empty then, if it can be."""
        if is_source and not any(overlap(array, other) for other in rest):
            give_up(array)
