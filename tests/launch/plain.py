"""Start plain processes as ranks: no launcher, only the variables that one would set."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redist.launch.launcher import environment

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90.0
MARKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "REDIST_JOIN_TOKEN")


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process printed, and its exit status; None: it had to be ended."""

    status: int | None
    output: str

    @property
    def said(self) -> list[tuple[float, str]]:
        """What it says after how many seconds."""
        found = re.findall(r"says after ([\d.]+) s: (.*)", self.output)
        return [(float(seconds), text) for seconds, text in found]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def variables(
    size: int, address: str = "127.0.0.1", port: int | None = None
) -> list[dict[str, str]]:
    """What every rank finds in its environment."""
    place = {"MASTER_ADDR": address, "MASTER_PORT": str(port or free_port())}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "REDIST_JOIN_TOKEN": "of tests"}
    own = {name: value for name, value in environment().items() if name not in MARKS}
    return [
        {**own, **threads, **place, "RANK": str(rank), "WORLD_SIZE": str(size)}
        for rank in range(size)
    ]


@contextmanager
def processes(
    program: Sequence[str], envs: Sequence[dict[str, str]], before: Sequence[Sequence[str]] = ()
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a program of this Python with each environment, after the words of ``before``; none is left."""
    started = []
    try:
        for number, env in enumerate(envs):
            command = [*(before[number] if before else ()), sys.executable, *program]
            one = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append(one)
        yield started
    finally:
        for one in started:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait()


def run(
    program: Sequence[str],
    envs: Sequence[dict[str, str]],
    before: Sequence[Sequence[str]] = (),
    limit_s: float = LIMIT_S,
) -> list[Ended]:
    """Run a program to its end in so many processes."""
    end = time.monotonic() + limit_s
    done = []
    with processes(program, envs, before) as started:
        for one in started:
            try:
                output, _ = one.communicate(timeout=max(0.1, end - time.monotonic()))
                done.append(Ended(one.returncode, output))
            except subprocess.TimeoutExpired:
                one.kill()
                done.append(Ended(None, one.communicate()[0]))
    return done


def servers(env: dict[str, str]) -> list[str]:
    """The servers that processes with this environment have started, and that still run."""
    port = f"MASTER_PORT={env['MASTER_PORT']}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_server = b"redist.launch.server" in (folder / "cmdline").read_bytes()
            if is_server and port in (folder / "environ").read_bytes():
                found.append(folder.name)
    return found


def none_is_left(env: dict[str, str], within_s: float = 10.0) -> bool:
    """Whether all servers of these processes end in time."""
    end = time.monotonic() + within_s
    while servers(env) and time.monotonic() < end:
        time.sleep(0.05)
    return not servers(env)
