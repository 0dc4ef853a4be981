"""As much of vLLM as an engine for weight transfer meets: its interface, a worker, a client. No model runs.

The client and the workers speak through a store of files, as an HTTP server and its workers would.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@dataclass
class WeightTransferInitInfo(ABC):  # noqa: B024
    """Told to workers at the start."""


@dataclass
class WeightTransferUpdateInfo(ABC):  # noqa: B024
    """Told to workers at each update."""


@dataclass
class TrainerInitInfo:
    """What a trainer says."""

    backend: ClassVar[str]
    rank: int = field(kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not getattr(cls, "backend", None):
            raise TypeError(f"{cls.__name__} has no backend")


class WeightTransferEngine(ABC, Generic[T, U]):
    """On a worker."""

    init_info_cls: type[T]
    update_info_cls: type[U]
    supports_draft_weight_update = True

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.parallel_config = vllm_config.parallel_config

    @abstractmethod
    def init_transfer_engine(self, init_info: T) -> None: ...

    @abstractmethod
    def start_weight_update(self) -> None: ...

    @abstractmethod
    def receive_weights(self, update_info: U) -> None: ...

    @abstractmethod
    def finish_weight_update(self) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.update_info_cls(**update_info))


class TrainerWeightTransferEngine(ABC, Generic[T]):
    """On a trainer."""

    init_info_cls: type[T]

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        self.client, self.source, self.is_sender = client, source, is_sender

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info: T, *, client: Any, source: Any = None) -> Any: ...

    @abstractmethod
    def send_weights(self) -> None: ...


class _Factory:
    """Engines by name; modules are imported when one is made."""

    def __init__(self) -> None:
        self._registry: dict[str, Callable[[], Any]] = {}

    def register_engine(self, name: str, module: str, class_name: str) -> None:
        if name in self._registry:
            raise ValueError(f"{name} is registered")
        self._registry[name] = lambda: getattr(
            __import__(module, fromlist=[class_name]), class_name
        )

    def create_engine(self, config: Any, vllm_config: Any, device: Any, model: Any) -> Any:
        return self._registry[config.backend]()(config, vllm_config, device, model)

    def trainer_init(self, init_info: Any, *, client: Any, source: Any = None) -> Any:
        return self._registry[init_info.backend]().trainer_init(
            init_info, client=client, source=source
        )


def install() -> ModuleType:
    """Put this in the place of vLLM; its module of factories."""
    names = ("vllm", "vllm.distributed", "vllm.distributed.weight_transfer")
    modules = {
        name: ModuleType(name) for name in (*names, f"{names[-1]}.base", f"{names[-1]}.factory")
    }
    base, factory = list(modules.values())[-2:]
    for one in (
        WeightTransferInitInfo, WeightTransferUpdateInfo, TrainerInitInfo, WeightTransferEngine,
        TrainerWeightTransferEngine,
    ):  # fmt: skip
        setattr(base, one.__name__, one)
    factory.WeightTransferEngineFactory = _Factory()  # type: ignore[attr-defined]
    factory.WeightTransferTrainerFactory = _Factory()  # type: ignore[attr-defined]
    sys.modules.update(modules)
    return factory


class Worker:
    """A worker that does what the client says, one call after another."""

    def __init__(self, store: Any, factory: Any, number: int, n_workers: int, model: Any) -> None:
        self.store, self.number, self.active = store, number, False
        parallel = SimpleNamespace(data_parallel_index=0, world_size=n_workers, rank=number)
        self.engine = factory.WeightTransferEngineFactory.create_engine(
            SimpleNamespace(backend="redist"),
            SimpleNamespace(parallel_config=parallel),
            "cpu",
            model,
        )

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.engine.init_transfer_engine(self.engine.init_info_cls(**init_info))

    def start_weight_update(self) -> None:
        assert not self.active, "an update is under way"
        self.engine.start_weight_update()
        self.active = True

    def update_weights(self, update_info: dict[str, Any]) -> None:
        assert self.active, "start_weight_update comes first"
        try:
            self.engine.update_weights(update_info)
        except BaseException:
            self.active = False
            raise

    def finish_weight_update(self) -> None:
        assert self.active, "start_weight_update comes first"
        self.engine.finish_weight_update()
        self.active = False

    def serve(self, calls: dict[str, Callable[..., Any]]) -> None:
        """Answer calls until ``stop``; ``calls`` are more that a test makes."""
        for n in range(1000):
            name, given = json.loads(self.store.get(f"call {n}"))
            if name == "stop":
                return
            try:
                found = (calls.get(name) or getattr(self, name))(*given)
                answer = [None, found]
            except Exception as problem:
                answer = [f"{type(problem).__name__}: {problem}", None]
            self.store.set(f"answer {n} of {self.number}", json.dumps(answer))


class Client:
    """What a trainer calls; an error of any worker is an error of the call."""

    def __init__(self, store: Any, n_workers: int) -> None:
        self.store, self.n_workers, self.n_calls = store, n_workers, 0
        self.versions: list[str | None] = []

    def call(self, name: str, *given: Any) -> list[Any]:
        n, self.n_calls = self.n_calls, self.n_calls + 1
        self.store.set(f"call {n}", json.dumps([name, given]))
        if name == "stop":
            return []
        answers = [json.loads(self.store.get(f"answer {n} of {k}")) for k in range(self.n_workers)]
        problems = [f"worker {k}: {text}" for k, (text, _) in enumerate(answers) if text]
        if problems:
            raise RuntimeError("; ".join(problems))
        return [found for _, found in answers]

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.call("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        self.call("start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.call("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.call("finish_weight_update")
        self.versions.append(weight_version)
