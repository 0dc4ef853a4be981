"""Weights from trainers straight into the workers of vLLM: shard to shard, all or nothing.

vLLM accepts weight-transfer engines from other packages. This one is called ``redist``::

    engine = LLM(model, weight_transfer_config=WeightTransferConfig(backend="redist"), ...)

    # on every rank that trains; the client is that of vLLM
    redist.torch.vllm.register()
    init = RedistTrainerInit(model.state_dict(), n_workers=8, rank=rank)
    trainer = WeightTransferTrainerFactory.trainer_init(init, client=client)
    ...
    trainer.send_weights()

Nobody gathers whole tensors: each worker runs its own ``load_weights`` once on weights without memory, which
shows what parts of them it stores where (:func:`redist.torch.recorded`). All ranks make the same plan, and
each part goes from where it is to where it serves. The names of weights are those that ``load_weights``
knows; if a trainer has other names, rules say what its tensors are made of (:class:`redist.Weights`).

Weights are written into the live parameters, so these must still be laid out as they were loaded. A
parameter whose shape or dtype has changed since is refused, and so is a loader that computes or casts. What
cannot be detected is a kernel that rearranged a parameter without changing its shape after it was loaded, as
some do with experts: compare answers before and after the first update of a new kind of model.

Written for the interface of vLLM 0.28, ``vllm/distributed/weight_transfer/base.py`` as at commit a014e35 of
2026-08-22. In 0.27 an engine of a worker had one method more, without which vLLM does not make it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from redist.errors import RequestError, TransferError, error_in_words
from redist.refits.plan import refit
from redist.refits.sources import read_all, united
from redist.refits.weights import Weights
from redist.text.nested import flattened
from redist.torch.ranks import Ranks
from redist.torch.recorder import recorded

if TYPE_CHECKING:
    from redist.runtime.refit.bound import BoundRefit
    from redist.runtime.refit.said import Version

BACKEND = "redist"
COMMITS = ("copy", "in place")
READY = "workers that are there"
LOOK_S = 0.01


def _of_vllm(name: str) -> Any:
    """A class of vLLM to derive from; where vLLM is not installed, one without anything."""
    try:
        return getattr(import_module("vllm.distributed.weight_transfer.base"), name)
    except ImportError:
        return type(name, (), {})


def register() -> None:
    """Register ``redist`` with vLLM, which calls this as a plug-in in every process; repeats are harmless."""
    factory = import_module("vllm.distributed.weight_transfer.factory")
    for registry, name in (
        (factory.WeightTransferEngineFactory, "RedistWorker"),
        (factory.WeightTransferTrainerFactory, "RedistTrainer"),
    ):
        with contextlib.suppress(ValueError):  # it is known
            registry.register_engine(BACKEND, __name__, name)


@dataclass
class RedistTrainerInit(_of_vllm("TrainerInitInfo")):  # type: ignore[misc]
    """What a training rank passes; for the options, the first rank's values count for all.

    ``tensors`` are its weights: a dict of DTensors, or of (tile, type) pairs, which are sent each time from
    where they are. ``weights`` are their types and rules, if the tensors alone do not tell them; the ranks
    of a pipeline may each know only their own. Ranks in types are those of ``group``, by default all ranks
    that train. ``serve`` are types of the engine's parameters by name, as an alternative to recording its
    loader; the engine's ranks follow those that train. ``host`` is the first trainer's address as workers
    reach it; port 0 chooses any free port.

    ``limit_bytes``, ``cast`` and ``pair`` are those of :func:`redist.refit`; ``transport``, ``commit`` and
    ``timeout_s`` are those of :meth:`redist.RefitPlan.bind`. ``commit="in place"`` takes no memory besides
    the parameters, but after a failure these are a mixture of old and new weights. ``joint`` is the backend
    of the group of all ranks.
    """

    backend: ClassVar[str] = BACKEND

    tensors: Mapping[str, Any]
    n_workers: int
    weights: Weights | None = None
    serve: Weights | None = None
    group: Any = None
    host: str = "localhost"
    port: int = 0
    limit_bytes: int | str | None = None
    cast: bool = False
    pair: Mapping[str, Any] | None = None
    commit: str = "copy"
    transport: str = "auto"
    joint: str | None = None
    timeout_s: float = 300.0
    rank: int = field(kw_only=True)


@dataclass
class RedistInit(_of_vllm("WeightTransferInitInfo")):  # type: ignore[misc]
    """What a worker is told: the weights of both sides as text, where all ranks meet, and how."""

    source: str
    serve: str | None
    host: str
    port: int
    first_rank: int
    size: int
    plan: dict[str, Any]
    bind: dict[str, Any]
    joint: str | None


@dataclass
class RedistUpdate(_of_vllm("WeightTransferUpdateInfo")):  # type: ignore[misc]
    """The version that is sent."""

    version: Version


def _open_store(host: str, port: int, *, is_first: bool, timeout_s: float) -> Any:
    """**Local.** The place where processes of several jobs meet; the first hosts it for the others.

    With port 0 the first process takes a free port: ``store.port``.
    """
    wait = timedelta(seconds=timeout_s)
    return dist.TCPStore(host, port, is_master=is_first, timeout=wait, wait_for_workers=False)


def _joint_group(
    store: Any, rank: int, size: int, backend: str | None = None, *, timeout_s: float
) -> Any:
    """**Collective over** all processes that join. A process group outside every world, with ranks from 0.

    ``torch.distributed`` makes groups only of the ranks of one world, so this uses two of its names that are
    not public. Without a ``backend``, it uses gloo, and NCCL for tensors on GPUs.
    """
    if backend is None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    name = f"redist {store.host}:{store.port}"
    wait = timedelta(seconds=timeout_s)
    group, _ = c10d._new_process_group_helper(
        size, rank, [], backend, store, group_name=name, timeout=wait
    )
    c10d._world.pg_group_ranks[group] = {k: k for k in range(size)}
    return group


def _bound(
    store: Any, rank: int, told: RedistInit, own: Weights | None, why: str | None, **tiles: Any
) -> BoundRefit:
    """**Collective over** trainers and workers. Tell each other the target; plan, and bind the plan."""
    timeout_s = float(told.bind["timeout_s"])
    group = _joint_group(store, rank, told.size, told.joint, timeout_s=timeout_s)
    text = None if own is None else own.to_json()
    said: list[tuple[str | None, str | None]] = Ranks(group, timeout_s).gather((text, why))
    for other, (_, problem) in enumerate(said):
        if problem is not None:
            raise RequestError(f"cannot bring weights to vLLM: rank {other}: {problem}")
    target = united(read_all([text for text, _ in said if text is not None]))
    plan = refit(Weights.from_json(told.source), target, **told.plan)
    return plan.bind(comm=group, **tiles, **told.bind)


class RedistWorker(_of_vllm("WeightTransferEngine")):  # type: ignore[misc]
    """One worker of an engine: receives weights into the parameters of its model."""

    init_info_cls = RedistInit
    update_info_cls = RedistUpdate
    supports_draft_weight_update = False

    refit: BoundRefit | None = None
    version: Version | None = None
    """That of the parameters; None before the first update, or if they are a mixture."""
    _arrived: Version | None = None

    def init_transfer_engine(self, init_info: RedistInit) -> None:
        """**Collective.** Record the loader, meet the trainers, and bind the plan."""
        parallel = self.parallel_config
        number = parallel.data_parallel_index * parallel.world_size + parallel.rank
        rank = init_info.first_rank + int(number)
        parameters = {**dict(self.model.named_buffers()), **dict(self.model.named_parameters())}
        own, why = None, None
        try:
            if init_info.serve is not None:
                own = Weights.from_json(init_info.serve)
            else:
                source = Weights.from_json(init_info.source)
                own = Weights.recorded(
                    {rank: recorded(self.model.load_weights, source, parameters)}
                )
        except Exception as problem:  # told to all, who would wait
            why = error_in_words(problem)
        timeout_s = float(init_info.bind["timeout_s"])
        store = _open_store(init_info.host, init_info.port, is_first=False, timeout_s=timeout_s)
        store.add(READY, 1)
        mine = {} if own is None else {n: parameters[n].detach() for n, t in own.types.items()
                                       if rank in t.mesh.ranks and n in parameters}  # fmt: skip
        self.refit = _bound(store, rank, init_info, own, why, receive=mine)

    def start_weight_update(self) -> None:
        """**Local.** Begin an update: from here on nothing has arrived."""
        if self.refit is None:
            raise RequestError("cannot update weights: init_transfer_engine was not called")
        self._arrived = None

    def receive_weights(self, update_info: RedistUpdate) -> None:
        """**Collective.** Receive weights; parameters change only if all have arrived on all workers."""
        assert self.refit is not None, "start_weight_update refuses"
        try:
            arrived = self.refit.receive()
        finally:
            self.version = self.refit.version
        if arrived != update_info.version:
            raise TransferError(
                f"cannot use version {arrived!r}: version {update_info.version!r} was announced; send one "
                "version at a time"
            )
        self._arrived = arrived

    def finish_weight_update(self) -> None:
        """**Local.** End an update; an error if the weights have not all arrived."""
        if self._arrived is None:
            raise TransferError(
                f"cannot finish the update: new weights did not arrive whole; version {self.version!r} stays"
            )
        self._arrived = None

    def shutdown(self) -> None:
        """**Local.** Release the plan."""
        self.refit = None


class RedistTrainer(_of_vllm("TrainerWeightTransferEngine")):  # type: ignore[misc]
    """One training rank; the first one also communicates with the engine."""

    init_info_cls = RedistTrainerInit

    refit: BoundRefit
    _ranks: Ranks
    version: Version = 0
    """The last that was sent."""

    @classmethod
    def trainer_init(cls, init_info: RedistTrainerInit, *, client: Any, source: Any = None) -> Any:
        """**Collective over** trainers and workers. Get ready to send; ``source`` is not used."""
        self = cls(client=client, source=source, is_sender=init_info.rank == 0)
        group = dist.group.WORLD if init_info.group is None else init_info.group
        ranks, timeout_s = Ranks(group, init_info.timeout_s), init_info.timeout_s
        self._ranks = ranks
        weights, problem = Weights({}), None
        try:
            weights = _weights_of(init_info, ranks)
        except Exception as error:  # told to all, who would wait
            problem = error_in_words(error)
        _raise_any(ranks.gather(problem), "bring weights to vLLM")
        weights = weights.together(group)
        told, store = None, None
        if self.is_sender:
            store = _open_store(init_info.host, init_info.port, is_first=True, timeout_s=timeout_s)
            told = RedistInit(
                weights.to_json(), init_info.serve and init_info.serve.to_json(), init_info.host, store.port,
                ranks.size, ranks.size + init_info.n_workers,
                {"limit_bytes": init_info.limit_bytes, "cast": init_info.cast, "pair": init_info.pair},
                {"transport": init_info.transport, "commit": init_info.commit, "timeout_s": timeout_s},
                init_info.joint,
            )  # fmt: skip
        told = ranks.gather(told)[0]
        if store is None:
            store = _open_store(told.host, told.port, is_first=False, timeout_s=timeout_s)
        tensors = dict(flattened(init_info.tensors, "send"))
        tiles = {name: v[0] if isinstance(v, tuple) else v for name, v in tensors.items()}
        ask = client.init_weight_transfer_engine if self.is_sender else None
        with _Call(ask, asdict(told)) as call:
            problem = call.failed_before(lambda: store.add(READY, 0) >= init_info.n_workers)
            _raise_any(ranks.gather(problem), "bring weights to vLLM")
            self.refit = _bound(store, ranks.rank, told, None, None, send=tiles)
        return self

    def send_weights(
        self, version: Version | None = None, changed: Iterable[str] | None = None
    ) -> None:
        """**Collective over** trainers. Send the tensors as they are now, and wait until they are in use.

        ``version`` is by default the number of this call. ``changed`` has the names of the stored tensors
        that have changed since the last call: only these are sent. After a failure the engine serves the
        version that it had before, and this group of trainers and workers cannot be used again.
        """
        if version is None:
            version = self.version + 1 if isinstance(self.version, int) else 1
        self.version = version
        problem = None
        if self.is_sender:
            try:
                self.client.start_weight_update()
            except Exception as error:  # told to all, who would wait
                problem = error_in_words(error)
        _raise_any(self._ranks.gather(problem), "start to update the weights of vLLM")
        if not self.is_sender:
            self.refit.send(self.version, changed)
            return
        with _Call(self.client.update_weights, {"version": self.version}):
            self.refit.send(self.version, changed)
        self.client.finish_weight_update(str(self.version))


def _weights_of(init_info: RedistTrainerInit, ranks: Ranks) -> Weights:
    """**Local.** What a rank that trains knows of the weights; an error if it asks for what cannot be."""
    if init_info.commit not in COMMITS:
        known = " and ".join(map(repr, COMMITS))
        raise RequestError(f"commit={init_info.commit!r} is none for vLLM: known are {known}")
    if ranks.names != tuple(range(ranks.size)):
        raise RequestError(
            f"cannot use the group of ranks {list(ranks.names)}: those that train must be the first "
            "of their job, from 0"
        )
    return init_info.weights or Weights.of(init_info.tensors)


def _raise_any(problems: Iterable[str | None], what: str) -> None:
    """Raise the same error on all ranks if one of them has one."""
    for text in problems:
        if text is not None:
            raise RequestError(f"cannot {what}: {text}")


class _Call:
    """A call to the engine in a thread of its own, while this one meets the workers that it wakes.

    Its error is raised at the end, and if this thread fails because the engine woke nobody. Otherwise a call
    is not waited for if this thread fails: workers may wait, too.
    """

    def __init__(self, function: Any, given: dict[str, Any]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._answer: Future[Any] | None = None
        if function is not None:
            self._answer = self._pool.submit(function, given)

    def failed_before(self, is_there: Any) -> str | None:
        """Wait until something is there; why the call failed, if it does so before."""
        while self._answer is not None and not is_there():
            problem = self._answer.exception() if self._answer.done() else None
            if problem is not None:
                return error_in_words(problem)
            time.sleep(LOOK_S)
        return None

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._pool.shutdown(wait=False)
        if self._answer is None:
            return
        if error is None:
            self._answer.result()
        elif self._answer.done() and (problem := self._answer.exception()) is not None:
            raise TransferError(
                f"cannot bring weights to vLLM: {error_in_words(problem)}; then {error}"
            ) from error
