"""Exchange halos: tiles and what they reach of their neighbours', as one stage of a transfer."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.host.stage import Stage
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import NEW, ON_GPU, request_token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, World, world_of
from redist.runtime.schedule.halos import Halo
from redist.runtime.shm.segments import keep_segment
from redist.text.latest import Latest

STAGING_BYTES = 2**23
"""What halos that cannot be read in place may take on the way."""
MOST_KEPT = 64
"""Exchanges that are prepared, over one communicator."""


class HostHalo:
    """A halo of tiles in memory. Making one is **collective**."""

    def __init__(self, world: World, halo: Halo, staging_bytes: int) -> None:
        self.world = world
        is_limited = staging_bytes < STAGING_BYTES
        self._stage = Stage(world, [halo.part(world.rank)], staging_bytes, is_limited)
        if not halo.is_local:
            world.reserve(1, self._stage.pool_bytes)
        self._buffer = np.empty(self._stage.staging.message_bytes, np.uint8)

    def run(self, token: int, tile: Any, out: Any) -> None:
        """**Collective.** Fill ``out``."""
        if self._stage.run(token, [tile], [out], self._buffer).in_place:
            self.world.meet_node()


class CudaHalo:
    """A halo of tiles on GPUs. Making one is **collective**."""

    def __init__(self, comm: Comm, world: World, halo: Halo, staging_bytes: int) -> None:
        from redist.runtime.cuda.stage import CudaStage
        from redist.runtime.cuda.transports.ipc import NoPeers, peers_of

        peers = NoPeers(world) if halo.is_local else peers_of(comm, world)
        self.world = peers.world
        lease = peers.carrier.lease()
        if not halo.is_local:
            self.world.reserve(2, 0)
        is_limited = staging_bytes < STAGING_BYTES
        own = [halo.part(world.rank)]
        self._stage = CudaStage(
            peers, lease, own, lambda rank: [halo.part(rank)], staging_bytes, is_limited
        )

    def run(self, token: int, tile: Any, out: Any) -> None:
        """**Collective.** Start to fill ``out``, on the current stream."""
        if self._stage.run(token, [tile], [out]).in_place:
            self.world.meet_node()
            self._stage.settle()


class Halos:
    """The prepared halos of a communicator."""

    def __init__(self) -> None:
        self.made: Latest[tuple[Halo, bool, int], HostHalo | CudaHalo] = Latest(MOST_KEPT)

    def close(self) -> None:
        """**Local.** Forget all."""
        self.made.clear()


def exchange_halo(
    comm: Comm,
    halo: Halo,
    tile: Any,
    out: Any,
    on_device: bool,
    staging_bytes: int = STAGING_BYTES,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Fill tiles of ``halo.grown``; the bytes that this rank received.

    In an SPMD program, each of 2 ranks with 4 elements in the middle of 6::

        halo = Halo(redist.ArrayType.parse("f32[8{x}]", mesh), (1,), wraps=True)
        exchange_halo(comm, halo, tile, out, on_device=False)

    Neighbours' tiles are read in place where they can be, on GPUs by one launch; else they pass through
    staging. Ranks outside the mesh have no tile: they say by ``on_device`` where the others' lie.
    """
    world = world_of(comm, timeout_s=timeout_s)
    halos = world.kept(Halos) or world.keep(Halos())
    staging_bytes = 1 << staging_bytes.bit_length() - 1  # what is left varies from call to call
    key = halo, on_device, staging_bytes
    text = f"{halo.text}, on GPUs" if on_device else halo.text
    token = request_token(text) | (ON_GPU if on_device else 0)
    try:
        with world.operation(timeout_s):
            found = halos.made.get(key)
            if found is None:
                if not halo.is_local and world.meet(token | NEW) is not Met.SAME:
                    raise Disagreement
                found = (
                    CudaHalo(comm, world, halo, staging_bytes)
                    if on_device
                    else HostHalo(world, halo, staging_bytes)
                )
                halos.made[key] = found
            with found.world.operation(timeout_s):
                found.run(token, tile, out)
    except Disagreement as met:
        all_agree(comm, "cannot exchange halos", text, met.error, timeout_s)
        raise
    except BaseException:
        for array in (tile, out):
            if array is not None and not is_device(array):
                keep_segment(array)  # a neighbour may still read it
        raise
    return halo.received_bytes(world.rank)
