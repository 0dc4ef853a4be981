"""Transfers: a redistribution prepared once and run many times."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from redist.errors import RedistError, TransferError
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.arguments import OWN, AnyArray, CallArguments, Locals, Own, place_of
from redist.runtime.copies.gpu_arrays import on_this_gpu
from redist.runtime.host.executor import HostExecutor
from redist.runtime.host.own_tiles import Key, OwnTiles
from redist.runtime.host.recorded import RecordedCall, scenes_of
from redist.runtime.host.report import Report, TransferCounts
from redist.runtime.host.stage import Stage
from redist.runtime.ranks.agreement import Place, all_agree, from_first, heard, judge
from redist.runtime.ranks.background import Running
from redist.runtime.ranks.tokens import FIRST_ON_GPU, ON_GPU, Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import (
    SAME,
    Comm,
    Disagreement,
    comm_or_world,
    default_topology,
    world_of,
)
from redist.runtime.request import (
    Named,
    TransferOptions,
    TransferRequest,
    Type,
    try_request,
)
from redist.runtime.schedule.compiler import TypedPieces
from redist.runtime.schedule.stages import TransferStages
from redist.runtime.shm.pages import release_pages

if TYPE_CHECKING:
    from redist.runtime.cuda.executor import CudaExecutor

REMEMBERED = 3
"""Scripts that a transfer keeps."""


class Transfer:
    """A prepared redistribution, to be called many times. Making one is **collective over** ``comm``.

    In an SPMD program of 4 ranks::

        mesh = redist.Mesh(x=4)
        with redist.Transfer("f64[4096{x}, 4096]", "f64[4096, 4096{x}]", comm, mesh=mesh) as t:
            columns = t(rows)          # any NumPy tile in, a new one out
            t(rows, out=columns)       # into an array of yours
            t.input[...] = rows        # or its own buffers: no copy in, no copy out
            t()                        # t.output now has the columns
            t.start(rows); work(); columns = t.wait()
            print(t.report())

    ``source`` and ``target`` may also be dicts of named types: then a call takes and returns dicts,
    and all arrays move as one operation. All ranks of ``comm`` take part; those outside a mesh pass
    and get None. Where nothing moves between ranks (a slice, a copy) a call meets nobody, and an
    error is of its rank alone. ``timeout_s`` bounds every wait for another rank (None: for ever).
    ``transport`` is ``auto`` (shared memory within a node, messages between nodes) or ``mpi``
    (messages only); ``node_size`` pretends that nodes have so many ranks.

    A source that is donated must not be used again, nor its memory. On a GPU a CuPy array that owns
    its memory is an empty array after the call where the plan frees it; other arrays (views, those of
    other libraries) keep theirs, as if not donated: an error where ``limit_bytes`` has no room for it.
    """

    def __init__(
        self,
        source: Type | Named,
        target: Type | Named,
        comm: MPI.Comm | None = None,
        *,
        mesh: Mesh | None = None,
        target_mesh: Mesh | None = None,
        limit_bytes: int | None = None,
        donate: bool = False,
        objective: str = "time",
        strategy: str = "auto",
        topology: Topology | None = None,
        transport: str = "auto",
        node_size: int | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        comm = comm_or_world(comm)
        options = TransferOptions(
            limit_bytes, donate, objective, strategy, topology, transport, node_size
        )
        request, error = try_request(source, target, mesh, target_mesh, comm.size, options)
        text = request.text if request else None
        all_agree(comm, "cannot make a transfer", text, error, timeout_s)
        assert request is not None
        self._prepare(comm, request, timeout_s)

    @classmethod
    def for_request(cls, comm: Comm, request: TransferRequest, timeout_s: float | None) -> Transfer:
        """**Collective.** A transfer for calls of ``redistribute``, once all ranks agree on the request.

        It keeps no tiles between calls and meets in every call, because other ranks may make other
        requests.
        """
        transfer = cls.__new__(cls)
        transfer._prepare(comm, request, timeout_s)
        transfer._buffers.keep = False
        transfer._meets = True
        return transfer

    def _prepare(self, comm: Comm, asked: TransferRequest, timeout_s: float | None) -> None:
        self.comm, self.timeout_s = comm, timeout_s
        self.request, self._token = asked, asked.token
        options = asked.options
        world = world_of(self.comm, options.transport, options.node_size, self.timeout_s)
        self._world = world
        world.check_usable()
        world.finish()
        self.topology = options.topology or default_topology(world)
        plans = from_first(world.comm, lambda: asked.plans(self.topology), self.timeout_s)
        self._names = tuple(asked.pairs)
        with world.failing_together():
            self._route = route = TransferStages.of(plans, world.rank, self.topology)
            self._stages = tuple(
                Stage(
                    world,
                    [TypedPieces(leg.phase, plans[leg.item].source.dtype) for leg in legs],
                    route.staging_bytes(number),
                    options.limit_bytes is not None,
                    self.timeout_s,
                )
                for number, legs in enumerate(route.stages)
            )
            pool_bytes = max(stage.pool_bytes for stage in self._stages)
            world.reserve(len(plans), pool_bytes, self.timeout_s)
            self._buffers = OwnTiles(route, options.donate)
            self._watch = TransferCounts(world, route)
            self._course = HostExecutor(
                world, route, self._stages, self._buffers, self._watch, options.donate
            )
        self._arguments = CallArguments(route, self._names, asked.is_batch)
        ends = [(p.source.mesh.rank_array(), p.target.mesh.rank_array()) for p in plans]
        self._exchanges = not all(stage.is_local for stage in self._stages)
        # A rank that has no source cannot know whether it is among GPUs.
        self._meets = self._exchanges or any(
            set(target.tolist()) - set(source.tolist()) for source, target in ends
        )
        self._on_device: CudaExecutor | None = None
        self._is_on_device = False
        self._scripts: list[RecordedCall] = []
        self._ends: tuple[Any, Any] | None = None
        self._running: Running | None = None
        self._closed = False

    # What it is

    @property
    def is_batch(self) -> bool:
        """Whether it moves a dict of arrays."""
        return self.request.is_batch

    @property
    def plan(self) -> Plan:
        """The plan; of a batch, see :attr:`plans`."""
        if self.is_batch:
            raise TransferError("cannot say which plan: a batch has one per array; see .plans")
        return self._route.plans[0]

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan of every array of a batch, by name."""
        return dict(zip(self._names, self._route.plans, strict=True))

    @property
    def peak_bytes(self) -> int:
        """The certified bound on what a rank allocates, ends included; on a GPU, donations given up."""
        return self._route.peak_bytes()

    @property
    def received_bytes(self) -> int:
        """**Local.** What this rank receives from others in a call, counted piece by piece."""
        return sum(self._watch.received_bytes)

    def received_bytes_of(self, number: int) -> int:
        """**Local.** The same of one array of a batch."""
        return self._watch.received_bytes[number]

    @property
    def input(self) -> Any:
        """**Local.** This rank's source tile in shared memory, made when first asked for."""
        return self._arguments.by_name(
            [self._buffers.end(item, 0) for item in range(len(self._names))]
        )

    @property
    def output(self) -> Any:
        """**Local.** This rank's target tile in shared memory, made when first asked for."""
        last = self._route.last
        return self._arguments.by_name(
            [self._buffers.end(item, last(item)) for item in range(len(self._names))]
        )

    def report(self) -> Report:
        """**Collective.** What every step moved and took so far, against the model."""
        self._world.finish()
        return self._watch.report(self.timeout_s)

    def _own(self, out: Any) -> tuple[Any, Any]:
        """The transfer's own buffers."""
        if self._ends is None:
            self._ends = self.input, self.output
        return self._ends[0], self._ends[1] if out is None else out

    # Running

    def __call__(self, local: Locals | Own = OWN, out: Locals = None) -> Any:
        """**Collective.** Move ``local`` (default: :attr:`input`); the target tile.

        The result is ``out`` where given, :attr:`output` where :attr:`input` was moved, else new.
        """
        self._world.finish()
        if local is OWN:
            local, out = self._own(out)
        unknown = local is None and out is None
        if self._scripts and not (unknown and self._is_on_device):
            if self._scripts[0].is_again(local, out):
                return self._repeat(self._scripts[0], local, out)
            for script in self._scripts:
                if script.fits(local, out):
                    result = script.new() if out is None else out
                    script.point_at(local, result)
                    return self._repeat(script, local, result, out is not None)
        return self._run(local, out, place_of(local, out))

    def start(self, local: Locals | Own = OWN, out: Locals = None) -> None:
        """**Collective.** Begin to move; go on computing, then call :meth:`wait`.

        Leave ``local`` and ``out`` alone until then. Transfers over one communicator run one after
        another, in the order they were started. Work of a GPU goes onto the current stream at once.
        """
        if self._running is not None:
            raise TransferError("cannot start: this transfer is under way; wait() first")
        if local is OWN:
            local, out = self._own(out)
        place = place_of(local, out)

        def work() -> Any:
            return self._run(local, out, place)

        self._running = Running(on_this_gpu(work) if place is Place.UNKNOWN else work)
        if self._goes_on_gpu(place):
            self._world.finish()
            self._running()
        else:
            self._world.enqueue(self._running)

    def wait(self) -> Any:
        """**Collective.** The result of :meth:`start`."""
        if self._running is None:
            raise TransferError("cannot wait: nothing was started")
        running, self._running = self._running, None
        return running.result()

    def _repeat(self, script: RecordedCall, local: Any, out: Any, is_given: bool = True) -> Any:
        """The short way; see :mod:`redist.runtime.host.recorded`."""
        world = self._world
        world.check_usable()
        start = time.perf_counter()
        try:
            done, in_place = script.run(self.timeout_s)
            if done < len(self._stages) or in_place:
                with world.failing_together():
                    tiles = {(0, 0): local, (0, self._route.last(0)): out}
                    self._course.finish(self._token, tiles, done, in_place, self.timeout_s)
        except Disagreement:
            given = out if is_given else None
            place = place_of(local, given)
            if self._explain(None, place):
                return self._run(local, given, place)
            raise
        except BaseException as error:
            if world.broken is None:
                world.abort(f"{type(error).__name__}: {error}")
            raise
        self._watch.count(0, time.perf_counter() - start)
        self._watch.calls += 1
        return out

    def _goes_on_gpu(self, place: Place) -> bool:
        """Whether a call with arrays at this place runs on GPUs: if unknown, as the last one did."""
        return self._is_on_device if place is Place.UNKNOWN else place is Place.GPUS

    def _run(self, local: Any, out: Any, place: Place) -> Any:
        """Run once, not through a recorded call; started transfers are not waited for."""
        if self._closed:
            raise TransferError("cannot run: this transfer is closed")
        world = self._world
        world.check_usable()
        on_device = self._goes_on_gpu(place)
        arguments = self._gpu_arguments() if on_device else self._arguments
        sources, targets, error = arguments.check_call(local, out)
        if error is not None and not self._meets:
            raise error
        try:
            with world.failing_together():
                results = self._move(sources, targets, error is not None, on_device)
        except Disagreement as met:
            if self._explain(error or met.error, place):
                return self._run(
                    local, out, place
                )  # now it is known where the arrays of others are
            raise  # the same request, prepared on some ranks only
        self._watch.calls += 1
        return self._arguments.results(results, out)

    def _gpu_arguments(self) -> CallArguments:
        from redist.runtime.cuda.arguments import GpuArguments

        gpus = self._world.gpus if self._exchanges else None
        return GpuArguments.of(self._arguments, None if gpus is None else gpus.device)

    def _explain(self, error: RedistError | None, place: Place) -> bool:
        """Raise the error that made ranks disagree, on all of them.

        True if they only did because some have no array that says whether GPUs are meant.
        """
        answers = heard(self._world.comm, self.request.text, error, self.timeout_s, place)
        judge("cannot transfer", answers, error)
        places = {place for *_, place in answers}
        self._is_on_device = Place.GPUS in places
        return Place.UNKNOWN in places and not places & {None, Place.UNPREPARED}

    def _move(
        self, sources: list[Any], targets: list[Any], failed: bool, on_device: bool
    ) -> list[Any]:
        world, route = self._world, self._route
        token = Token.ERROR if failed else self._token | (ON_GPU if on_device else 0)
        same = True
        first = self._stages[0]
        course = self._on_device
        token |= FIRST_ON_GPU if on_device and course is None and not failed else 0
        apart = on_device and (course is None or course.world is not world)  # else it meets there
        if failed or (self._meets and (first.is_local or apart)):
            same = world.meet(token, 0, self.timeout_s) == SAME
        if failed or not same:
            raise Disagreement
        tiles: dict[Key, Any] = {}
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            tiles[item, 0] = source
            if target is not None or not on_device:
                tiles[item, route.last(item)] = target
        if on_device:
            course = self._course_on_device()
            with course.world.failing_together():
                course.finish(token, tiles, 0, False, self.timeout_s)
        else:
            first.gives_back = []
            if route.is_tight:  # no page of the target yet
                several = [len(plan.steps) > 1 for plan in route.plans]
                first.gives_back = [
                    target
                    for target, k in zip(targets, several, strict=True)
                    if target is not None and k
                ]
            while first.is_local and first.gives_back:
                release_pages(first.gives_back.pop())
            waits = self._course.finish(token, tiles, 0, False, self.timeout_s)
            self._remember(tiles, waits)
        return [tiles[item, route.last(item)] for item in range(len(self._names))]

    def _course_on_device(self) -> CudaExecutor:
        """**Collective, the first time.** The same course for arrays of GPUs."""
        if self._on_device is None:
            from redist.runtime.cuda.executor import CudaExecutor, peers_of

            limited = self.request.options.limit_bytes is not None
            peers = peers_of(self.comm, self._world, self.timeout_s, self._meets)
            self._on_device = CudaExecutor(
                self._course, peers, self.topology, limited, self.timeout_s
            )
        return self._on_device

    def _remember(self, buffers: dict[Key, AnyArray | None], waits: bool) -> None:
        """Make the next call with arrays like these a short one, if it can be."""
        world, route = self._world, self._route
        if self.is_batch or not world.one_node or world.kernels is None:
            return
        options = self.request.options
        if options.donate or options.limit_bytes is not None or route.is_tight:
            return
        scenes = scenes_of(self._stages, route, self._buffers.keeps)
        if scenes:
            source, target = buffers[0, 0], buffers[0, route.last(0)]
            meets = self._meets and self._stages[0].is_local
            script = RecordedCall(scenes, source, target, self._token, meets, waits)
            self._scripts.insert(0, script)
            del self._scripts[REMEMBERED:]

    # Ending

    def close(self) -> None:
        """**Local.** Free buffers; arrays handed out stay valid."""
        if self._running is not None:
            self.wait()
        self._closed = True
        self._scripts.clear()
        self._ends = None
        self._buffers.clear()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or self._running is None:
            self.close()
