"""A CuPy without a GPU, for what happens around the kernels: memory, streams, events, messages.

Work on a stream is put off: it is done when somebody waits for it, or a little at a time when somebody
asks whether it is done. So a message that does not wait for what was packed sends other bytes, and
memory of the pool is lent again, on the same stream, before those who used it have come to it. Copies
and reductions are those of the host, IPC does not work, and GPUs have names of the test's choosing.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from redist.runtime.copies.copy_list import CopyList
from redist.runtime.cuda.kernels.rounds import CudaCopyList, CudaReductionList
from redist.runtime.schedule.compiler import Combine

RNG = Random(5)
Work = Callable[[], None]


_WORKING = threading.RLock()
"""Held by the thread that does work of any stream: streams wait for each other."""


class Stream:
    """Work to be done in order."""

    null: Stream
    _numbers = itertools.count(1)

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = next(self._numbers)
        self.queue: deque[Work | Event] = deque()
        self.put = self.done = 0
        self._before: list[Stream] = []
        STREAMS[self.ptr] = self

    def __enter__(self) -> Stream:
        self._before.append(CURRENT[0])
        CURRENT[0] = self
        return self

    def __exit__(self, *args: object) -> None:
        CURRENT[0] = self._before.pop()

    def add(self, work: Work | Event) -> None:
        """Put off some work, or everything until an event; or do it, where the GPU is quick."""
        self.queue.append(work)
        self.put += 1
        if QUICK[0]:
            self.synchronize()

    def go_on(self, until: int) -> None:
        """Do the work up to a place."""
        with _WORKING:
            while self.done < until:
                work = self.queue.popleft()
                if isinstance(work, Event):
                    work.synchronize()
                else:
                    work()
                self.done += 1

    def synchronize(self) -> None:
        """Do all of it."""
        self.go_on(self.put)

    def record(self, event: Event | None = None) -> Event:
        """An event at this place."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Do nothing more before an event has come, where it is now."""
        self.add(event.copy())


EVENTS: WeakValueDictionary[int, Event] = WeakValueDictionary()
NOT_READY = 600


class Event:
    """A place on a stream; ``ptr`` is its number."""

    def __init__(self, **options: bool) -> None:
        self.stream, self.at = Stream.null, 0
        self.ptr = id(self)
        EVENTS[self.ptr] = self

    def record(self, stream: Stream) -> None:
        """Here."""
        self.stream, self.at = stream, stream.put

    def copy(self) -> Event:
        """As it is now: it may be recorded again."""
        other = Event()
        other.stream, other.at = self.stream, self.at
        return other

    def synchronize(self) -> None:
        """Do what comes before."""
        self.stream.go_on(self.at)

    @property
    def done(self) -> bool:
        """Whether that is done; some work of any stream is, in the meantime."""
        busy = [stream for stream in [*STREAMS.values()] if stream.queue]
        for stream in RNG.sample(busy, len(busy)):
            stream.go_on(min(stream.put, stream.done + RNG.randrange(3)))
        return self.stream.done >= self.at


QUICK = [False]
STREAMS: dict[int, Stream] = {}
Stream.null = Stream()


class _Current(threading.local):
    """The stream of each thread."""

    def __init__(self) -> None:
        self.stream = Stream.null

    def __getitem__(self, number: int) -> Stream:
        return self.stream

    def __setitem__(self, number: int, stream: Stream) -> None:
        self.stream = stream


CURRENT = _Current()
FREE: dict[tuple[int, int], list[Any]] = {}


LIVE = [0]
"""Bytes that the pool has lent."""
GREEDY = [False]
"""Whether memory that another stream has got back is written to at once."""
HOOKS: list[Any] = []


def lend(n_bytes: int) -> int:
    """Count what the pool lends: in whole grains."""
    grains = -(-n_bytes // 512) * 512
    LIVE[0] += grains
    for hook in HOOKS:
        hook.malloc_postprocess()
    return grains


class Memory:
    """Bytes of a pool that lends them again on the same stream, at once."""

    def __init__(self, n_bytes: int) -> None:
        self.key = CURRENT[0].ptr, max(1, n_bytes)
        again = FREE.get(self.key)
        self.bytes = again.pop() if again else np.full(self.key[1], 0xA5, np.uint8)
        self.ptr = int(self.bytes.ctypes.data)
        self.lent = lend(n_bytes)

    def __del__(self) -> None:
        LIVE[0] -= self.lent
        if GREEDY[0] and self.key[0] != CURRENT[0].ptr:
            self.bytes[:] = 0x5A
        FREE.setdefault(self.key, []).append(self.bytes)


class PinnedMemory:
    """Memory of the host: of no stream, and not used again."""

    def __init__(self, n_bytes: int) -> None:
        self.bytes = np.full(max(1, n_bytes), 0xA5, np.uint8)
        self.ptr = int(self.bytes.ctypes.data)
        PINNED[self.ptr] = self.bytes.size

    def __del__(self) -> None:
        KEPT.append(self.bytes)


KEPT: list[Any] = []
PINNED: dict[int, int] = {}
"""Where pinned memory begins, and how much it is."""


def attributes_of(address: int) -> SimpleNamespace:
    """What kind of memory is at an address: pinned, or none of CUDA's."""
    pinned = any(start <= address < start + n_bytes for start, n_bytes in PINNED.items())
    return SimpleNamespace(type=int(pinned))


class MemoryHook:
    """Is told of what the pool lends, while inside."""

    def __enter__(self) -> MemoryHook:
        HOOKS.append(self)
        return self

    def __exit__(self, *args: object) -> None:
        HOOKS.remove(self)


class Pointer:
    """A place in memory, which it holds."""

    def __init__(self, mem: Any, ptr: int) -> None:
        self.mem, self.ptr = mem, ptr


class ndarray:
    """An array in such memory; the memory is lent as long as an array holds its pointer."""

    device = SimpleNamespace(id=0)

    def __init__(self, values: Any, data: Pointer, base: ndarray | None = None) -> None:
        self.values, self.data, self.base = values, data, base
        self._shape = values.shape
        self.__cuda_array_interface__: dict[str, Any] = {"data": (0, False)}

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "strides", "dtype", "ndim", "size", "nbytes", "flags"):
            return getattr(self.values, name)
        raise AttributeError(name)

    def _set_shape_and_strides(self, shape: Any, strides: Any, c: bool, f: bool) -> None:
        """What CuPy's does before :meth:`_init`; nobody looks at the array in between."""
        assert len(shape) == len(strides)
        self._shape = tuple(shape)

    def _init(self, shape: Any, dtype: Any) -> None:
        """New memory; the shape is appended to the one that is there, as CuPy does it."""
        new = empty((*self._shape, *shape), dtype)
        self.values, self.data, self._shape = new.values, new.data, new.shape

    def _viewed(self, values: Any) -> ndarray:
        address = int(values.ctypes.data)
        data = self.data if address == self.data.ptr else Pointer(self.data.mem, address)
        return ndarray(values, data, self if self.base is None else self.base)

    def __getitem__(self, key: Any) -> ndarray:
        return self._viewed(self.values[key, ...] if isinstance(key, int) else self.values[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        values = self.values[key] if key is not Ellipsis else self.values
        CURRENT[0].add(lambda: np.copyto(values, getattr(value, "values", value), casting="unsafe"))

    def fill(self, value: Any) -> None:
        """All the same; the sign of a zero is lost, as CuPy loses it."""
        self[...] = value if value else 0

    def __int__(self) -> int:
        return int(asnumpy(self))

    def transpose(self, *order: Any) -> ndarray:
        """The same memory with its dims in another order."""
        return self._viewed(self.values.transpose(*order))

    def reshape(self, *shape: Any) -> ndarray:
        """The same memory in another shape."""
        return self._viewed(self.values.reshape(*shape))

    def view(self, dtype: Any) -> ndarray:
        """The same memory as other elements."""
        return self._viewed(self.values.view(dtype))


def empty(shape: Any, dtype: Any, order: str = "C") -> ndarray:
    """New memory with whatever it holds."""
    dtype = np.dtype(dtype)
    n = int(np.prod(shape, dtype=np.int64))
    memory = Memory(n * dtype.itemsize)
    flat = memory.bytes[: n * dtype.itemsize].view(dtype)
    values = flat.reshape(shape, order=order)  # type: ignore[call-overload]
    return ndarray(values, Pointer(memory, memory.ptr))


def full(shape: Any, value: Any, dtype: Any) -> ndarray:
    """All the same."""
    out = empty(shape, dtype)
    out[...] = value
    return out


def zeros(shape: Any, dtype: Any) -> ndarray:
    """All zero."""
    return full(shape, 0, dtype)


def asarray(values: Any) -> ndarray:
    """A copy on the pretended GPU; of an array of another library, its memory."""
    if not isinstance(values, ndarray) and hasattr(values, "__cuda_array_interface__"):
        return ndarray(values.array.values, Pointer(None, values.array.data.ptr))
    out = empty(values.shape, values.dtype)
    out[...] = np.array(values)
    return out


def asfortranarray(array: ndarray) -> ndarray:
    """A copy in Fortran's order."""
    out = empty(array.shape, array.dtype, "F")
    out[...] = array
    return out


def asnumpy(array: ndarray) -> Any:
    """A copy on the host, after all work on this stream."""
    CURRENT[0].synchronize()
    return np.array(getattr(array, "values", array))


def memcpy_async(to: int, of: int, n_bytes: int, kind: int, stream: int) -> None:
    """A copy of bytes."""

    def copy() -> None:
        ctypes.memmove(to, of, n_bytes)

    STREAMS.get(stream, Stream.null).add(copy)


def bind_moves(self: CudaCopyList, bases: Any, stream: int = 0) -> list[Callable[[], None]]:
    """Copies on the host, put off."""
    moves, there = CopyList.of(self.moves), bases.copy()
    queue = STREAMS.get(stream, Stream.null)
    return [partial(queue.add, partial(moves.run, there))]


def bind_combine(self: CudaReductionList, bases: Any, stream: int = 0) -> list[Callable[[], None]]:
    """Reductions on the host, put off."""
    there = bases.copy()
    chains = [chain.moves() for chain in self.chains]
    works = [partial(CopyList.of(move for move, *_ in chains).run, there)]
    for turn in ([move for _, *rest in chains for move in rest], *self.turns):
        works.append(partial(Combine(self.op, self.dtype, CopyList.of(turn)).run, there))
    queue = STREAMS.get(stream, Stream.null)
    return [partial(queue.add, work) for work in works]


class Device:
    """The only one."""

    pci_bus_id = "0000:00:00.0"

    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *args: object) -> None:
        pass


def device_synchronize() -> None:
    """Do all of what every stream has put off."""
    for stream in STREAMS.values():
        stream.synchronize()


def install(gpu: str, nccl: Any = None, quick: bool = False) -> None:
    """Be CuPy in this process, on a GPU of this name; a quick one puts nothing off."""
    QUICK[0] = quick
    top, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    for name in ("ndarray", "empty", "full", "zeros", "asarray", "asfortranarray", "asnumpy"):
        setattr(top, name, globals()[name])
    runtime = SimpleNamespace(
        memcpyAsync=memcpy_async,
        pointerGetAttributes=attributes_of,
        eventQuery=lambda event: 0 if EVENTS[event].done else NOT_READY,
        ipcGetEventHandle=lambda event: b"",
        getDevice=lambda: 0,
        deviceSynchronize=device_synchronize,
        getDeviceProperties=lambda number: {"uuid": gpu.encode()},
    )
    things: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "Device": Device,
        "PinnedMemory": PinnedMemory,
        "alloc_pinned_memory": PinnedMemory,
        "alloc": Memory,
        "memory": SimpleNamespace(PooledMemory=Memory),
        "memory_hook": SimpleNamespace(MemoryHook=MemoryHook),
        "get_current_stream": lambda: CURRENT[0],
        "runtime": runtime,
        "nccl": nccl or SimpleNamespace(available=False),
    }
    for name, thing in things.items():
        setattr(cuda, name, thing)
    more = {
        "may_share_memory": lambda a, b: np.may_share_memory(a.values, b.values),
        "get_default_memory_pool": lambda: SimpleNamespace(used_bytes=lambda: LIVE[0]),
        "cuda": cuda,
    }
    for name, thing in more.items():
        setattr(top, name, thing)
    sys.modules["cupy"], sys.modules["cupy.cuda"] = top, cuda
    for name in ("memory", "memory_hook"):
        sys.modules[f"cupy.cuda.{name}"] = things[name]
    CudaCopyList.bind = bind_moves  # type: ignore[method-assign]
    CudaReductionList.bind = bind_combine  # type: ignore[method-assign]


MODULES = ("cupy", "cupy.cuda", "cupy.cuda.memory", "cupy.cuda.memory_hook")


@contextmanager
def gone_afterwards() -> Iterator[None]:
    """Leave this process as it was found: no CuPy, nothing quick or greedy, no work put off."""
    kinds: tuple[Any, ...] = (CudaCopyList, CudaReductionList)
    modules = {name: sys.modules.get(name) for name in MODULES}
    binds = [kind.bind for kind in kinds]
    flags = QUICK[0], GREEDY[0]
    sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type]
    try:
        yield
        for stream in STREAMS.values():
            stream.synchronize()
    finally:
        for stream in STREAMS.values():
            stream.queue.clear()
            stream.done = stream.put
        KEPT.clear()
        PINNED.clear()
        QUICK[0], GREEDY[0] = flags
        for kind, bind in zip(kinds, binds, strict=True):
            kind.bind = bind
        for name, module in modules.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
