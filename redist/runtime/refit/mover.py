"""How the bytes of a refit travel: prepared for tiles and ranks once, then carried out for every version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.refit.arrival import COMMITS, IN_PLACE, SWAP, Arrival, Handover
from redist.runtime.refit.copies import check_casts
from redist.runtime.refit.near import Near, NodeRounds, Shown, memory_of, shown
from redist.runtime.refit.program import Buffers, Compiler, Dtypes, Program, Runs, Ways
from redist.runtime.refit.ranks import RefitRanks
from redist.runtime.refit.said import Binding, Bits, check_known, mask_of, problem_of
from redist.runtime.refit.tiles import Side, check_gpu
from redist.text.latest import Latest

AUTO, MESSAGES, IPC = TRANSPORTS = ("auto", "messages", "ipc")
"""``auto``: memory that ranks share if they are all on one node, else messages."""
REMEMBERED = 4
"""Programs that are kept: one for all tensors, others for sets of tensors that changed."""


class StoredTensors(Protocol):
    """One side of a plan, as :class:`redist.Weights` is."""

    @property
    def types(self) -> Mapping[str, ArrayType]:
        """The types of stored tensors, by name."""


class PlanOfRuns(Protocol):
    """As much of a :class:`redist.RefitPlan` as is carried out."""

    @property
    def source(self) -> StoredTensors:
        """Where weights come from."""

    @property
    def target(self) -> StoredTensors:
        """Where they go."""

    @property
    def rounds(self) -> int:
        """How many rounds there are."""

    @property
    def digest(self) -> str:
        """Equal if plans are."""

    def runs(self, rank: int, *, sends: bool = False) -> Runs:
        """What a rank receives, or sends."""


class Mover:
    """A plan, the tiles of this rank, and the ways of bytes to and from others."""

    def __init__(self, plan: PlanOfRuns, ranks: RefitRanks) -> None:
        self.plan, self.ranks = plan, ranks
        self.source = Side(plan.source.types, "source tile")
        self.target = Side(plan.target.types, "target tile")
        self.arrival: Arrival
        self.on_gpu = False
        self.transport = MESSAGES
        """``ipc`` where ranks write and read each other's memory, else ``messages``."""
        self._programs: Latest[Bits | None, tuple[Program, Handover]] = Latest(REMEMBERED)
        self._near: Near | None = None
        self._by_memory: NodeRounds | None = None
        self._staging: Any = None

    # Binding

    def binding(
        self,
        send: Mapping[str, Any] | None,
        receive: Mapping[str, Any] | None,
        transport: str,
        commit: str,
    ) -> Binding:
        """**Local.** Take the tiles of this rank: what it says of them, or of the error in them."""
        found = Shown()
        why_private: str | None = None

        def take() -> None:
            nonlocal why_private
            check_known("transport", transport, TRANSPORTS)
            check_known("commit", commit, COMMITS)
            self._take(send, receive)
            if commit == IN_PLACE:
                self._check_apart()
            shares = self.ranks.shares and transport != MESSAGES
            self.arrival = Arrival(self.target, commit, self._dtypes, shares)
            if shares:
                why_private = problem_of(show)
            elif transport == IPC:
                raise RequestError("cannot bind with transport='ipc': ranks do not share memory")

        def show() -> None:
            nonlocal found
            found = shown(self.source, self.target, self.arrival)

        problem = problem_of(take)
        receives = bool(self.target.tiles)
        memory, digest = memory_of(self.source, self.target), self.plan.digest
        return Binding(digest, transport, commit, memory, receives, found, why_private, problem)

    def _take(self, send: Mapping[str, Any] | None, receive: Mapping[str, Any] | None) -> None:
        rank, most = self.ranks.rank, self.ranks.size - 1
        for side in (self.source, self.target):
            meshes = {id(t.mesh): t.mesh for t in side.types}
            highest = max((max(mesh.ranks) for mesh in meshes.values()), default=0)
            if highest > most:
                raise RequestError(
                    f"cannot bind the plan: it names rank {highest}, but there are {most + 1} ranks; bind it "
                    "where there are as many"
                )
        self.source.take(rank, send)
        self.target.take(rank, receive)
        gpus = {side.gpu for side in (self.source, self.target) if side.tiles}
        if len(gpus) > 1:
            raise RequestError(
                f"cannot bind the tiles of rank {rank}: it sends from one memory and receives in another; "
                "put both on one GPU, or on the host"
            )
        self.on_gpu = bool(gpus - {None})
        if self.on_gpu:
            check_gpu(next(iter(gpus)))
        types = self.source.types, self.target.types
        self._dtypes = Dtypes.of(*([t.dtype for t in side] for side in types))
        self._sends, self._receives = self.plan.runs(rank, sends=True), self.plan.runs(rank)
        for runs, source, target in (
            (self._sends, "tensor", "there"),
            (self._receives, "there", "tensor"),
        ):
            for k, other in np.unique(runs[[source, target]]).tolist():
                ends = self.source.types[k].dtype, self.target.types[other].dtype
                check_casts(self.source.names[k], *ends, self.on_gpu)

    def _check_apart(self) -> None:
        """**Local.** Raise if weights would arrive in what is still to be sent."""
        sources = sorted(self.source.tiles.items(), key=lambda one: one[1].address)
        begins = np.array([tile.address for _, tile in sources], np.int64)
        reach = np.maximum.accumulate([tile.address + tile.n_bytes for _, tile in sources] or [0])
        for m, tile in self.target.tiles.items():
            before = int(np.searchsorted(begins, tile.address + tile.n_bytes))
            if not before or reach[before - 1] <= tile.address:
                continue
            for k, source in sources[:before]:
                if source.address + source.n_bytes > tile.address and not self._stays(k, m):
                    raise RequestError(
                        f"cannot bind with commit='in place': target tile {self.target.names[m]!r} lies in "
                        f"memory of source tile {self.source.names[k]!r}; give memory of its own, or take "
                        "commit='copy'"
                    )

    def _stays(self, k: int, m: int) -> bool:
        """**Local.** Whether a target tile is a source tile and gets nothing else."""
        runs = self._receives[self._receives["tensor"] == m]
        own = (runs["peer"] == self.ranks.rank) & (runs["there"] == k)
        alike = (runs["offset"] == runs["there_offset"]) & (runs["step"] == runs["there_step"])
        begins = self.source.tiles[k].address, self.target.tiles[m].address
        return bool((own & alike).all()) and begins[0] == begins[1]

    def join(self, bindings: Sequence[Binding]) -> str | None:
        """**Collective.** Prepare what all ranks bind; why that cannot be done."""
        self.ranks.choose_voters([rank for rank, one in enumerate(bindings) if one.receives])
        asked = bindings[0].transport
        self._meets_first = any(one.commit == SWAP for one in bindings)
        if asked != MESSAGES and self.ranks.shares:
            why = next((one.why_private for one in bindings if one.why_private), None)
            why = why or self._share([one.shown for one in bindings])
            if why is None or asked == IPC:
                self.transport = IPC
                return why and f"cannot bind with transport='ipc': {why}"
            self._near = self._by_memory = None
        why = self.ranks.choose_messages({one.memory for one in bindings if one.memory})
        if why is not None:
            return f"cannot bind with messages: {why}"
        self._prepare(Ways(direct=not self.on_gpu or self.ranks.sends_from_gpu))
        self._staging = self._room(self.program(None)[0].staging_bytes)
        return None

    def _prepare(self, ways: Ways) -> None:
        self._buffers = Buffers(len(self.source.names), len(self.target.names), self.ranks.size)
        waits = self.on_gpu and not self.ranks.sends_from_gpu
        rank, buffers = self.ranks.rank, self._buffers
        self._compiler = Compiler(rank, self._dtypes, buffers, ways, self.on_gpu, waits)
        self._programs.clear()

    def _share(self, all_shown: Sequence[Shown]) -> str | None:
        """**Collective.** Map memory of others, and let them map what is packed for them; why not."""

        def map_tiles() -> None:
            self._near = Near.of(self.ranks.rank, all_shown, self._sends, self._receives)
            self._prepare(self._near.ways)
            self.program(None)

        problem = problem_of(map_tiles)
        has_rounds = problem is None and bool(self.program(None)[0].rounds)
        told = self.ranks.gather((problem, has_rounds))
        why = next((text for text, _ in told if text), None)
        if why or not any(some for _, some in told):
            return why
        program = self.program(None)[0]
        rounds = NodeRounds(self.ranks, self.plan.rounds, program)
        places = self.ranks.gather(rounds.place())
        problem = problem_of(lambda: rounds.map(places, program))
        self._by_memory = rounds
        return next((text for text in self.ranks.gather(problem) if text), None)

    @property
    def others_write(self) -> bool:
        """Whether neighbours write into the tiles that serve, as soon as they have agreed on a version."""
        near = self._near
        return not self.arrival.keeps_old and near is not None and bool(near.ways.given)

    def _room(self, n_bytes: int) -> Any:
        """Staging of messages: of the host, pinned for its GPU, or of the GPU."""
        if not self.on_gpu:
            return np.empty(n_bytes, np.uint8)
        import cupy

        make = cupy.cuda.alloc if self.ranks.sends_from_gpu else cupy.cuda.PinnedMemory
        return make(max(1, n_bytes))

    # Moving

    def program(self, changed: Bits | None) -> tuple[Program, Handover]:
        """**Local.** What is done to send all tensors, or some; made once for each set."""
        found = self._programs.get(changed)
        if found is None:
            sends, receives = self._sends, self._receives
            if changed is not None:
                mask = mask_of(changed, len(self.source.names))
                sends, receives = sends[mask[sends["tensor"]]], receives[mask[receives["there"]]]
            program = self._compiler.program(sends, receives)
            found = self._programs[changed] = program, self.arrival.prepare(program)
        return found

    def move(self, program: Program, handover: Handover, turns: Sequence[int]) -> None:
        """**Collective.** Bring all bytes of a program to where they arrive, and wait for those of others."""
        table = self._table(turns)
        self.arrival.begin(handover)
        if self._near is not None and self._meets_first:
            self.ranks.meet()  # others may write now
        program.straight.run(table)
        if self._by_memory is not None:
            self._by_memory.carry(program, self._buffers, table)
        elif program.rounds:
            self.ranks.carry(program.rounds, table, self)
        if self.on_gpu:
            self.ranks.finish()
        if self._near is not None:
            self.ranks.meet()  # all have read and written

    def _table(self, turns: Sequence[int]) -> Addresses:
        """The address of every buffer."""
        near, buffers = self._near, self._buffers
        far = np.zeros(0, np.uintp) if near is None else near.addresses(turns)
        table = np.zeros(buffers.far(len(far)), np.uintp)
        table[buffers.source(0) : buffers.target(0)] = self.source.addresses()
        table[buffers.target(0) : buffers.staged(0)] = self.arrival.sets[self.arrival.turn]
        table[buffers.far(0) :] = far
        memory = self._staging
        if memory is not None:
            address = address_of(memory) if isinstance(memory, np.ndarray) else memory.ptr
            table[[Buffers.SEND, Buffers.RECEIVE]] = address
        return table

    def close(self) -> None:
        """**Local.** Let memory of others and staging go."""
        self._programs.clear()
        self._staging = None
        self.arrival.close()
        if self._near is not None:
            self._near.close()
        self.ranks.close()
