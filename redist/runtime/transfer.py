"""Transfers: redistributions that are prepared once and run many times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from redist.errors import PeerError, RedistError, TransferError
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.arguments import OWN, CallArguments, Locals, Own, place_of
from redist.runtime.copies.gpu_arrays import on_this_gpu
from redist.runtime.host.executor import HostExecutor, OwnTiles, Tiles, tiles_of
from redist.runtime.host.recorded import RecordedCall, RecordedCalls
from redist.runtime.host.report import Report, TransferCounts
from redist.runtime.ranks.agreement import (
    ArrayPlace,
    all_agree,
    from_first,
    gather_answers,
    raise_unless_agreed,
)
from redist.runtime.ranks.background import StartedMove, run_now
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.long_wait import check_timeout
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import FIRST_ON_GPU, ON_GPU, Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world, world_of
from redist.runtime.request import Named, TransferOptions, TransferRequest, Type, try_request
from redist.runtime.schedule.stages import TransferStages

if TYPE_CHECKING:
    from redist.runtime.cuda.arguments import GpuArguments
    from redist.runtime.cuda.executor import CudaExecutor

CLOSED = "this transfer is closed; make a new one, or call it inside the with"


class Transfer:
    """A redistribution, prepared once and called many times; making one is **collective over** ``comm``.

    In an SPMD program of 4 ranks::

        mesh = redist.Mesh(x=4)
        with redist.Transfer("f64[4096{x}, 4096]", "f64[4096, 4096{x}]", comm, mesh=mesh) as t:
            columns = t(rows)          # any NumPy tile in, a new one out
            t(rows, out=columns)       # into an array of yours
            t.input[...] = rows        # or its own buffers: no copy in, no copy out
            t()                        # t.output now has the columns
            move = t.start(rows); work(); columns = move.wait()
            print(t.report())

    ``source`` and ``target`` may also be dicts of named types: then a call takes and returns dicts, and
    all arrays move as one operation. All ranks of ``comm`` take part; ranks outside a mesh pass or get
    None. If nothing moves between ranks (a slice, a copy), a call does not wait for other ranks, and an
    error is raised only on its own rank. ``timeout_s`` bounds every wait for another rank (None: no
    bound). ``transport`` is ``auto`` (shared memory within a node, messages between nodes) or ``mpi``
    (messages only); ``node_size`` pretends that nodes have this many ranks. Without a ``topology``, plans
    take into account which ranks share a node, and the first large transfer between nodes measures their
    links in a fraction of a second. ``"nodes"`` uses built-in costs instead; ``"flat"`` ignores nodes.

    Do not use a donated source or its memory again. On a GPU, if the plan frees it, a CuPy array that owns
    its memory is empty after the call. Other arrays (views, arrays of other libraries) keep their memory as
    if they were not donated; if ``limit_bytes`` has no room for that, it is an error.
    """

    def __init__(
        self,
        source: Type | Named,
        target: Type | Named,
        comm: MPI.Comm | None = None,
        *,
        mesh: Mesh | None = None,
        target_mesh: Mesh | None = None,
        limit_bytes: int | str | None = None,
        donate: bool = False,
        objective: str = "time",
        strategy: str = "auto",
        topology: Topology | str | None = None,
        transport: str = "auto",
        node_size: int | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        check_timeout(timeout_s)
        comm = comm_or_world(comm)
        options = TransferOptions(
            limit_bytes, donate, objective, strategy, topology, transport, node_size
        )
        request, error = try_request(source, target, mesh, target_mesh, comm.size, options)
        text = request.text if request else None
        all_agree(comm, "cannot make a transfer", text, error, timeout_s)
        assert request is not None
        self._prepare(comm, request, timeout_s, is_shared=False)

    @classmethod
    def for_request(cls, comm: Comm, request: TransferRequest, timeout_s: float | None) -> Transfer:
        """**Collective.** Make the transfer behind ``redistribute``, once all ranks agree on the request.

        It keeps no tiles between calls. Ranks meet in every call, because another rank may have made a
        different request.
        """
        transfer = cls.__new__(cls)
        transfer._prepare(comm, request, timeout_s, is_shared=True)
        return transfer

    def _prepare(
        self, comm: Comm, request: TransferRequest, timeout_s: float | None, is_shared: bool
    ) -> None:
        options = request.options
        self.comm, self.request, self.timeout_s = comm, request, timeout_s
        self._names = tuple(request.pairs)
        self._world = world = world_of(comm, options.transport, options.node_size, timeout_s)
        world.failure.raise_if_broken()
        world.drain()
        with world.operation(timeout_s):
            found = find_topology(world, options.topology, request.tile_bytes, options.limit_bytes)
        self.topology = found.topology
        try:
            plans = from_first(world.comm, lambda: request.plans(found.topology), timeout_s)
        except PeerError as error:  # another rank has failed: these ranks cannot go on together
            world.abort_once(error)
            raise
        plans = tuple(replace(plan, planned_for=str(found)) for plan in plans)
        self._token = request.token_for(plans)
        with world.operation(timeout_s):
            self._schedule = TransferStages.of(plans, world.rank, self.topology)
            self._own_tiles = OwnTiles(self._schedule, options.donate, keep=not is_shared)
            self._counts = TransferCounts(world, self._schedule)
            limited = options.limit_bytes is not None
            self._gives_up = options.donate or limited  # memory, in the middle of a call
            self._host = HostExecutor(
                world, self._schedule, self._own_tiles, self._counts, options.donate, limited
            )
        self._gpu: CudaExecutor | None = None
        """The executor for arrays of GPUs, once there were such arrays."""
        self._gpu_arguments: GpuArguments | None = None
        self._was_on_gpu = False
        self._is_batch = request.is_batch
        self._arguments = CallArguments(self._schedule, self._names, request.is_batch)
        self._exchanges = not all(stage.is_local for stage in self._host.stages)
        # A rank that has no source cannot know whether it is among GPUs.
        ends = ((set(p.source.mesh.ranks), set(p.target.mesh.ranks)) for p in plans)
        self._meets = is_shared or self._exchanges or any(b - a for a, b in ends)
        meets_first = self._meets and self._host.is_local(0)
        self._recorded = RecordedCalls(self._host, self._token, meets_first)
        self._ends: tuple[Any, Any] | None = None
        self._started: list[StartedMove] = []
        self._is_closed = False
        self.ready_s = time.perf_counter()
        """When planning and preparing were done, as a reading of the clock."""

    # What it is

    @property
    def is_batch(self) -> bool:
        """Whether the transfer moves a dict of arrays."""
        return self.request.is_batch

    @property
    def plan(self) -> Plan:
        """The plan; for a batch, see :attr:`plans`."""
        if self.is_batch:
            raise TransferError("cannot say which plan: a batch has one per array; see .plans")
        return self._schedule.plans[0]

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan of each array of a batch, by name."""
        return dict(zip(self._names, self._schedule.plans, strict=True))

    @property
    def peak_bytes(self) -> int:
        """The certified bound on a rank's bytes, both ends included; on a GPU, if donations can be freed."""
        return self._schedule.peak_bytes()

    @property
    def received_bytes(self) -> int:
        """**Local.** Bytes that this rank receives from others in a call, counted piece by piece."""
        return sum(self._counts.received_bytes)

    def received_bytes_of(self, number: int) -> int:
        """**Local.** :attr:`received_bytes` of one array of a batch, given its number."""
        return self._counts.received_bytes[number]

    @property
    def input(self) -> Any:
        """**Local.** This rank's source tile in shared memory, allocated at first use."""
        return self._arguments.by_name(
            [self._own_tiles.end(item, 0) for item in range(len(self._names))]
        )

    @property
    def output(self) -> Any:
        """**Local.** This rank's target tile in shared memory, allocated at first use."""
        last = self._schedule.last
        return self._arguments.by_name(
            [self._own_tiles.end(item, last(item)) for item in range(len(self._names))]
        )

    def report(self) -> Report:
        """**Collective.** What each step has moved and how long it took so far, compared with the model."""
        self._world.drain()
        return self._counts.report(self.timeout_s)

    def _own(self, out: Any) -> tuple[Any, Any]:
        """The transfer's own buffers."""
        if self._ends is None:
            self._ends = self.input, self.output
        return self._ends[0], self._ends[1] if out is None else out

    # Running

    def __call__(self, local: Locals | Own = OWN, out: Locals = None) -> Any:
        """**Collective.** Move ``local`` (default: :attr:`input`), and return this rank's target tile.

        The result is ``out`` if given, :attr:`output` if :attr:`input` was moved, else a new array.
        """
        self._world.drain()
        if local is OWN:
            local, out = self._own(out)
        is_unknown = local is None and out is None
        if self._recorded.calls and not (is_unknown and self._was_on_gpu):
            ends: Any = (local,), (out,)
            if self._is_batch:
                ends = self._arguments.try_in_order(local, out)
            found = None if ends is None else self._recorded.find(*ends)
            if found is not None:
                return self._repeat(*found, ends[0], local, out)
        return self._run(local, out, place_of(local, out))

    def start(self, local: Locals | Own = OWN, out: Locals = None) -> StartedMove:
        """**Collective.** Start to move in the background; call ``wait()`` on the result when you need it.

        Do not touch ``local`` or ``out`` until then. Several moves may be in progress, but only one with the
        transfer's own buffers; over one communicator they run in the order in which they were started.
        Between GPUs they run on their own stream, after all work queued on the current stream before.
        """
        if self._is_closed:
            raise TransferError(f"cannot start: {CLOSED}")
        own = local is OWN
        if local is OWN:
            if any(move.is_own for move in self._started):
                raise TransferError("cannot start: its own buffers are under way; wait() first")
            local, out = self._own(out)
        place = place_of(local, out)

        def work() -> Any:
            return self._run(local, out, place)

        beside = None
        if not self._goes_on_gpu(place):
            future = self._world.enqueue(on_this_gpu(work) if place is ArrayPlace.UNKNOWN else work)
        else:
            from redist.runtime.cuda.beside import try_beside

            if self._exchanges and not self._gives_up:
                out, beside = try_beside(self._world, self._arguments, local, out, work)
            if beside is not None and self._gpu is not None and self._gpu.world.has_background:
                future = self._world.enqueue(beside)
            else:  # the first call makes what ranks share, by MPI
                future = run_now(beside or work)
        move = StartedMove(future, own, self._started.remove, beside)
        self._started.append(move)
        return move

    def wait(self) -> Any:
        """**Collective.** Wait for the oldest :meth:`start` not yet waited for, and return its result."""
        if not self._started:
            raise TransferError("cannot wait: nothing was started")
        return self._started[0].wait()

    def _repeat(
        self,
        call: RecordedCall,
        results: Sequence[Any],
        sources: Sequence[Any],
        local: Any,
        out: Any,
    ) -> Any:
        """Repeat a recorded call; see :mod:`redist.runtime.host.recorded`."""
        world = self._world
        world.failure.raise_if_broken()
        start = time.perf_counter()
        try:
            if not call.run(sources, results, self.timeout_s):
                self._recorded.note_mismatch(call)
        except Disagreement:
            place = place_of(local, out)
            if self._explain(None, place):
                return self._run(local, out, place)
            raise
        except BaseException as error:
            world.abort_once(error)
            self._host.take_back(tiles_of(self._schedule, sources, results))
            raise
        self._counts.count(0, time.perf_counter() - start)
        self._counts.calls += 1
        return self._arguments.by_name(results) if self._is_batch else results[0]

    def _run(self, local: Any, out: Any, place: ArrayPlace) -> Any:
        """Run once, not through a recorded call."""
        if self._is_closed:
            raise TransferError(f"cannot run: {CLOSED}")
        self._world.failure.raise_if_broken()
        on_gpu = self._goes_on_gpu(place)
        arguments = self._arguments_on_gpu() if on_gpu else self._arguments
        sources, targets, error = arguments.check_call(local, out)
        if error is not None and not self._meets:
            raise error
        try:
            with self._world.operation(self.timeout_s):
                self._meet(on_gpu, error is not None)
                tiles = tiles_of(self._schedule, sources, targets)
                if on_gpu:
                    self._run_on_gpu(tiles)
                else:
                    self._recorded.record(tiles, self._host.run(self._token, tiles))
        except Disagreement as met:
            if self._explain(error or met.error, place):
                # Now it is known where the arrays of others are; of its own this rank had none.
                return self._run(local, None if place is ArrayPlace.UNKNOWN else out, place)
            raise  # the same request, prepared on some ranks only
        except BaseException:
            if not on_gpu:
                self._host.take_back(tiles_of(self._schedule, sources, targets))
            raise
        self._counts.calls += 1
        last = self._schedule.last
        results = [tiles[item, last(item)] for item in range(len(self._names))]
        return arguments.results(results, out)

    def _goes_on_gpu(self, place: ArrayPlace) -> bool:
        """Whether a call with arrays at this place runs on GPUs: if unknown, as the last one did."""
        return self._was_on_gpu if place is ArrayPlace.UNKNOWN else place is ArrayPlace.GPUS

    def _arguments_on_gpu(self) -> CallArguments:
        """**Local.** The arguments of calls on GPUs: on the one that the ranks have been told of, if any."""
        from redist.runtime.cuda.arguments import GpuArguments
        from redist.runtime.cuda.transports.ipc import Peers

        peers = self._world.kept(Peers) if self._exchanges else None
        gpu = None if peers is None else peers.device
        if self._gpu_arguments is None or self._gpu_arguments.gpu != gpu:
            self._gpu_arguments = GpuArguments(self._schedule, self._names, self._is_batch, gpu)
        return self._gpu_arguments

    def _explain(self, error: RedistError | None, place: ArrayPlace) -> bool:
        """**Collective.** Raise the error that made ranks disagree, on all of them.

        True if they only did because some have no array that says whether GPUs are meant.
        """
        answers = gather_answers(self._world.comm, self.request.text, error, self.timeout_s, place)
        raise_unless_agreed("cannot transfer", answers, error)
        places = {place for _, _, place, _ in answers}
        self._was_on_gpu = ArrayPlace.GPUS in places
        return ArrayPlace.UNKNOWN in places and not places & {None, ArrayPlace.UNPREPARED}

    def _token_at(self, on_gpu: bool) -> int:
        """What this rank brings to the first meeting of a call."""
        if not on_gpu:
            return self._token
        return self._token | ON_GPU | (FIRST_ON_GPU if self._gpu is None else 0)

    def _meet(self, on_gpu: bool, failed: bool) -> None:
        """**Collective.** Meet before the first stage, unless that does; raise if ranks disagree."""
        apart = on_gpu and (self._gpu is None or self._gpu.world is not self._world)
        if failed or (self._meets and (self._host.is_local(0) or apart)):
            met = self._world.meet(Token.ERROR if failed else self._token_at(on_gpu))
            if failed or met is not Met.SAME:
                raise Disagreement

    def _run_on_gpu(self, tiles: Tiles) -> None:
        """**Collective.** Run all stages on GPUs; the executor for them is made the first time."""
        token = self._token_at(True)
        if self._gpu is None:
            from redist.runtime.cuda.executor import CudaExecutor

            limited = self.request.options.limit_bytes is not None
            self._gpu = CudaExecutor(self._host, self.comm, self.topology, limited, self._meets)
        with self._gpu.world.operation(self.timeout_s):
            self._gpu.run(token, tiles)

    # Ending

    def close(self) -> None:
        """**Local.** Free the buffers; arrays that were handed out stay valid."""
        while self._started:
            self.wait()
        self._is_closed = True
        self._recorded.calls.clear()
        self._ends = None
        self._own_tiles.clear()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is None or not self._started:
            self.close()
