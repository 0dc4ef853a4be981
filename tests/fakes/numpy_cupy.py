"""A CuPy made of NumPy, for programs of global arrays where there is no GPU.

Its arrays are no arrays of NumPy, refuse to become one by themselves, and refuse to be mixed with them,
as CuPy's do; NumPy's functions are handed on to them by the same protocols. Tiles move as the host's do.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.lib.mixins import NDArrayOperatorsMixin

from redist.runtime.copies.addresses import array_at
from tests.fakes.emulated_loops import RawModule

MISSING = {"vector_norm", "unravel_index"}
"""Functions that CuPy does not have."""
REFUSED = {"take": "mode", "reshape": "copy"}
"""Arguments of functions and methods of NumPy that CuPy's do not have."""

PLACE: list[Any] = [lambda values: values]
"""What says where new arrays lie."""
KNOWN = {"shape", "strides", "dtype", "ndim", "size", "nbytes", "itemsize"}
"""What is known of an array before its values are there."""
PUT_OFF: list[bool] = []
"""Whether copies from array to array are put off until somebody looks at values, or waits for the stream."""
_LATE = threading.local()
LENT = [0, 0]
"""Bytes of all arrays of the pretended GPU, and the most that they were."""

COPIED = [0]
"""Bytes that were copied to memory."""


def late() -> list[Any]:
    """What this thread has put off."""
    if not hasattr(_LATE, "work"):
        _LATE.work = []
    found: list[Any] = _LATE.work
    return found


def go_on() -> None:
    """Do what this thread has put off."""
    work = late()
    while work:
        work.pop(0)()


class ndarray(NDArrayOperatorsMixin):
    """An array of the pretended GPU."""

    __array_priority__ = 100
    _lent = 0

    def __init__(
        self, values: Any, base: Any = None, memptr: Any = None, strides: Any = None
    ) -> None:
        if memptr is not None:  # as CuPy's own: a shape and a dtype, in memory that is there
            values, base = array_at(memptr.ptr, values, strides, np.dtype(base)), memptr
        elif base is None:
            values = PLACE[0](np.asarray(values))
        self._at, self.base = np.asarray(values), base
        self.device = SimpleNamespace(id=0)
        self._lent = self._at.nbytes if base is None else 0
        LENT[0] += self._lent
        LENT[1] = max(LENT)

    def __del__(self) -> None:
        LENT[0] -= self._lent

    @property
    def values(self) -> Any:
        """What is there once all is done that was put off."""
        go_on()
        return self._at

    @property
    def __cuda_array_interface__(self) -> Any:
        return dict(self.values.__array_interface__, version=3)

    @property
    def data(self) -> Any:
        """Where it lies."""
        return SimpleNamespace(ptr=self._at.__array_interface__["data"][0])

    @property
    def flags(self) -> Any:
        """Without one that says whether it can be written."""
        flags = self._at.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if "where" in options:
            raise TypeError("Wrong arguments: where")
        outs = options.pop("out", None)
        if outs is not None:
            options["out"] = tuple(one.values for one in outs)
        given = [_values(one) for one in inputs]
        out = getattr(ufunc, method)(*given, **options)
        return ndarray(out) if outs is None else outs[0]

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function.__name__ in MISSING or ("out" in options and "fft" in function.__module__):
            return NotImplemented
        _check_arguments(function.__name__, options)
        if function.__name__ == "searchsorted" and any(one.dtype.kind in "bc" for one in args[:2]):
            raise TypeError("no places among truth values or complex numbers")
        if function.__module__ == "numpy.linalg":
            return getattr(sys.modules["cupy"].linalg, function.__name__)(*args, **options)
        given, named = _opened(args), {k: _opened(v) for k, v in options.items()}
        if function is np.argsort:
            named["kind"] = "stable"
        out = function(*given, **named)
        same = next((one for one in args if isinstance(one, ndarray) and out is one.values), None)
        if same is not None:
            return same
        if isinstance(out, (tuple, list)):
            return type(out)(
                ndarray(one, args[0] if _views(one, given[0]) else None) for one in out
            )
        return out if out is None else ndarray(out, args[0] if _views(out, given[0]) else None)

    def __getitem__(self, key: Any) -> ndarray:
        out = self._at[_opened(key)]
        if not _views(out, self._at):
            out = self.values[_opened(key)]
        return ndarray(
            out, (self if self.base is None else self.base) if _views(out, self._at) else None
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        there = self._at[_opened(key)]
        if PUT_OFF and isinstance(value, ndarray) and _views(there, self._at):
            given = value._at
            np.broadcast_to(given, there.shape)  # errors come at once
            late().append(lambda: np.copyto(there, given, casting="unsafe"))
        else:
            self.values[_opened(key)] = _values(value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # by these NumPy would read values that it cannot see on a GPU
            raise AttributeError(name)
        found = getattr(self._at if name in KNOWN else self.values, name)
        if not callable(found) or name in ("dtype", "item", "tolist"):
            whole = self if self.base is None else self.base
            return ndarray(found, whole) if isinstance(found, np.ndarray) else found

        def call(*args: Any, **options: Any) -> Any:
            _check_arguments(name, options)
            into = options.get("out")
            out = found(*_opened(args), **{key: _opened(one) for key, one in options.items()})
            if out is None or into is not None:
                return into
            if out is self.values:
                return self
            if isinstance(out, tuple):
                return tuple(map(ndarray, out))
            whole = self if self.base is None else self.base
            return ndarray(out, whole if _views(out, self.values) else None)

        return call

    def sort(self, axis: int = -1) -> None:
        """By radix, as CuPy's: stable, and a NaN with a sign comes first."""
        order = np.argsort(_radix(self.values), axis=axis, kind="stable")
        self.values[...] = np.take_along_axis(self.values, order, axis)

    def argsort(self, axis: int = -1) -> ndarray:
        """The places that do so."""
        return ndarray(np.argsort(_radix(self.values), axis=axis, kind="stable"))

    def set(self, values: Any) -> None:
        """Values of the host."""
        self.values[...] = values

    def fill(self, value: Any) -> None:
        """All the same; the sign of a zero is lost, as CuPy loses it."""
        self.values.fill(value if value else 0)

    def __int__(self) -> int:
        return int(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __float__(self) -> float:
        return float(self.values)


def _radix(values: Any) -> Any:
    """Integers by whose order CuPy sorts: both zeros are alike, and NaN goes by its bits."""
    if values.dtype.kind in "bc":
        raise TypeError(f"no order of {values.dtype}")
    if values.dtype.kind != "f":
        return values
    raw = (values + values.dtype.type(0)).view(f"i{values.itemsize}")
    return np.where(raw < 0, raw ^ np.iinfo(raw.dtype).max, raw)


def _check_arguments(name: str, options: dict[str, Any]) -> None:
    if REFUSED.get(name) in options:
        raise TypeError(f"{name}() got an unexpected keyword argument {REFUSED[name]!r}")


def _views(out: Any, of: Any) -> bool:
    return (
        isinstance(out, np.ndarray) and isinstance(of, np.ndarray) and np.may_share_memory(out, of)
    )


def _values(x: Any) -> Any:
    if isinstance(x, ndarray):
        return x.values
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def _opened(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(_opened(one) for one in x)
    return _values(x)


class Stream:
    """A stream whose work is done as soon as it is put there."""

    ptr = 0

    def __init__(self, **options: bool) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        """Do what was put off."""
        go_on()

    def wait_event(self, event: Any) -> None:
        """It has come."""

    def record(self) -> Any:
        """An event that has come."""
        return SimpleNamespace(done=True, ptr=0, synchronize=lambda: None)


class Device:
    """The only one."""

    id = 0

    def __init__(self, number: int = 0) -> None:
        pass

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class PinnedMemory:
    """Memory of the host with an address."""

    def __init__(self, n_bytes: int) -> None:
        self._bytes = np.full(n_bytes, 0xA5, np.uint8)
        self.ptr = self._bytes.ctypes.data


class HostTransfer:
    """A prepared transfer that moves tiles of the pretended GPU through memory."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, local: Any, out: Any) -> Any:
        """The tile that it was given to fill."""
        self._inner(_hosted(local), _hosted(out))
        return out

    def start(self, local: Any, out: Any) -> Any:
        """The same, begun in the background."""
        begun = self._inner.start(_hosted(local), _hosted(out))
        return SimpleNamespace(wait=lambda: (begun.wait(), out)[1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _hosted(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: _hosted(one) for name, one in x.items()}
    return x.values if isinstance(x, ndarray) else x


def asnumpy(x: Any) -> Any:
    """A copy in memory, which is counted."""
    COPIED[0] += x.values.nbytes
    return x.values.copy()


def _function(name: str) -> Any:
    """One of NumPy's for arrays of the pretended GPU."""
    if name in MISSING or name.startswith("_"):
        raise AttributeError(name)
    found = getattr(np, name)

    def call(*args: Any, **options: Any) -> Any:
        stable = {"kind": "stable"} if name == "argsort" else {}
        out = found(*_opened(args), **{key: _opened(one) for key, one in options.items()}, **stable)
        several = isinstance(out, (tuple, list))
        return type(out)(map(ndarray, out)) if several else ndarray(out)

    return call if callable(found) and not isinstance(found, type) else found


def install() -> None:
    """Stand for CuPy in this process, and let tiles move through memory."""
    from redist.pgas.programs import prepare
    from redist.pgas.programs.limited import agreed_fit
    from redist.pgas.watch import seam
    from redist.runtime import halo as halo_of_host
    from redist.runtime import redistribute as of_host
    from redist.runtime.cuda import exchange as between_gpus
    from redist.runtime.cuda.transports import ipc
    from redist.runtime.cuda.transports.carrier_choice import Choice
    from redist.runtime.cuda.transports.carriers import ByMessages
    from tests.fakes import cupy_matrices

    cupy: Any = ModuleType("cupy")
    cupy.__getattr__ = _function
    cupy.ndarray = ndarray
    cupy.RawModule = RawModule
    cupy.asarray = lambda x: x if isinstance(x, ndarray) else ndarray(np.array(x))
    cupy.empty = lambda shape, dtype=float: ndarray(np.empty(shape, dtype))
    cupy.full = lambda shape, value, dtype=None: ndarray(np.full(shape, value, dtype))
    cupy.asnumpy = asnumpy
    cupy.linalg, cupyx = cupy_matrices.LINALG, ModuleType("cupyx")
    vars(cupyx)["errstate"] = cupy_matrices.errstate
    strided = np.lib.stride_tricks.as_strided
    cupy.lib = SimpleNamespace(
        stride_tricks=SimpleNamespace(
            as_strided=lambda x, shape, strides: ndarray(strided(x.values, shape, strides), x)
        )
    )
    cupy.may_share_memory = lambda a, b: np.may_share_memory(a.values, b.values)
    runtime = SimpleNamespace(
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda number: {"multiProcessorCount": 2, "uuid": b"gpu"},
        eventQuery=lambda event: 0,
        memcpyAsync=lambda to, of, n_bytes, kind, stream: ctypes.memmove(to, of, n_bytes),
    )
    cupy.cuda = SimpleNamespace(
        runtime=runtime,
        Device=Device,
        Stream=Stream,
        PinnedMemory=PinnedMemory,
        get_current_stream=Stream,
        alloc_pinned_memory=lambda n_bytes: np.full(n_bytes, 0xA5, np.uint8),
        UnownedMemory=lambda address, *more: SimpleNamespace(ptr=address),
        MemoryPointer=lambda memory, offset: SimpleNamespace(ptr=memory.ptr + offset),
    )
    sys.modules["cupy"], sys.modules["cupyx"] = cupy, cupyx

    def redistribute(local: Any, *args: Any, out: Any = None, **options: Any) -> Any:
        tiles = [one for one in (local, out) if one is not None and not isinstance(one, dict)]
        assert len({isinstance(one, ndarray) for one in tiles}) < 2, "mixed tiles"
        call: Any = of_host.redistribute_with_transfer
        done, transfer = call(_hosted(local), *args, out=_hosted(out), **options)
        if out is not None or not isinstance(local, ndarray):
            return (out if out is not None else done), transfer
        return (None if done is None else ndarray(done)), transfer

    def prepared(*args: Any) -> HostTransfer:
        return HostTransfer(of_host.prepare(*args))

    def halo(comm: Any, halo: Any, of: Any, to: Any, on_device: bool, *room: Any) -> int:
        here = halo_of_host.exchange_halo(comm, halo, _hosted(of), _hosted(to), False, *room)
        assert on_device == any(isinstance(one, ndarray) for one in (of, to)), "tiles of the host"
        return here

    def passed(comm: Any, world: Any, told: Any, data: Any, out: Any, text: str) -> None:
        me = world.rank
        assert len(set(world.comm.allgather(text))) == 1, "ranks disagree on the request"
        there = data.values, (told[me, 0].tolist(), told[me, 1].tolist()), MPI.BYTE
        here = out.values, (told[:, 0, me].tolist(), told[me, 2].tolist()), MPI.BYTE
        world.wait([world.comm.Ialltoallv(list(there), list(here))])

    vars(between_gpus)["_pass"] = passed
    vars(seam)["redistribute_with_transfer"] = redistribute
    vars(ipc)["can_open"] = lambda world: ["memory of NumPy cannot be opened"]
    vars(ipc)["choose"] = lambda world, may_nccl: Choice(ByMessages(world), ())
    moving: Any = seam.RankTraffic
    moving.halo = staticmethod(halo)
    for module in (prepare, agreed_fit):
        vars(module)["prepare_transfer"] = prepared
