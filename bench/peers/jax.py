"""JAX: one process with a CPU device for each rank, in a child of rank 0 while the others sleep."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpi4py import MPI

from bench.problems.installed import version, why_absent
from redist.launch.launcher import environment
from redist.layout.array_type import ArrayType
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends

DTYPES = ("f32", "f64", "c64", "i32", "i64", "u8")
"""Of arrays that the child can make."""


class JaxJit(Contender):
    """``jax.jit`` of the identity with an output sharding, compiled before."""

    label = "JAX jit"
    uses_ends = False
    way = "jit"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self.label = f"JAX {version('jax')} {self.way}"
        self._jax = _one_child(comm.size) if comm.rank == 0 else None
        self._number = self._ask("make", way=self.way, **question(case.source, case.target))

    @classmethod
    def absent(cls) -> str | None:
        """It may not be installed."""
        return why_absent("jax")

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Even tiles on one mesh."""
        source, target = case.source, case.target
        if case.is_beyond is not None:
            return case.is_beyond
        if not (source.is_even and target.is_even):
            return "uneven tiles"
        is_known = str(source.dtype) in DTYPES
        return None if is_known else f"dtype {source.dtype} is not passed on"

    def run(self) -> None:
        """One move. **Collective over `comm`.**"""
        self.repeat(1)

    def repeat(self, times: int) -> None:
        """Rank 0 waits for the child; the others have nothing to do. **Collective over `comm`.**"""
        self._ask("run", times=times)

    def is_right(self) -> bool:
        """The child compares every device's tile. **Local.**"""
        return bool(self._ask("check")) if self._jax else True

    def peak_bytes(self, base_bytes: int) -> int:
        """One device's, as the child sees it. **Local.**"""
        return int(self._ask("peak") or 0)

    def close(self) -> None:
        """Let the arrays go. **Local.**"""
        super().close()
        self._ask("close")

    def _ask(self, what: str, **more: Any) -> Any:
        if self._jax is None:
            return None
        if what != "make":
            more["number"] = self._number
        return self._jax.ask({"do": what, **more})


class JaxPut(JaxJit):
    """``jax.device_put`` with another sharding."""

    label = "JAX device_put"
    way = "device_put"


class JaxChild:
    """The child process: one JSON line for a question, one for its answer."""

    def __init__(self, n_devices: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.jax_devices", str(n_devices)],
            cwd=Path(__file__).parents[2],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask and wait; what went wrong there raises here."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline() or '{"error": "the child ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """End the child."""
        try:
            self._child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()


@lru_cache(maxsize=1)
def _one_child(n_devices: int) -> JaxChild:
    """One child for the whole run."""
    child = JaxChild(n_devices)
    atexit.register(child.close)
    return child


def question(source: ArrayType, target: ArrayType) -> dict[str, Any]:
    """A redistribution on one mesh, as the child reads it."""
    return {"axes": source.mesh.axes, "source": str(source), "target": str(target)}
