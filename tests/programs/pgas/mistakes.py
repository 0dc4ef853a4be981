"""Wrong calls: the same error on every rank, arrays as they were, and the next operation works.

As in ``mpirun -n 3 python -m tests.programs.pgas.mistakes``.
"""

from __future__ import annotations

import gc
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
from mpi4py import MPI

import redist
from redist import Mesh
from redist.pgas.memory import BUFFERS
from tests.programs.pgas.drawing import xp
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
LINALG: Any = xp.linalg
FFT: Any = xp.fft


class Arrays:
    """What the calls are made on, and what it was before."""

    def __init__(self) -> None:
        self.a = xp.from_function(lambda i, j: i * 10.0 + j, (7, 5), type="{x}, {}")
        self.b = xp.from_function(lambda i, j: i + 10.0 * j, (7, 5), type="{}, {x}")
        self.i = xp.arange(6)
        self.flags = self.i > 2
        self.c = xp.ones((4, 4), dtype="c16")
        self.far = xp.asarray([0, 1, 99], type="{x}")
        self.pending = xp.sum(self.a, axis=0)
        self.few = xp.ones((7, 5), mesh=Mesh({"x": 1}, ranks=[COMM.size - 1]))
        self.all = [self.a, self.b, self.i, self.flags, self.c, self.pending, self.few]
        self.before = [(x.type, None if x.local is None else x.local.copy()) for x in self.all]

    def changed(self) -> str | None:
        """What is not as it was."""
        for x, (t, tile) in zip(self.all, self.before, strict=True):
            if x.type != t:
                return f"{t} became {x.type}"
            if tile is not None and not np.array_equal(tile, x.local):
                return f"the tile of {t} has changed"
        total = float(xp.sum(self.a + self.b))
        return None if total == 1925.0 else f"the next sum is {total}"


def calls(x: Arrays) -> dict[str, Callable[[], Any]]:
    """Everything that must be refused."""
    a, b, i, flags, c, few = x.a, x.b, x.i, x.flags, x.c, x.few
    far = x.far
    return {
        "shapes": lambda: a + xp.ones((3, 3)),
        "shapes of an update": lambda: operator.iadd(i, a),
        "growing update": lambda: operator.iadd(xp.ones((1, 5)), a),
        "dtype of an update": lambda: operator.iadd(i, 1.5),
        "dtype of an array update": lambda: operator.imul(i, xp.ones(6)),
        "numpy on the right": lambda: a + np.ones(5),
        "numpy on the left": lambda: np.ones(5) * a,
        "numpy matrix": lambda: a @ np.ones((5, 2)),
        "numpy matrix on the left": lambda: np.ones((2, 7)) @ a,
        "list": lambda: operator.add(a, [1, 2, 3, 4, 5]),
        "text": lambda: a + "1",
        "two meshes": lambda: a + few,
        "product of two meshes": lambda: a.T @ few,
        "overflow of a number": lambda: xp.ones(6, dtype="i1") + 300,
        "overflow outside the mesh": lambda: xp.astype(few, np.int8) + 300,
        "bits of floats": lambda: a & b,
        "minus of truth": lambda: flags - flags,
        "floor of complex": lambda: xp.floor(c),
        "truth of many": lambda: bool(a),
        "number of many": lambda: float(a),
        "index of a float": lambda: range(xp.sum(a)),
        "length of none": lambda: len(xp.sum(a)),
        "iterate over none": lambda: list(xp.sum(a)),
        "hash": lambda: hash(a),
        "numpy.asarray": lambda: np.asarray(a),
        "a masked array": lambda: xp.asarray(np.ma.masked_less([1, 2], 2)),
        "None for values": lambda: xp.asarray(None),
        "numpy.sum into an array": lambda: np.sum(a, out=np.ones(())),
        "numpy.mean of some": lambda: np.mean(a, where=True),
        "numpy.interp": lambda: np.interp(a, a, a),
        "numpy.save": lambda: np.save("never.npy", a),
        "numpy.concatenate with numpy": lambda: np.concatenate([a, np.ones((7, 5))]),
        "numpy.unique of rows": lambda: np.unique(a, axis=0),
        "numpy.linalg.lstsq": lambda: np.linalg.lstsq(a, a),
        "numpy.take of numpy": lambda: np.take(np.ones(9), i),
        "numpy.add with out": lambda: np.add(a, a, out=a),
        "method of numpy": lambda: a.strides,
        "method with out": lambda: a.sum(out=a),
        "two corrections": lambda: a.std(ddof=1, correction=1),
        "item of many": lambda: a.item(),
        "median along a dim too far": lambda: xp.median(a, axis=2),
        "quantile beyond 1": lambda: xp.quantile(a, 1.5),
        "quantile of nothing": lambda: xp.quantile(xp.ones((0, 3)), 0.5, axis=0),
        "quantile of an array": lambda: xp.quantile(a, i),
        "histogram of nan": lambda: xp.histogram(a * xp.nan),
        "histogram of falling edges": lambda: xp.histogram(a, [3, 1]),
        "bincount of floats": lambda: xp.bincount(a[0]),
        "bincount of less than 0": lambda: xp.bincount(i - 3),
        "weights of another shape": lambda: xp.average(a, weights=xp.ones(3)),
        "covariance of 3 dims": lambda: xp.cov(xp.ones((2, 2, 2))),
        "diagonal of 3 dims": lambda: xp.diag(xp.ones((2, 2, 2))),
        "name of numpy": lambda: xp.concatenate([a, a]),
        "unknown name": lambda: xp.nonsense,
        "unknown of linalg": lambda: LINALG.lu,
        "sum along a dim too far": lambda: xp.sum(a, axis=2),
        "sum along a dim twice": lambda: xp.sum(a, axis=(0, -2)),
        "sum along a float": lambda: xp.sum(a, axis=1.0),
        "sum of numpy": lambda: xp.sum(np.ones(3)),
        "grid of numpy": lambda: xp.meshgrid(np.ones(3), np.ones(3)),
        "broadcast numpy": lambda: xp.broadcast_arrays(a, np.ones(5)),
        "norm of numpy": lambda: LINALG.vector_norm(np.ones(3)),
        "solve with numpy": lambda: LINALG.solve(c, np.ones(4)),
        "least squares of numpy": lambda: LINALG.lstsq(a, np.ones(7)),
        "shift of numpy": lambda: FFT.fftshift(np.ones(3)),
        "einsum without text": lambda: xp.einsum(a, a),
        "power by a float": lambda: LINALG.matrix_power(c, 1.5),
        "max of nothing": lambda: xp.max(xp.ones((0, 3)), axis=0),
        "argmax of nothing": lambda: xp.argmax(xp.ones((0,))),
        "cumulate without a dim": lambda: xp.cumulative_sum(a),
        "sort along a dim too far": lambda: xp.sort(a, axis=-3),
        "permute": lambda: xp.permute_dims(a, (0, 0)),
        "permute too few": lambda: xp.permute_dims(a, (0,)),
        "transpose": lambda: xp.ones((2, 2, 2)).T,
        "squeeze": lambda: xp.squeeze(a, axis=0),
        "reshape": lambda: xp.reshape(a, (6, 6)),
        "concat": lambda: xp.concat([a, i]),
        "concat nothing": lambda: xp.concat([]),
        "stack": lambda: xp.stack([a, i]),
        "broadcast": lambda: xp.broadcast_to(a, (7, 6)),
        "roll": lambda: xp.roll(a, (1, 2, 3), axis=(0, 1)),
        "index too far": lambda: a[7],
        "index by a float": lambda: a[1.5],
        "index by text": lambda: a["rows"],
        "too many indices": lambda: a[0, 0, 0],
        "mask of another shape": lambda: a[flags],
        "indices too far on one rank": lambda: a[far],
        "take too far on one rank": lambda: xp.take(i, far),
        "take along too far": lambda: xp.take_along_axis(i, far, axis=0),
        "a mask of each rank's own": lambda: a[np.arange(7) % COMM.size == COMM.rank],
        "a file of each rank's own": lambda: xp.read_npy(f"none{COMM.rank}.npy"),
        "files of each rank's own": lambda: xp.read_csv(["none.csv", f"none{COMM.rank}.csv"]),
        "write a file of each rank's own": lambda: xp.write_npy(f"none{COMM.rank}.npy", a),
        "write columns in each rank's own order": lambda: xp.write_csv(
            "never.csv", {"x": a, "y": b} if COMM.rank else {"y": b, "x": a}
        ),
        "write columns with each rank's own names": lambda: xp.write_csv(
            "never.csv", {f"x{COMM.rank}": a}
        ),
        "write each rank's own shape": lambda: xp.write_npy(
            "never.npy", a if COMM.rank else xp.ones((7, 6), type="{x}, {}")
        ),
        "write each rank's own dtype": lambda: xp.write_npy(
            "never.npy", a if COMM.rank else xp.astype(a, np.float32)
        ),
        "write an array on one rank alone": lambda: xp.write_npy(
            "never.npy", a if COMM.rank else np.ones((7, 5))
        ),
        "write by each rank's own format": lambda: xp.write_csv(
            "never.csv", a, fmt=f"%.{COMM.rank}f"
        ),
        "read each rank's own dtype": lambda: _compared(
            xp.read_csv, "none.csv", dtype="f8" if COMM.rank else "f4"
        ),
        "read each rank's own columns": lambda: _compared(
            xp.read_csv, "none.csv", usecols=[COMM.rank]
        ),
        "read to each rank's own type": lambda: _compared(
            xp.read_npy, "none.npy", type="{x}, {}" if COMM.rank else "{}, {x}"
        ),
        "read Parquet of each rank's own columns": lambda: _compared(
            xp.read_parquet, "none.parquet", columns=[f"c{COMM.rank}"]
        ),
        "write on one rank and read on another": lambda: (
            xp.read_npy("none.npy") if COMM.rank else xp.write_npy("none.npy", a)
        ),
        "write another shape": lambda: operator.setitem(a, 0, xp.ones(4)),
        "write too far": lambda: operator.setitem(a, 7, 1.0),
        "put outside an epoch": lambda: a.put(0, 1.0),
        "unknown type": lambda: a.to("{q}, {}"),
        "a type as a tuple": lambda: a.to(("x", None)),
        "a type as a list": lambda: a.to(["x", None]),
        "a new type as a tuple": lambda: xp.ones((4, 4), type=("x", None)),
        "tiles with cuts alone": lambda: xp.from_local(np.ones((4, 4)), "{x}, {}"),
        "type of other dims": lambda: a.to("{x}"),
        "type of another shape": lambda: a.to(b.T.type),
        "type without sense": lambda: a.to("{x, {}"),
        "axis used twice": lambda: a.to("{x}, {x}") if COMM.size > 1 else a.to("{z}, {z}"),
        "negative size": lambda: xp.zeros((-1, 3)),
        "shape of text": lambda: xp.zeros("3"),
        "shape of floats": lambda: xp.zeros((2.5,)),
        "dtype of objects": lambda: xp.zeros(3, dtype=object),
        "mesh too large": lambda: xp.zeros(3, mesh=Mesh(x=COMM.size + 1)),
        "mesh of a number": lambda: xp.zeros(3, mesh=4),
        "mesh of text": lambda: xp.zeros(3, mesh="four"),
        "device": lambda: xp.zeros(3, device="gpu"),
        "fill out of range": lambda: xp.full(1, 300, dtype="i1"),
        "fill by an array": lambda: xp.full(3, np.ones(2)),
        "range of step 0": lambda: xp.arange(0, 3, 0),
        "seed": lambda: xp.random.generator(-1),
        "random integers": lambda: xp.random.generator(1).integers(3, 5, 2),
        "matmul": lambda: a @ b,
        "matmul in place": lambda: operator.imatmul(a, xp.ones((5, 2))),
        "matmul of numbers": lambda: a @ 2,
        "einsum": lambda: xp.einsum("ij,jk->ik", a, b),
        "einsum of too few": lambda: xp.einsum("ij,jk->ik", a),
        "tensordot": lambda: xp.tensordot(a, b, axes=1),
        "singular": lambda: LINALG.inv(xp.zeros((5, 5), type="{x}, {}")),
        "solve": lambda: LINALG.solve(a, b),
        "not square": lambda: LINALG.det(a),
        "qr of integers": lambda: LINALG.qr(xp.ones((5, 3), dtype="i8")),
        "fft along a dim too far": lambda: FFT.fft(c, axis=2),
        "fft of an unknown norm": lambda: FFT.fft(c, norm="none"),
        "fft of nothing": lambda: FFT.fft(xp.ones((0,))),
        "allocate too much": lambda: _limited(lambda: xp.zeros((2048, 2048))),
        "allocate too much by an operation": lambda: _limited(lambda: xp.sqrt(LARGE[0])),
        "move too much": lambda: _limited(lambda: LARGE[0].to("{}, {}")),
        "negative limit": lambda: redist.memory_limit(-1),
        "limit of nothing": lambda: redist.memory_limit(0),
        "a cache of text": lambda: xp.program(cache="no"),
        "progress of text": lambda: xp.program(progress="x"),
        "a program of a number": lambda: xp.program(3),
        "a number of each rank's own for a program": lambda: xp.program(_shifted)(a, COMM.rank + 0.5),
        "a number of each rank's own in a program": lambda: xp.program(_shifted_by_rank)(a),
        "an index of each rank's own in a program": lambda: xp.program(_row_of_rank)(a),
        "another type on every rank": lambda: a.to("{}, {x}" if COMM.rank else "{}, {}"),
        "another shape on every rank": lambda: xp.ones(
            (6, 4 + COMM.rank), type="{x}, {}"
        ).to("{}, {x}"),
    }  # fmt: skip


LARGE: list[Any] = []
ALONE = {
    "another type on every rank", "another shape on every rank", "move too much",
    "indices too far on one rank", "take too far on one rank", "take along too far",
    "two meshes", "product of two meshes", "a mask of each rank's own", "a file of each rank's own",
    "files of each rank's own", "write a file of each rank's own",
    "write columns in each rank's own order", "write columns with each rank's own names",
    "write each rank's own shape", "write each rank's own dtype", "write an array on one rank alone",
    "write by each rank's own format", "read each rank's own dtype", "read each rank's own columns",
    "read to each rank's own type", "read Parquet of each rank's own columns",
    "write on one rank and read on another", "a number of each rank's own for a program",
    "a number of each rank's own in a program", "an index of each rank's own in a program",
}  # fmt: skip
"""No mistakes where there is one rank, or for which one rank must have more than another."""


def _compared(read: Callable[..., Any], file: str, **options: Any) -> None:
    """Read a file that is not there: no mistake here if that is all that is said."""
    try:
        read(file, **options)
    except redist.RedistError as error:
        if "by different calls" in str(error):
            raise


def _shifted(a: Any, by: float) -> Any:
    return a * 2.0 + by


def _shifted_by_rank(a: Any) -> Any:
    return a * 2.0 + COMM.rank


def _row_of_rank(a: Any) -> Any:
    return a[COMM.rank]


def _limited(work: Callable[[], Any]) -> Any:
    gc.collect()  # what earlier errors keep alive is another on every rank
    with redist.memory_limit(BUFFERS.live_bytes + 2**18):
        return work()


def mistaken(name: str, call: Callable[[], Any], x: Arrays) -> str | None:
    """Why a call is not refused as it should be: on all ranks alike, without effects."""
    said = None
    try:
        call()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    everyone = COMM.allgather(said)
    if None in everyone:
        return f"no error on ranks {[rank for rank, one in enumerate(everyone) if one is None]}"
    if len(set(everyone)) > 1:
        return f"different errors: {sorted(set(everyone))}"
    if any(word in everyone[0] for word in ("AssertionError", "AttributeError: '")):
        return f"an error by accident: {everyone[0]}"
    return x.changed()


def checks_on(ranks: int, args: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the mistakes that can be made on so many ranks; none is made."""
    left_out = ALONE - {"indices too far on one rank"} if ranks == 1 else set()
    return tuple(name for name in calls(Mock()) if name not in left_out)


def program() -> int:
    """0 if every mistake is told."""
    warnings.simplefilter("ignore")
    LARGE.append(xp.ones((1024, 1024), type="{x}, {}"))
    x = Arrays()
    bad = 0
    table = calls(x)
    for name, call in table.items():
        if name in checks_on(COMM.size):
            bad += not all_well(COMM, name, mistaken(name, call, x))
    if COMM.rank == 0:
        print(f"{len(table)} mistakes, {bad} not told well ({COMM.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
