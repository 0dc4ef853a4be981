"""What ``redist inspect`` expects of a load, beside what the load reads, receives and holds.

As in ``mpirun -n 4 python -m tests.programs.store.expected``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import redist
from redist import Mesh, pgas
from redist.pgas.tiles.tiled import tile_in
from redist.store import load as loading
from redist.store.expected import expected_load
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
MESH = Mesh(x=2, y=COMM.size // 2) if COMM.size % 2 == 0 else Mesh(x=1, y=COMM.size)
ROWS = {"q": 2048, "k": 512, "v": 512}
RULES = "*.qkv[q|k|v, :] = *.q, *.k, *.v"
TYPES = ("{x}, {}", "{}, {y}", "{}, {}", "2048{x,y}+2*512{y}, {}", "{y}, {x}")
FOLDER = Path()
READ: list[int] = []
FINISH = loading.Reader.finish


def watched(self: loading.Reader, names: Sequence[str]) -> None:
    """Note what the reader has read."""
    READ.append(self.bytes_read)
    FINISH(self, names)


def figures() -> str | None:
    """Every rank reads and holds as much as is expected, and receives no less."""
    path, ways = str(FOLDER / "w.safetensors"), set()
    arrays = {
        f"{n}.{name}": pgas.asarray(np.arange(rows * 640, dtype="f4").reshape(rows, 640))
        for n in range(2)
        for name, rows in ROWS.items()
    }
    redist.save(path, arrays)
    for text in TYPES:
        found = expected_load(redist.stored(path), {"*.qkv": text}, MESH, RULES)
        ways.add(found.plan.wanted[0].read)
        READ.clear()
        with patch.object(loading.Reader, "finish", watched), redist.trace() as traced:
            loaded = redist.load(path, {"*.qkv": text}, mesh=MESH, names=RULES)
        held = sum(tile.nbytes for tile in map(tile_in, loaded.values()) if tile is not None)
        expected = found.figures[COMM.rank]
        if ([*READ], held) != ([expected[0]], expected[2]):
            return f"{text}: reads and holds {READ}, {held}, expected {expected}"
        if traced.received_bytes < expected[1]:
            return f"{text}: receives {traced.received_bytes}, expected {expected[1]} or more"
        if found.plan.wanted[0].read == "slices" and traced.received_bytes:
            return f"{text}: receives {traced.received_bytes}, expected nothing"
    if COMM.size > 1 and ways != {"slices", "once"}:
        return f"all types are read by {ways}"
    return None


PROGRAMS = {"figures": figures}
CHECKS = tuple(PROGRAMS)


def program() -> int:
    global FOLDER
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(COMM.bcast(name))
        status = run_named(PROGRAMS)
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
