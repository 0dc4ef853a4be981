"""The stages of a transfer on GPUs: the same course, with tiles from CuPy's pool."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.errors import RequestError
from redist.plan.topology import Topology
from redist.runtime.cuda.arrays import empty_on_device, overlap
from redist.runtime.cuda.donation import give_up
from redist.runtime.cuda.stage import CudaStage
from redist.runtime.cuda.transports.choice import choose
from redist.runtime.cuda.transports.ipc import Peers, can_open, check_shareable
from redist.runtime.host.executor import HostExecutor, Tiles
from redist.runtime.host.own_tiles import Key
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.world import DISAGREE, Disagreement, World, world_of
from redist.runtime.schedule.compiler import TypedPieces
from redist.runtime.schedule.stages import TransferStages


def peers_of(comm: MPI.Comm, world: World, timeout_s: float | None, meets: bool = True) -> Peers:
    """**Collective, the first time.** What joins the GPUs of a world; **local** where none meet.

    Where the ranks of a node cannot read each other's GPU memory, they are joined as if each were on
    a node of its own. NCCL joins nodes unless only messages of MPI were asked for.
    """
    if not meets:
        return Peers(world, timeout_s, alone=True)
    if world.gpus is None:
        problems = can_open(world, timeout_s) if len(world.node) > 1 else []
        bad = np.array([len(problems)], np.int64)
        world.all_max(bad, timeout_s)
        if bad[0]:
            apart = world_of(comm, world.transport, 1, timeout_s)
            world.gpus = peers_of(comm, apart, timeout_s)
        else:
            world.gpus = Peers(world, timeout_s)
            if not world.one_node:
                may_nccl = world.transport != "mpi"
                world.gpus.carrier = choose(world, timeout_s, may_nccl).carrier
        world.gpus.problems = problems
    gpus: Peers = world.gpus
    return gpus


class CudaExecutor(HostExecutor):
    """Runs the stages of a route on arrays of GPUs. Making one is **collective**."""

    def __init__(
        self,
        host: HostExecutor,
        peers: Peers,
        topology: Topology,
        is_limited: bool,
        timeout_s: float | None,
    ) -> None:
        self.peers, self.world = peers, peers.world
        self.route, self.stages = host.route, host.stages
        self.buffers, self.watch, self.donates = host.buffers, host.watch, host.donates
        self.room = peers.carrier.room()
        if not all(stage.is_local for stage in host.stages):  # else no other rank may be here
            self.world.reserve(2 * len(self.route.plans), 0, timeout_s)
        self.on_device = [
            CudaStage(
                peers,
                self.room,
                stage.loads,
                partial(self._loads, topology, k),
                host.route.staging_bytes(k),
                is_limited,
                timeout_s,
            )
            for k, stage in enumerate(host.stages)
        ]

    def _loads(self, topology: Topology, stage: int, rank: int) -> list[TypedPieces]:
        """What a stage asks of another rank."""
        plans = self.route.plans
        legs = TransferStages.of(plans, rank, topology).stages[stage]
        return [TypedPieces(leg.phase, plans[leg.item].source.dtype) for leg in legs]

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory of the host that a call takes; staging on the GPU is in no such memory."""
        return 0 if self.room.on_device else self.room.n_bytes

    @property
    def keeps(self) -> bool:
        """Never: the pool keeps memory."""
        return False

    def made(self, key: Key) -> Any:
        """A tile between two steps, or a target."""
        shape = self.route.shape_of(*key)
        if shape is None:
            return None
        return empty_on_device(shape, self.route.plans[key[0]].source.dtype.to_numpy())

    def run_stage(
        self, number: int, word: int, ins: list[Any], outs: list[Any], timeout_s: float | None
    ) -> bool:
        """Start one on the current stream; whether neighbours may still read."""
        return self.on_device[number].run(word, ins, outs, timeout_s)

    def after_reading(self, timeout_s: float | None) -> None:
        """Let the stream wait until the neighbours have read."""
        self.world.meet_node(timeout_s)
        self.on_device[0].settle()

    def finish(
        self, word: int, tiles: Tiles, done: int, in_place: bool, timeout_s: float | None
    ) -> bool:
        """Run the stages from ``done`` on. Nothing is given up for a call that will be refused."""
        if self.donates and len(self.stages) > 1 and not all(s.is_local for s in self.stages):
            error = self._unshareable(tiles)
            met = self.world.meet(word if error is None else Token.ERROR, 0, timeout_s)
            if error is not None or met == DISAGREE:
                raise Disagreement(error)
        return super().finish(word, tiles, done, in_place, timeout_s)

    def _unshareable(self, tiles: Tiles) -> RequestError | None:
        """Why an array of the caller cannot be read, or written, by neighbours; None if it can."""
        if len(self.world.node) == 1:
            return None
        try:
            for stage, legs in zip(self.on_device, self.route.stages, strict=True):
                for leg in () if stage.is_local else legs:
                    for buffer in (leg.source, leg.target)[: 2 if len(self.peers.crowd) > 1 else 1]:
                        array = tiles.get((leg.item, buffer))
                        if array is not None and array.size:
                            check_shareable(array, "source tile" if buffer == 0 else "target tile")
        except RequestError as error:
            return error
        return None

    def free(self, array: Any, rest: Sequence[Any], is_source: bool) -> None:
        """Give up a tile: the pool has it again; a donated source is empty then, where it can be."""
        if is_source and not any(overlap(array, other) for other in rest):
            give_up(array)
