"""Whether MPI reads and writes GPU memory, tried out in a process that may crash or hang.

A library that is not CUDA-aware takes a device pointer for one of the host's and dies of it, so no
process that matters may try. The answer is remembered in memory and in a file of the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi4py import MPI

from redist.launch.launcher import environment

PROBE_S = 60.0
PROGRAM = ("-m", "redist.runtime.cuda.transports.mpi_aware_child")
TUNES = ("OMPI_MCA_", "MPICH_", "MPIR_", "UCX_", "FI_", "I_MPI_", "CUDA_VISIBLE", "MPI4PY_")
"""Variables that may change the answer."""
WORKS, TRIES = "works", "tries"
"""What the child says: at its end, and before it hands MPI a device pointer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether it works, and how that is known."""

    works: bool
    why: str


_KNOWN: dict[str, Answer] = {}


def cuda_aware(timeout_s: float = PROBE_S) -> Answer:
    """**Local.** Whether this MPI takes device pointers; a child process tries, the first time.

    As in ``Answer(works=False, why="the probe died of SIGSEGV")``.
    """
    key = _key()
    if key not in _KNOWN:
        found = _load_answer(key)
        if found is None:
            found, is_final = probe(timeout_s)
            if is_final:
                _store_answer(key, found)
        _KNOWN[key] = found
    return _KNOWN[key]


def probe(timeout_s: float, program: tuple[str, ...] = PROGRAM) -> tuple[Answer, bool]:
    """**Local.** What a child process finds, and whether another would find the same."""
    env = environment()
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        child = subprocess.Popen(
            [sys.executable, *program, str(_device())],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Answer(False, f"the probe did not start ({error})"), False
    with child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            return Answer(False, f"the probe did not end within {timeout_s:g} s"), False
    return _classify_end(child.returncode, out.split("\n"), err)


def _classify_end(status: int, said: list[str], err: str) -> tuple[Answer, bool]:
    """The answer that the end of a child process means, and whether another would give the same.

    >>> _classify_end(-11, ["tries"], "")
    (Answer(works=False, why='the probe died of SIGSEGV'), True)
    >>> _classify_end(1, [], "no GPU")
    (Answer(works=False, why='the probe could not try (no GPU)'), False)
    """
    if status == 0 and WORKS in said:
        return Answer(True, "the probe sent and received memory of the GPU"), True
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    last = lines[-1][:200] if lines else f"status {status}"
    if TRIES not in said:
        return Answer(False, f"the probe could not try ({last})"), False
    if status < 0:
        return Answer(False, f"the probe died of {signal.Signals(-status).name}"), True
    return Answer(False, f"the probe failed ({last})"), True


def _device() -> int:
    """The number of the current GPU; 0 where there is no CuPy to ask."""
    try:
        import cupy

        return int(cupy.cuda.Device().id)
    except Exception:
        return 0


def _key() -> str:
    """What the answer depends on, as one short name."""
    try:
        from cupy.cuda import runtime

        versions: list[Any] = [runtime.driverGetVersion(), runtime.runtimeGetVersion()]
    except Exception:
        versions = []
    tuned = sorted((k, v) for k, v in environment().items() if k.startswith(TUNES))
    parts = [MPI.Get_library_version(), MPI.Get_processor_name(), sys.executable, versions, tuned]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "redist"


def _load_answer(key: str) -> Answer | None:
    try:
        found = json.loads((_folder() / f"cuda_aware_{key}.json").read_text(encoding="utf-8"))
        return Answer(bool(found["works"]), str(found["why"]))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None


def _store_answer(key: str, answer: Answer) -> None:
    """Keep an answer in a file, whole or not at all; without a cache the next process asks again."""
    with contextlib.suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"works": answer.works, "why": answer.why})
        number, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(folder / f"cuda_aware_{key}.json")
