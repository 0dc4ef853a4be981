"""Meeting places: where rank 0 leaves the ticket of a job, and the others find it.

A place has three methods: ``set``, ``get`` and ``wait``. A folder that all see, the store of a
``torch.distributed`` job, an actor of Ray and the scheduler of Dask are such places; so is any object with
these methods. Whoever can read a place can read the ticket in it, and join.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from redist.errors import LaunchError

KEY = "redist-join"
LOOK_S = 0.02
"""A place without a way to wait is looked at so often."""


@runtime_checkable
class Place(Protocol):
    """Where processes leave words for each other."""

    def set(self, key: str, text: str) -> None:
        """Leave a text under a key, in the place of any that lies there."""

    def get(self, key: str) -> str:
        """The text under a key that is there."""

    def wait(self, key: str, timeout_s: float) -> None:
        """Wait until there is a text under a key; TimeoutError if none comes in time."""


class FilePlace:
    """A folder that all processes see; its files are for this user alone.

    >>> import tempfile
    >>> place = FilePlace(tempfile.mkdtemp())
    >>> place.set("a", "text")
    >>> place.wait("a", 1.0)
    >>> place.get("a")
    'text'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def set(self, key: str, text: str) -> None:
        """Write a file, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f"{key}-{os.getpid()}.new"
        with suppress(FileNotFoundError):
            new.unlink()
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
        new.replace(self.folder / key)

    def get(self, key: str) -> str:
        """Read a file."""
        return (self.folder / key).read_text()

    def wait(self, key: str, timeout_s: float) -> None:
        """Look for a file, again and again."""
        _wait_for((self.folder / key).exists, f"no file {key} in {self.folder}", timeout_s)


class TorchPlace:
    """A store of ``torch.distributed``, such as that of torchrun."""

    def __init__(self, store: Any) -> None:
        self._store = store

    @staticmethod
    def of_torchrun(address: str, port: int, timeout_s: float) -> TorchPlace:
        """The store that torchrun's agents hold."""
        from torch.distributed import TCPStore

        end = timedelta(seconds=timeout_s)
        return TorchPlace(TCPStore(address, port, is_master=False, timeout=end))

    def set(self, key: str, text: str) -> None:
        """Leave a text."""
        self._store.set(key, text)

    def get(self, key: str) -> str:
        """Read a text."""
        return str(self._store.get(key).decode())

    def wait(self, key: str, timeout_s: float) -> None:
        """Wait for a text."""
        try:
            self._store.wait([key], timedelta(seconds=timeout_s))
        except Exception as error:  # its kind differs between versions
            raise TimeoutError(str(error).partition("\n")[0]) from None


class RayPlace:
    """An actor of Ray that whoever comes first starts; it ends with that process."""

    def __init__(self, name: str = KEY) -> None:
        import ray

        class Texts:
            """What the actor holds."""

            def __init__(self) -> None:
                self.texts: dict[str, str] = {}

            def set(self, key: str, text: str) -> None:
                self.texts[key] = text

            def get(self, key: str) -> str | None:
                return self.texts.get(key)

        self._ray, self.host = ray, ray.util.get_node_ip_address()
        job = ray.get_runtime_context().get_job_id()
        options = {"name": f"{name}-{job}", "get_if_exists": True, "num_cpus": 0}
        self._actor = ray.remote(Texts).options(**options).remote()
        _ACTORS.append(self._actor)

    def set(self, key: str, text: str) -> None:
        """Leave a text."""
        self._ray.get(self._actor.set.remote(key, text))

    def get(self, key: str) -> str:
        """Read a text."""
        return str(self._ray.get(self._actor.get.remote(key)))

    def wait(self, key: str, timeout_s: float) -> None:
        """Ask for a text, again and again."""
        found = self._actor.get
        _wait_for(lambda: self._ray.get(found.remote(key)) is not None, f"no {key}", timeout_s)


_ACTORS: list[Any] = []
"""Kept: an actor ends with the process that started it, and others may still read."""


class DaskPlace:
    """The scheduler of the Dask worker that this process is.

    A client of its own asks it: ``client.run`` holds the worker's event loop meanwhile.
    """

    def __init__(self, name: str = KEY) -> None:
        from distributed import Client

        self._name, worker = name, dask_worker()
        self.address: str = worker.address
        self.host: str = worker.address.rpartition("//")[2].rpartition(":")[0]
        self._client = Client(
            worker.scheduler.address, set_as_default=False, security=worker.security
        )

    def workers(self) -> list[str]:
        """The addresses of all workers, those of a host one after another."""
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def _variable(self, key: str) -> Any:
        from distributed import Variable

        return Variable(f"{self._name}-{key}", client=self._client)

    def set(self, key: str, text: str) -> None:
        """Leave a text."""
        self._variable(key).set(text)

    def get(self, key: str) -> str:
        """Read a text."""
        return str(self._variable(key).get())

    def wait(self, key: str, timeout_s: float) -> None:
        """Wait for a text."""
        self._variable(key).get(timeout=timeout_s)

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()


def dask_worker() -> Any:
    """**Local.** The Dask worker that this process is, or None."""
    module = sys.modules.get("distributed.worker")
    workers = list(module.Worker._instances) if module is not None else []
    return workers[0] if workers else None


def in_ray_worker() -> bool:
    """**Local.** Whether this process is a worker of Ray: that of a task or of an actor."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def is_torch_store(at: object) -> bool:
    """**Local.** Whether an object is a store of ``torch.distributed``."""
    torch = sys.modules.get("torch.distributed")
    return torch is not None and isinstance(at, torch.Store)


def read_text(place: Place, key: str, timeout_s: float) -> str:
    """**Local.** The text under a key, which another process will have left in time."""
    try:
        place.wait(key, timeout_s)
        return place.get(key)
    except Exception as error:
        kind = type(place).__name__
        raise LaunchError(
            f"cannot join: rank 0 left no ticket within {timeout_s:g} s ({kind}: {error}); is it there, "
            "and does it use the same place?"
        ) from None


def _wait_for(is_there: Any, missing: str, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not is_there():
        if time.monotonic() > end:
            raise TimeoutError(missing)
        time.sleep(LOOK_S)
