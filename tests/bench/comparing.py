"""The GPU benchmark's contenders on a pretended GPU, whose streams put work off.

As in ``mpirun -n 2 python -m tests.bench.comparing``. Tiles and their values are made without
CuPy's own functions; checking, timing in turn and closing are those of the benchmark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from bench.gpu import contenders, ranks
from redist.layout.array_type import ArrayType
from redist.measure.contenders.contender import Contender
from redist.measure.timing import Stopwatch
from redist.measure.values import boxes, source_values
from tests.fakes import pretended_cupy as pretend
from tests.programs.together import main


class Forgetful(contenders.StagedTransfer):
    """Moves and then spoils one element, on the last rank alone."""

    label = "forgetful"

    def run(self) -> None:
        super().run()
        if self.comm.rank == self.comm.size - 1 and self.output is not None:
            self.output[:1, :1] = -1.0
            self.stream.synchronize()


class Failing(contenders.StagedTransfer):
    """Raises on one rank, before it meets the others."""

    label = "failing"

    def run(self) -> None:
        raise RuntimeError(f"rank {self.comm.rank} has had enough")


def new_tile(t: ArrayType, rank: int, order: str = "C") -> Any:
    """A tile of the pretended GPU."""
    box = boxes(t).get(rank)
    return None if box is None else pretend.empty(box.shape, t.dtype.to_numpy(), order)


def fill(tile: Any, t: ArrayType, rank: int) -> None:
    """What a rank holds of the source."""
    tile[...] = source_values(t, boxes(t)[rank], 0)


def is_right(tile: Any, source: ArrayType, target: ArrayType, rank: int) -> bool:
    """Whether a rank has its tile of the target."""
    want = source_values(source, boxes(target)[rank], 0)
    return bool(np.array_equal(pretend.asnumpy(tile), want))


def program() -> int:
    """Compare a right contender with two wrong ones; every rank must find the same."""
    comm = MPI.COMM_WORLD
    pretend.install("pretended")
    stand_ins = {"_new_tile": new_tile, "fill": fill, "is_right": is_right}
    for name, stand_in in stand_ins.items():
        setattr(contenders, name, stand_in)
    for module in (contenders, ranks):
        vars(module)["free_pool"] = lambda: None
    ways: dict[str, tuple[type[Contender], ...]] = {
        "forgetful": (Forgetful,),
        "failing": (Failing,),
    }
    contenders.MOVERS.update(ways)
    case = contenders.f32_case("rows-columns", 2**16, comm.size)
    rows = ranks.race(case, Stopwatch.on(comm), 3, ["staged", *ways], 1e9)
    assert rows == comm.bcast(rows), "ranks disagree"
    found = {row["contender"]: {k: v for k, v in row.items() if v is not None} for row in rows}
    staged: Any = found["staged"]
    assert staged["right"] and not staged["note"], staged
    assert staged["n"] == 3 and staged["low_s"] <= staged["median_s"] <= staged["high_s"]
    assert staged["bytes_per_s"] == contenders.traffic_bytes(case) / staged["median_s"]
    assert staged["of_copy"] == staged["bytes_per_s"] / 1e9 and "of_raw" not in staged
    about = {"case": "rows-columns", "contender": "forgetful", "label": "forgetful"}
    assert found["forgetful"] == {**about, "note": "wrong result", "right": False}
    assert not found["failing"]["right"] and "has had enough" in str(found["failing"]["note"])
    if comm.rank == 0:
        print(f"contenders are told apart ({comm.size} ranks)", flush=True)
    return 0


if __name__ == "__main__":
    main(program)
