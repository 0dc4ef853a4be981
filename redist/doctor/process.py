"""Find what this process has to move arrays with, and why something is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import numpy as np

from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.kernels import PACKAGE, checkout, why_no_kernels
from redist.runtime.shm.segments import attach, can_share, find, shared_bytes
from redist.text.extras import install_line
from redist.text.units import format_bytes
from redist.version import __version__

YES, NO = "yes", "no"
READS = "process reads"
CANNOT_READ = "the kernel does not allow one rank to read another's memory"
PROBE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was looked for, what was found, and why or how."""

    name: str
    found: str
    why: str = ""


def facts() -> Iterator[Fact]:
    """**Local.** Look for everything, one thing after another; whatever goes wrong is a fact, too.

    >>> [fact.name for fact in facts()][:3]
    ['redist', 'Python', 'MPI']
    """
    looks: list[Callable[[], Iterator[Fact]]] = [_redist, _python, _mpi, _host]
    for look in looks:
        yield from look()
    yield from gpu_facts()


def _redist() -> Iterator[Fact]:
    """Which redist this is; another one that is installed is named beside it."""
    root = checkout()
    where = f"installed in {PACKAGE}" if root is None else f"checkout {root}"
    others = {
        Path(str(found.locate_file("redist"))).resolve() for found in distributions(name="redist")
    }
    others = {path for path in others if path.is_dir()} - {PACKAGE}
    if others:
        where += f"; not the one in {min(others)}, because this one comes first in Python's path"
    yield Fact("redist", __version__, where)


def _python() -> Iterator[Fact]:
    yield Fact("Python", platform.python_version(), f"{sys.executable}, NumPy {np.__version__}")


def _mpi() -> Iterator[Fact]:
    try:
        import mpi4py
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        yield Fact("MPI", NO, f"{error}; {install_line('mpi')} brings one")
        return
    name, version = MPI.get_vendor()
    library = mpi_library()
    used = f"mpi4py {mpi4py.__version__}{f', {library}' if library else ''}"
    yield Fact("MPI", f"{name} {'.'.join(map(str, version))}", used)
    many = MPI.Query_thread() >= MPI.THREAD_MULTIPLE
    yield Fact(
        "MPI threads",
        YES if many else NO,
        "started transfers between nodes run beside your work"
        if many
        else "started transfers between nodes run at once, in start()",
    )


def mpi_library() -> str:
    """**Local.** The file of the MPI library in this process; empty if it cannot be determined."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if "/libmpi" in line)
    return next((str(path) for path in paths if ".so" in path.name), "")


def _host() -> Iterator[Fact]:
    yield _kernels("compiled kernels", "copies, meetings and reductions in C", why_no_kernels())
    try:
        from redist.learn.kernels.library import why_no_library
    except ImportError:
        why = f"scikit-learn is not installed; {install_line('learn')}"
        yield Fact("clustering kernels", "not used", why)
    else:
        yield _kernels("clustering kernels", "distances, trees and sums in C", why_no_library())
    yield _attempt("shared memory", _share)
    yield _attempt(READS, _peek)


def _kernels(name: str, work: str, why_not: str) -> Fact:
    return Fact(name, NO, f"{why_not}; NumPy does their work") if why_not else Fact(name, YES, work)


def _attempt(name: str, look: Callable[[], str]) -> Fact:
    """What ``look`` says where it succeeds; its error where it does not."""
    try:
        return Fact(name, YES, look())
    except Exception as error:
        return Fact(name, NO, f"{error}" or type(error).__name__)


def _share() -> str:
    if not can_share():
        raise OSError("this system has no memory files")
    memory = shared_bytes(4096)
    memory[:8] = range(8)
    found = find(memory)
    assert found is not None
    handle, offset = found
    if not np.array_equal(attach(handle)[offset : offset + 8], memory[:8]):
        raise OSError("what was mapped again is something else")
    return "a memory file was mapped twice and read"


def _peek() -> str:
    from redist.runtime.shm.process_reads import peek

    mine, got = np.arange(8, dtype=np.int64), np.zeros(8, np.uint8)
    peek(os.getpid(), np.array([address_of(mine) + 24]), 8, got)
    if got.view(np.int64)[0] != 3:
        raise OSError("what was read is something else")
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    except (OSError, ValueError):
        scope = 0
    if scope:
        raise OSError(f"{CANNOT_READ} (ptrace_scope is {scope})")
    return "expected: the kernel has the call; 'redist doctor -n 2' tries it between ranks"


def gpu_facts() -> Iterator[Fact]:
    """**Local.** The facts about GPUs."""
    try:
        import cupy
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        why = install_line("gpu") if missing else str(error)
        yield Fact("CuPy", "not installed" if missing else NO, why)
        return
    yield Fact("CuPy", cupy.__version__)
    try:
        n_gpus = int(cupy.cuda.runtime.getDeviceCount())
        drives = _version(cupy.cuda.runtime.driverGetVersion())
        runs = _version(cupy.cuda.runtime.runtimeGetVersion())
    except Exception as error:
        yield Fact("GPUs", NO, str(error))
        return
    yield Fact("GPUs", str(n_gpus), f"driver for CUDA {drives}, runtime {runs}")
    for number in range(n_gpus):
        yield _attempt(f"GPU {number}", lambda number=number: gpu_name(number))  # type: ignore[misc]
    yield _attempt("pinned memory", _pin)
    yield _attempt("CUDA IPC", _export)
    yield _attempt("NCCL", _nccl)
    yield _aware()


def gpu_name(number: int) -> str:
    """**Local.** A description of a GPU.

    For example ``NVIDIA H200, 139.8 GiB, 0000:8D:00.0``.
    """
    import cupy

    found = cupy.cuda.runtime.getDeviceProperties(number)
    name = found["name"].decode() if isinstance(found["name"], bytes) else str(found["name"])
    where = cupy.cuda.Device(number).pci_bus_id
    return f"{name}, {format_bytes(int(found['totalGlobalMem']))}, {where}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _pin() -> str:
    import cupy

    memory = cupy.cuda.PinnedMemory(PROBE_BYTES)
    stream = cupy.cuda.get_current_stream()
    source = cupy.full(8, 7, np.uint8)
    cupy.cuda.runtime.memcpyAsync(memory.ptr, int(source.data.ptr), 8, 4, stream.ptr)
    stream.synchronize()
    return f"{format_bytes(PROBE_BYTES)} taken and written by the GPU"


def _export() -> str:
    import cupy

    from redist.runtime.cuda.transports.opened_memory import place_of

    place_of(int(cupy.zeros(8, np.uint8).data.ptr))
    return "a handle was made; a test between ranks shows whether others can open it"


def _nccl() -> str:
    from redist.runtime.cuda.transports.nccl import nccl_version

    version = ".".join(map(str, nccl_version()))
    return f"{version}; it needs a GPU for every rank"


def _aware() -> Fact:
    from redist.runtime.cuda.transports.mpi_aware import cuda_aware

    answer = cuda_aware()
    return Fact("CUDA-aware MPI", YES if answer.works else NO, answer.why)
