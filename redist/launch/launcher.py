"""Start an MPI job with the mpirun that is here: MPICH's or Open MPI's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redist.errors import LaunchError
from redist.text.columns import one_line
from redist.text.extras import install_line

# The environment of processes that this one starts, so that they take no part in its MPI job.


# An MPI job inside of another, or of a process that has used MPI, must not take itself for a part.
# What a user sets for Open MPI stays: OMPI_MCA_btl and the like.
INNER = (
    *("PMI_", "PMIX_", "HYDI_", "PRTE_", "ORTE_"),
    *("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_APP_CTX_", "OMPI_FIRST_RANKS", "OMPI_ARGV"),
    *("OMPI_NUM_APP_CTX", "OMPI_COMMAND", "OMPI_FILE_LOCATION", "OMPI_MCA_ess", "OMPI_MCA_pmix"),
    *("OMPI_MCA_orte_ess", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri"),
    *("OMPI_MCA_orte_precondition", "OMPI_MCA_orte_num_", "OMPI_MCA_orte_app_num"),
    *("OMPI_MCA_orte_top_session_dir", "OMPI_MCA_orte_jobfam", "OMPI_MCA_orte_launch"),
    *("OMPI_MCA_orte_tag_output", "OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_initial_wdir"),
    *("OMPI_MCA_orte_nodes", "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_MCA_mpi_oversubscribe"),
)


def environment() -> dict[str, str]:
    """**Local.** Copy this process's environment for one that starts MPI anew and finds this redist."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(INNER)}
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}


NAMES = ("mpirun", "mpiexec")
MPICH = "MPICH"
OPEN_MPI = "Open MPI"
ASK_S = 20.0
END_S = 10.0
"""So long may a job take to end after it was told to."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts MPI jobs, and whose it is."""

    path: str
    kind: str

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """The command line that runs ``program`` with this Python on this many ranks.

        >>> Launcher("mpirun", MPICH).command(8, ["-m", "mine"])[:3]
        ['mpirun', '-n', '8']
        """
        options = ["-n", str(n_ranks)]
        if self.kind == OPEN_MPI:
            # More ranks than cores are fine; Open MPI wants to be told, and root to be allowed.
            options.append("--oversubscribe")
            if hasattr(os, "geteuid") and os.geteuid() == 0:
                options.append("--allow-run-as-root")
        return [self.path, *options, sys.executable, *program]


def find_launcher(given: str | None = None) -> Launcher:
    """Find the mpirun that ``given`` names, else the one beside this Python, else the first in PATH."""
    path = given if given is not None else next(_candidates(), None)
    if path is None:
        raise LaunchError(
            "cannot start an MPI job: there is no mpirun beside this Python or in PATH; "
            f"{install_line('mpi')} brings one"
        )
    found = shutil.which(path)
    if found is None:
        raise LaunchError(f"--mpi: cannot run {path}; give the path of an mpirun")
    return Launcher(found, _kind(found))


def launch(launcher: Launcher, n_ranks: int, program: Sequence[str]) -> int:
    """Run a job and return its exit status; Ctrl-C and SIGTERM end the job first."""
    command = launcher.command(n_ranks, program)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment()) as job:
        try:
            with _pass_on(signal.SIGTERM, job):
                status = job.wait()
        except BaseException:
            _end(job)
            raise
    return 128 - status if status < 0 else status


def _candidates() -> Iterator[str]:
    for name in NAMES:
        beside = Path(sys.executable).parent / name
        if os.access(beside, os.X_OK):
            yield str(beside)
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            yield found


def _kind(path: str) -> str:
    """Whose launcher it is, from what it says about its version."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            timeout=ASK_S,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"cannot start an MPI job: {path} --version: {error}") from None
    said = done.stdout.lower()
    if "open mpi" in said or "openrte" in said or "prrte" in said:
        return OPEN_MPI
    if "hydra" in said or "mpich" in said or "intel" in said:
        return MPICH
    shown = one_line(done.stdout)[:200]
    raise LaunchError(
        f"cannot start an MPI job: {path} is neither MPICH's nor Open MPI's (it says {shown!r}); "
        "choose another with --mpi"
    )


def _end(job: subprocess.Popen[bytes]) -> None:
    """End a job: ask it, then insist."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if job.poll() is None:
            job.send_signal(number)
            try:
                job.wait(END_S)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def _pass_on(number: signal.Signals, job: subprocess.Popen[bytes]) -> Iterator[None]:
    """Send the signals that this process gets to the job too."""
    try:
        before = signal.signal(number, lambda *_: job.send_signal(number))
    except ValueError:  # not in the main thread: whoever is there handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)
