"""Make several hosts of one machine: network namespaces on a bridge, each behind a link of its own.

Needs root and iproute2. A host has its own network and its own name; files, memory and processors are
the machine's. Links are limited in both directions, at the host and at its port of the bridge.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PREFIX = "redist-"
"""Namespaces are called ``redist-<process>-<number>``; the one with the bridge ends in ``-bridge``."""
NETWORK = "10.77.0"
BUCKET_BYTES = 65536
"""Bytes that a link may send at once after a pause."""
QUEUE_MS = 1000
"""What would wait longer than this for its link is dropped: nothing, as in the networks of clusters."""
FRAME_BYTES = 9000
"""Jumbo frames, as clusters have them."""
PACKET_BYTES = 32768
"""Packets pass in bundles of this size, as through network cards; larger than the bucket, they would be
taken apart on the processors that the ranks need."""
LAUNCHER = """#!/bin/sh
# In the place of ssh: run a command on the host with this address.
while [ "${{1#-}}" != "$1" ]; do shift; done
number=$((${{1##*.}} - 1)); shift
exec ip netns exec {prefix}$number unshare --uts sh -c "hostname host$number; $*"
"""


def why_no_cluster() -> str:
    """Say why hosts cannot be made here; empty if they can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "tc", "unshare", "hostname"):
        if shutil.which(program) is None:
            return f"needs {program} (iproute2, util-linux)"
    probe = f"{PREFIX}{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return "" if made.returncode == 0 else f"network namespaces are refused: {made.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts that were made; see :func:`make_cluster`."""

    n_hosts: int
    rate_mbit: float
    prefix: str
    launcher: Path
    """A program that mpirun starts in the place of ssh."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of every host."""
        return tuple(f"{NETWORK}.{number + 1}" for number in range(self.n_hosts))

    def at_the_bridge(self, command: list[str]) -> list[str]:
        """The same command, run where every host is reached and none is loaded."""
        return ["ip", "netns", "exec", f"{self.prefix}bridge", *command]

    def set_link(self, number: int, *, up: bool) -> None:
        """Take the link of a host away, or give it back."""
        state = "up" if up else "down"
        _ip("-n", f"{self.prefix}bridge", "link", "set", f"port{number}", state)

    def set_rate(self, number: int, rate_mbit: float) -> None:
        """Make the link of a host slower or faster."""
        for namespace, device in _ends(self.prefix, number):
            _limit(namespace, device, rate_mbit, "change")

    def processes(self, number: int) -> list[int]:
        """The processes that run on a host."""
        command = ["ip", "netns", "pids", f"{self.prefix}{number}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]


@contextlib.contextmanager
def make_cluster(n_hosts: int, rate_mbit: float = 1000.0) -> Iterator[Cluster]:
    """Make hosts with links of this rate; they are taken away on leaving, also after an interrupt.

    Hosts that a killed process has left behind are taken away first.
    """
    assert 0 < n_hosts < 250, n_hosts
    _sweep()
    prefix = f"{PREFIX}{os.getpid()}-"
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, _allowed_control():
            launcher = Path(folder) / "launch"
            launcher.write_text(LAUNCHER.format(prefix=prefix), encoding="utf-8")
            launcher.chmod(0o755)
            _make(n_hosts, rate_mbit, prefix)
            yield Cluster(n_hosts, rate_mbit, prefix, launcher)
    finally:
        _remove(prefix)
        signal.signal(signal.SIGTERM, before)


def _make(n_hosts: int, rate_mbit: float, prefix: str) -> None:
    bridge = f"{prefix}bridge"
    _ip("netns", "add", bridge)
    _ip("-n", bridge, "link", "set", "lo", "up")
    _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
    _ip("-n", bridge, "addr", "add", f"{NETWORK}.254/24", "dev", "bridge")
    _ip("-n", bridge, "link", "set", "bridge", "up")
    for number in range(n_hosts):
        host, port = f"{prefix}{number}", f"port{number}"
        _ip("netns", "add", host)
        ends = ("link", "add", port, "netns", bridge, "type", "veth", "peer", "name", "eth0")
        _ip(*ends, "netns", host)
        _ip("-n", bridge, "link", "set", port, "master", "bridge", "up")
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("-n", host, "addr", "add", f"{NETWORK}.{number + 1}/24", "dev", "eth0")
        _ip("-n", host, "link", "set", "eth0", "up")
        _tune(host)
        for namespace, device in _ends(prefix, number):
            sizes = ("mtu", str(FRAME_BYTES), "gso_max_size", str(PACKET_BYTES))
            _ip("-n", namespace, "link", "set", device, *sizes)
            _limit(namespace, device, rate_mbit, "add")


ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
CONTROL = "cubic"
"""How TCP finds its rate: as Linux does unless told otherwise."""


@contextlib.contextmanager
def _allowed_control() -> Iterator[None]:
    """Let namespaces choose how TCP finds its rate; as before on leaving."""
    try:
        before = ALLOWED.read_text(encoding="ascii")
        ALLOWED.write_text(f"{before.strip()} {CONTROL}", encoding="ascii")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        ALLOWED.write_text(before, encoding="ascii")


def _tune(host: str) -> None:
    """Let connections of a host keep their rate through pauses; what the system refuses stays as it is."""
    for setting in ("tcp_slow_start_after_idle=0", f"tcp_congestion_control={CONTROL}"):
        command = ["ip", "netns", "exec", host, "sysctl", "-qw", f"net.ipv4.{setting}"]
        subprocess.run(command, capture_output=True)


def _ends(prefix: str, number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both ends of a host's link, as namespace and device: what each sends is one direction."""
    return (f"{prefix}{number}", "eth0"), (f"{prefix}bridge", f"port{number}")


def _limit(namespace: str, device: str, rate_mbit: float, how: str) -> None:
    """Let no more than this leave by a device."""
    size = max(BUCKET_BYTES, 3000)
    bucket = ("rate", f"{rate_mbit:g}mbit", "burst", str(size), "latency", f"{QUEUE_MS}ms")
    _run("tc", "-n", namespace, "qdisc", how, "dev", device, "root", "tbf", *bucket)


def _ip(*args: str) -> None:
    _run("ip", *args)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _namespaces() -> list[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    return [name for name in names if name.startswith(PREFIX)]


def _remove(prefix: str) -> None:
    """End whatever runs in these namespaces, and delete them."""
    for name in _namespaces():
        if name.startswith(prefix):
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in pids.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _sweep() -> None:
    """Take away what belongs to processes that are gone."""
    for name in _namespaces():
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if not owner.isdigit() or not Path(f"/proc/{owner}").exists():
            _remove(name)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
