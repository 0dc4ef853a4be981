"""Transfers: a redistribution prepared once and run many times."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import RedistError, RequestError, TransferError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import synthesize
from redist.runtime.agreement import all_agree, from_first
from redist.runtime.program import Load
from redist.runtime.release import release_pages
from redist.runtime.route import Route
from redist.runtime.segments import shared_empty
from redist.runtime.stage import Counts, Stage
from redist.runtime.world import SAME, Disagreement, World
from redist.runtime.worlds import default_topology, world_of

Array = NDArray[Any]
Type = ArrayType | str
Named = Mapping[str, Type]
Locals = Array | None | Mapping[str, Array | None]

TIMEOUT_S = 300.0
ERROR_WORD = 1
DEFAULTS = (None, False, "time", "auto")
"""Values of options that go without saying."""


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
    and get None. ``timeout_s`` bounds every wait for another rank (None: for ever). ``transport`` is
    ``auto`` (shared memory within a node, messages between nodes) or ``mpi`` (messages only);
    ``node_size`` pretends that nodes have so many ranks.
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
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.timeout_s = timeout_s
        self.donate = donate
        error: Exception | None = None
        said = ""
        requests: dict[str, tuple[ArrayType, ArrayType]] = {}
        try:
            if transport not in ("auto", "mpi"):
                raise RequestError(f"unknown transport {transport!r}; known: auto, mpi")
            self.is_batch = isinstance(source, Mapping)
            requests = requests_of(source, target, mesh, target_mesh, self.comm.size)
            given = {
                "limit_bytes": limit_bytes,
                "donate": donate,
                "objective": objective,
                "strategy": strategy,
                "topology": topology,
                "transport": transport,
                "node_size": node_size,
            }
            said = shown(requests, given)
        except RedistError as problem:
            error = problem
        all_agree(self.comm, "cannot make a transfer", said, error)
        self._said, self._word = said, _word(said)
        self.keeps_buffers = True
        self._world: World = world_of(self.comm, transport, node_size)
        self._world.check_usable()
        self._topology = topology if topology is not None else default_topology(self._world)
        self._names = tuple(requests)
        plans = from_first(
            self._world.comm,
            lambda: tuple(
                synthesize(
                    a,
                    b,
                    limit_bytes=limit_bytes,
                    objective=objective,
                    strategy=strategy,
                    donate=donate,
                    topology=self._topology,
                )
                for a, b in requests.values()
            ),
        )
        self._route = Route.of(plans, self.comm.rank, self._topology)
        self._stages = tuple(
            Stage(
                self._world,
                [Load(leg.phase, plans[leg.item].source.dtype) for leg in legs],
                self._route.staging_bytes(number),
            )
            for number, legs in enumerate(self._route.stages)
        )
        pool = max(stage.pool_bytes for stage in self._stages)
        self._world.reserve(len(plans), pool)
        self._staging = (
            np.empty(max(stage.send_bytes for stage in self._stages), np.uint8),
            np.empty(max(stage.receive_bytes for stage in self._stages), np.uint8),
        )
        self._middles: dict[tuple[int, int], Array] = {}
        self._own: dict[tuple[int, int], Array] = {}
        self._thread: _Running | None = None
        self._closed = False
        self.counts = [Counts() for _ in self._stages]
        self.calls = 0

    # What it is

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
        """The certified bound on what a rank allocates, source and target included."""
        return self._route.peak_bytes()

    @property
    def input(self) -> Any:
        """**Local.** This rank's source tile in shared memory, made when first asked for."""
        return self._unnamed([self._own_buffer(item, 0) for item in range(len(self._names))])

    @property
    def output(self) -> Any:
        """**Local.** This rank's target tile in shared memory, made when first asked for."""
        return self._unnamed(
            [self._own_buffer(item, self._route.last(item)) for item in range(len(self._names))]
        )

    # Running

    def __call__(self, local: Locals = None, out: Locals = None) -> Any:
        """**Collective.** Move ``local`` (default: :attr:`input`); the target tile.

        The result is ``out`` where given, :attr:`output` where :attr:`input` was moved, else new.
        """
        self._world.finish()
        return self._run(local, out)

    def start(self, local: Locals = None, out: Locals = None) -> None:
        """**Collective.** Begin to move; go on computing, then call :meth:`wait`.

        Leave ``local`` and ``out`` alone until then. Transfers over one communicator run one after
        another, in the order they were started.
        """
        if self._thread is not None:
            raise TransferError("cannot start: this transfer is under way; wait() first")
        self._thread = _Running(self, local, out)
        self._world.enqueue(self._thread)

    def wait(self) -> Any:
        """**Collective.** The result of :meth:`start`."""
        if self._thread is None:
            raise TransferError("cannot wait: nothing was started")
        running, self._thread = self._thread, None
        return running.result()

    def _run(self, local: Locals, out: Locals) -> Any:
        if self._closed:
            raise TransferError("cannot run: this transfer is closed")
        world = self._world
        world.check_usable()
        error: RedistError | None = None
        sources: list[Array | None] = []
        targets: list[Array | None] = []
        try:
            sources, targets = self._arrays(local, out)
        except RedistError as problem:
            error = problem
        word = self._word if error is None else ERROR_WORD
        try:
            with world.failing_together():
                results = self._move(word, sources, targets, error is not None)
        except Disagreement:
            all_agree(world.comm, "cannot transfer", self._said, error)
            raise  # the same request, prepared on some ranks only
        self.calls += 1
        return self._unnamed(results)

    def _move(
        self,
        word: int,
        sources: list[Array | None],
        targets: list[Array | None],
        failed: bool,
    ) -> list[Array | None]:
        world, route = self._world, self._route
        buffers: dict[tuple[int, int], Array | None] = {}
        same = True
        if failed or self._stages[0].is_local:
            same = world.meet(word, 0, self.timeout_s) == SAME
        if failed or not same:
            raise Disagreement
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            buffers[item, 0] = source
            buffers[item, route.last(item)] = target
        in_place = False
        for number, (stage, legs) in enumerate(zip(self._stages, route.stages, strict=True)):
            for leg in legs:
                for buffer in (leg.source, leg.target):
                    if (leg.item, buffer) not in buffers:
                        buffers[leg.item, buffer] = self._middle(leg.item, buffer)
            in_place = stage.run(
                word,
                [buffers[leg.item, leg.source] for leg in legs],
                [buffers[leg.item, leg.target] for leg in legs],
                self._staging,
                self.timeout_s,
                self.counts[number],
            )
            if number + 1 < len(self._stages):
                in_place = self._let_go(number, buffers, in_place)
        if in_place:
            world.meet_node(self.timeout_s)
        return [buffers[item, route.last(item)] for item in range(len(self._names))]

    def _let_go(
        self, number: int, buffers: dict[tuple[int, int], Array | None], in_place: bool
    ) -> bool:
        """Free what no later stage reads, once the neighbours have read it."""
        route = self._route
        later = {(leg.item, leg.source) for legs in route.stages[number + 1 :] for leg in legs}
        done = [
            (leg.item, leg.source)
            for leg in route.stages[number]
            if (leg.item, leg.source) not in later and leg.source != route.last(leg.item)
        ]
        free = [key for key in done if key[1] > 0 or self.donate]
        if not free:
            return in_place
        if in_place:
            self._world.meet_node(self.timeout_s)
        for key in free:
            array = buffers[key]
            if key[1] == 0:
                if array is not None:
                    release_pages(array)
            elif key not in self._middles:
                del buffers[key], array
        return False

    # Buffers

    def _middle(self, item: int, buffer: int) -> Array | None:
        """A buffer between two steps, in shared memory; kept where the bound leaves room for it."""
        key = item, buffer
        if key in self._middles:
            return self._middles[key]
        shape = self._route.shape_of(item, buffer)
        if shape is None:
            return None
        array = shared_empty(shape, self._route.plans[item].source.dtype.to_numpy())
        if self.keeps_buffers and self._fits_with_middles():
            self._middles[key] = array
        return array

    def _fits_with_middles(self) -> bool:
        route = self._route
        held = sum(t.tile_bytes for plan in route.plans for t in plan.types)
        staging = max(route.staging_bytes(k) for k in range(len(route.stages)))
        return not self.donate and held + staging <= route.peak_bytes()

    def _own_buffer(self, item: int, buffer: int) -> Array | None:
        shape = self._route.shape_of(item, buffer)
        if shape is None:
            return None
        key = item, min(buffer, 1)
        if key not in self._own:
            self._own[key] = shared_empty(shape, self._route.plans[item].source.dtype.to_numpy())
        return self._own[key]

    def _arrays(self, local: Locals, out: Locals) -> tuple[list[Array | None], list[Array | None]]:
        own = local is None and not self.is_batch and self._route.shape_of(0, 0) is not None
        own = own or (local is None and self.is_batch)
        sources = self._listed(self.input if own else local, "local")
        results = self._listed(self.output if own and out is None else out, "out")
        targets: list[Array | None] = []
        for item, name in enumerate(self._names):
            plan = self._route.plans[item]
            where = f" {name!r}" if self.is_batch else ""
            shape = self._route.shape_of(item, 0)
            source = sources[item]
            sources[item] = _checked(source, shape, plan.source, f"source tile{where}")
            shape = self._route.shape_of(item, self._route.last(item))
            target = results[item]
            if target is None and shape is not None:
                target = np.empty(shape, _result_dtype(source, plan.source.dtype))
            elif target is not None:
                _checked(target, shape, plan.target, f"out{where}")
                if not target.flags.writeable:
                    raise RequestError(f"cannot write to out{where}: the array is read-only")
                if source is not None and np.may_share_memory(source, target):
                    raise RequestError(f"cannot write to out{where}: it overlaps the source tile")
            if self.donate and source is not None and not source.flags.writeable:
                raise RequestError(f"cannot donate the source tile{where}: it is read-only")
            targets.append(target)
        return sources, targets

    def _listed(self, arrays: Any, what: str) -> list[Array | None]:
        if not self.is_batch:
            return [arrays]
        if arrays is None:
            return [None] * len(self._names)
        if not isinstance(arrays, Mapping) or set(arrays) - set(self._names):
            raise RequestError(f"cannot transfer: {what} must be a dict with names {self._names}")
        return [arrays.get(name) for name in self._names]

    def _unnamed(self, arrays: list[Array | None]) -> Any:
        if not self.is_batch:
            return arrays[0]
        return dict(zip(self._names, arrays, strict=True))

    # Ending

    def close(self) -> None:
        """**Local.** Free buffers; arrays handed out stay valid."""
        if self._thread is not None:
            self.wait()
        self._closed = True
        self._middles.clear()
        self._own.clear()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or self._thread is None:
            self.close()


class _Running:
    """A transfer under way in a thread of its own."""

    def __init__(self, transfer: Transfer, local: Locals, out: Locals) -> None:
        self.transfer, self.local, self.out = transfer, local, out
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def __call__(self) -> None:
        try:
            self.value = self.transfer._run(self.local, self.out)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def result(self) -> Any:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.value


def requests_of(
    source: Type | Named,
    target: Type | Named,
    mesh: Mesh | None,
    target_mesh: Mesh | None,
    size: int,
) -> dict[str, tuple[ArrayType, ArrayType]]:
    """What is asked, array by array; an error where it makes no sense on ``size`` ranks."""
    if isinstance(source, Mapping) != isinstance(target, Mapping):
        raise RequestError("cannot transfer: source and target must both be types or both be dicts")
    if not isinstance(source, Mapping) or not isinstance(target, Mapping):
        source, target = {"": source}, {"": target}  # type: ignore[dict-item]
    if source.keys() != target.keys():
        odd = sorted(source.keys() ^ target.keys())
        raise RequestError(f"cannot transfer: {odd} have a source or a target, not both")
    if not source:
        raise RequestError("cannot transfer: no arrays given")
    out = {
        name: (_type(source[name], mesh, "mesh"), _type(target[name], target_mesh or mesh, "mesh"))
        for name in source
    }
    _check_ranks(out, size)
    return out


def shown(requests: Mapping[str, tuple[ArrayType, ArrayType]], options: Mapping[str, Any]) -> str:
    """A request in words: what ranks compare, and what an error shows."""
    arrays = ", ".join(
        f"{name + ': ' if name else ''}{a} on {a.mesh} -> {b} on {b.mesh}"
        for name, (a, b) in requests.items()
    )
    given = (f"{key}={value}" for key, value in options.items() if value not in DEFAULTS)
    return " ".join([arrays, *given])


def _type(t: Type, mesh: Mesh | None, option: str) -> ArrayType:
    if isinstance(t, ArrayType):
        return t
    if not isinstance(t, str):
        raise RequestError(f"cannot transfer: {t!r} is no type; need an ArrayType or text")
    if mesh is None:
        raise RequestError(f"cannot transfer: the type {t!r} is text; give {option}=")
    return ArrayType.parse(t, mesh)


def _check_ranks(requests: Mapping[str, tuple[ArrayType, ArrayType]], size: int) -> None:
    for pair in requests.values():
        for t in pair:
            if max(t.mesh.ranks) >= size:
                raise RequestError(
                    f"cannot transfer {t}: its mesh {t.mesh} needs rank {max(t.mesh.ranks)}, "
                    f"but the communicator has {size} ranks"
                )


def _checked(array: Any, shape: tuple[int, ...] | None, t: ArrayType, what: str) -> Array | None:
    if shape is None:
        if array is not None:
            raise RequestError(f"cannot take a {what}: this rank is not in the mesh; pass None")
        return None
    if not isinstance(array, (np.ndarray, np.generic)):
        kind = "None" if array is None else type(array).__name__
        raise RequestError(
            f"cannot take {kind} as {what}: need a NumPy array of {t.dtype}{list(shape)}"
        )
    array = np.asarray(array)
    dtype = t.dtype.to_numpy()
    same = array.dtype == dtype or array.dtype.name == t.dtype.extended_name
    if not same or array.shape != shape:
        raise RequestError(
            f"cannot take {array.dtype}{list(array.shape)} as {what}: "
            f"{t} puts {dtype}{list(shape)} on this rank"
        )
    return array if array.dtype == dtype else array.view(dtype)


def _result_dtype(source: Array | None, dtype: DType) -> np.dtype[Any]:
    """The dtype of a new tile: as the source's, where ``ml_dtypes`` has a name for it."""
    if source is not None and source.dtype.name == dtype.extended_name:
        return source.dtype
    return dtype.to_numpy()


def _word(said: str) -> int:
    """A number for a request, never that of an error."""
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:7], "little") * 2
