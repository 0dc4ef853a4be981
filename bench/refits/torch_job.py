"""The job of ``python -m bench refit``: 4 ranks that train hand weights to 4 that serve, over gloo."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import redist
from bench.peers.torch import slowest_s
from bench.refits.decoder import BY_COLUMNS, SMALL, TINY, Decoder, has_version, train
from bench.refits.race import BY_MESSAGES, ENGINES, FILES, FULL, IN_PLACE, OURS, TRAINERS
from bench.report.figures import in_turn, timed
from bench.report.job import say
from redist.layout.tiles import tile_shapes
from tests.programs.torch.together import join

Work = Callable[[int], None]


class Race:
    """Both sides, as far as this rank has them, and the ways to hand over. Making one is **collective**."""

    def __init__(self, decoder: Decoder, limit: str) -> None:
        self.rank, self.decoder = dist.get_rank(), decoder
        ranks = range(TRAINERS), range(TRAINERS, TRAINERS + ENGINES)
        self.train = redist.Mesh({"dp": TRAINERS})
        serve = redist.Mesh({"tp": ENGINES}, ranks=ranks[1])
        self.trains, self.place = self.rank < TRAINERS, self.rank - TRAINERS
        self.plan = redist.refit(
            decoder.trained(self.train), decoder.served(serve), limit_bytes=limit
        )
        self.meshes = [DeviceMesh("cpu", list(side)) for side in ranks]
        self.handed = dist.new_group([0, *ranks[1]])
        self.state: dict[str, DTensor] = {}
        self.weights: dict[str, torch.Tensor] = {}
        if self.trains:
            for name, shape in decoder.shapes().items():
                part = decoder.trained_part(name, self.train, self.rank)
                own = torch.empty(shape, dtype=torch.bfloat16)[part].contiguous()
                self.state[name] = DTensor.from_local(
                    own, self.meshes[0], [Shard(0)], run_check=False
                )
        else:
            for name, t in self.plan.target.types.items():
                self.weights[name] = torch.zeros(tile_shapes(t)[self.rank], dtype=torch.bfloat16)
        self.first_s: dict[str, float] = {}
        self._bound: dict[str, Any] = {}

    def bind(self, way: str) -> None:
        """**Collective.** Bind the plan for one of our ways."""
        how: dict[str, dict[str, Any]] = {
            OURS: {"transport": "torch"},
            BY_MESSAGES: {"transport": "messages", "comm": dist.group.WORLD},
            IN_PLACE: {"transport": "torch", "commit": "in place"},
        }
        send, receive = (self.state, None) if self.trains else (None, self.weights)
        bind = partial(self.plan.bind, send, receive, **how[way])
        self.first_s[way], self._bound[way] = timed(bind)

    def fill(self, version: int) -> None:
        """**Local.** Train."""
        tiles = {name: weight.to_local() for name, weight in self.state.items()}
        train(self.decoder, tiles, self.train, self.rank, version)

    def is_right(self, version: int) -> bool:
        """**Collective.** Whether all engines have a version, bit for bit."""
        good = self.trains or has_version(self.decoder, self.weights, self.place, ENGINES, version)
        wrong = torch.tensor(int(not good))
        dist.all_reduce(wrong)
        return not wrong.item()

    def ours(self, way: str, version: int) -> None:
        """**Collective.** A refit."""
        bound = self._bound[way]
        bound.send(version) if self.trains else bound.receive()

    def full_tensors(self, version: int) -> None:
        """**Collective.** Gather every tensor on all trainers; engines get it and keep their part."""
        for name, shape in self.decoder.shapes().items():
            if self.trains:
                whole = self.state[name].full_tensor()
            else:
                whole = torch.empty(shape, dtype=torch.bfloat16)
            if self.rank == 0 or not self.trains:
                dist.broadcast(whole, 0, group=self.handed)
            if not self.trains:
                self._keep(name, whole)

    def _keep(self, name: str, whole: torch.Tensor) -> None:
        stored, to, of = self.decoder.served_part(name, ENGINES, self.place)
        there = self.weights[stored][to]
        there.copy_(whole[of].reshape(there.shape))

    def files(self, folder: str, version: int) -> None:
        """**Collective.** Save on trainers and load on engines with PyTorch's distributed checkpoints."""
        if self.trains:
            dcp.save(self.state, checkpoint_id=folder, process_group=self.meshes[0].get_group())
        dist.barrier()
        if not self.trains:
            found = {}
            for name, shape in self.decoder.shapes().items():
                dim = 1 if name.rpartition(".")[2] in BY_COLUMNS else 0
                cut: Any = Replicate() if len(shape) == 1 else Shard(dim)
                found[name] = torch.distributed.tensor.empty(
                    *shape, dtype=torch.bfloat16, device_mesh=self.meshes[1], placements=[cut]
                )
            dcp.load(found, checkpoint_id=folder, process_group=self.meshes[1].get_group())
            for name, part in found.items():
                stored, to, _ = self.decoder.served_part(name, ENGINES, self.place)
                there = self.weights[stored][to]
                there.copy_(part.to_local().reshape(there.shape))


def measure(n_bytes: int, repeat: int, limit: str, disk: str) -> dict[str, Any]:
    """All ways in turn, each checked first. **Collective.**"""
    join()
    decoder = TINY if n_bytes < 2**28 else SMALL
    race = Race(decoder.with_bytes(n_bytes), limit)
    folder = [tempfile.mkdtemp(dir=disk or ("/dev/shm" if Path("/dev/shm").is_dir() else None))]
    dist.broadcast_object_list(folder)
    ways: dict[str, Work] = {
        OURS: partial(race.ours, OURS), BY_MESSAGES: partial(race.ours, BY_MESSAGES),
        IN_PLACE: partial(race.ours, IN_PLACE), FULL: race.full_tensors,
        FILES: partial(race.files, folder[0]),
    }  # fmt: skip
    for way in (OURS, BY_MESSAGES, IN_PLACE):
        race.bind(way)
    wrong, version = [], 0
    for way, work in ways.items():
        version += 1
        race.fill(version)
        dist.barrier()
        work(version)
        wrong += [] if race.is_right(version) else [way]
        say(f"refit: {way}: {'wrong' if way in wrong else 'right'}")

    calls = {way: partial(work, version) for way, work in ways.items()}
    seconds = in_turn(calls, repeat, slowest_s)
    whole = race.decoder.n_bytes
    found = {
        "torch": torch.__version__.partition("+")[0], "bytes": whole, "tensors": len(race.plan.names),
        "repeat": repeat, "wrong": wrong, "seconds": seconds, "bind_s": race.first_s,
        "on_disk": bool(disk), "received": {
            OURS: race.plan.received_bytes, BY_MESSAGES: race.plan.received_bytes,
            IN_PLACE: race.plan.received_bytes, FULL: whole * (TRAINERS - 1 + ENGINES),
            FILES: whole + _loaded(race),
        },
    }  # fmt: skip
    dist.barrier()
    if race.rank == 0:
        shutil.rmtree(folder[0])
    dist.destroy_process_group()
    return found


def _loaded(race: Race) -> int:
    """Bytes that all engines read of files."""
    types = race.plan.target.types.values()
    return sum(2 * math.prod(shape) for t in types for shape in tile_shapes(t).values())
