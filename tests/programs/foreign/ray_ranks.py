"""Actors of Ray that are ranks: blocks of the object store become global arrays, and tiles blocks of it.

As in ``python -m tests.programs.foreign.ray_ranks 3``, which starts Ray on this machine, for itself alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

LIMIT_S = 120.0
TYPES = ("{x}, {}", "{}, {x}", "{}, {}", None)
FULL = np.arange(23 * 10.0).reshape(23, 10)
ROWS, COLUMNS = (4, 12, 7), (6, 4)
LARGE = (64, 2**17)
"""64 MiB of f8 in blocks of 1 MiB, each as wide as the array."""


def blocks_of(full: Any, rows: Any, columns: Any) -> Any:
    """An array as lists of lists of blocks."""
    at, along = np.cumsum(rows)[:-1], np.cumsum(columns)[:-1]
    return [np.split(part, along, axis=1) for part in np.split(full, at)]


class Rank:
    """An actor that joins the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def join(self) -> int:
        """**Collective.** Become a rank."""
        import redist

        return redist.join(self.rank, self.size, "ray", timeout_s=60).size

    def equal(self, grid: Any, flat: Any) -> str | None:
        """Blocks become every layout; each is fetched once, by a rank whose tile has elements of it."""
        import ray

        from redist import pgas
        from redist.layout.tiles import box_of

        fetched: list[Any] = []
        get = ray.get

        def noted(refs: Any, **options: Any) -> Any:
            fetched.extend(refs if isinstance(refs, list) else [refs])
            return get(refs, **options)

        places = {ref: (i, j) for i, row in enumerate(grid) for j, ref in enumerate(row)}
        at, along = (np.cumsum((0, *sizes)).tolist() for sizes in (ROWS, COLUMNS))
        for cut in TYPES:
            fetched.clear()
            ray.get = noted
            try:
                a = pgas.asarray(grid, type=cut)
            finally:
                ray.get = get
            if not np.array_equal(a.gather(), FULL):
                return f"to {cut}: {a.gather()}"
            own = [places[ref] for ref in fetched if ref in places]
            tile = box_of(a.type, a.comm.rank)
            for i, j in own:
                box = (at[i], at[i + 1]), (along[j], along[j + 1])
                if any(
                    max(lo, b) >= min(hi, e)
                    for (lo, hi), (b, e) in zip(box, tile or (), strict=True)
                ):
                    return f"to {cut}: fetched {i, j}"
            every = sorted(one for some in a.comm.allgather(own) for one in some)
            if every != sorted(places.values()):
                return f"to {cut}: fetched {every}"
        line = pgas.asarray(flat, dtype="i4")
        return (
            None if np.array_equal(line.gather(), np.arange(9)) and line.dtype == "i4" else "a list"
        )

    def within(self, grid: Any) -> str | None:
        """What is fetched beside the tile, as the kernel counts; least limits."""
        from mpi4py import MPI

        from redist import pgas
        from redist.measure.memory import can_measure, held_bytes, peak_bytes
        from redist.pgas.files.blocks import LEAST_BYTES
        from redist.pgas.memory import BUFFERS
        from redist.runtime.ranks.world import comm_or_world

        comm: Any = comm_or_world(None)
        if not can_measure(comm):
            return None
        limit = 4 * 2**20
        kept: list[Any] = []

        def once() -> None:
            kept[:] = [pgas.asarray(grid, type="{}, {x}", limit_bytes=limit)]

        once()
        tile = kept[0].local.nbytes
        kept.clear()
        BUFFERS.forget()
        before = held_bytes(comm)
        took = comm.allreduce(peak_bytes(comm, once) - before - tile, MPI.MAX)
        if took > limit + 2 * 2**20:
            return f"took {took} beside a tile of {tile} within {limit}"
        if comm.rank == 0:
            print(f"limit {limit}: took {took} beside {tile}", flush=True)
        least = LEAST_BYTES + 2 * 2**20
        said = self._refused(partial(pgas.asarray, grid, type="{}, {x}", limit_bytes=least - 1))
        return None if f"limit_bytes={least}" in said else said

    def _refused(self, work: Any) -> str:
        import redist
        from redist.runtime.ranks.world import comm_or_world

        try:
            work()
        except redist.RedistError as problem:
            same = comm_or_world(None).allgather(str(problem))
            return str(problem) if len(set(same)) == 1 else f"ranks say {same}"
        return "nothing"

    def mistakes(self, grid: Any, odd: Mapping[str, Any]) -> str | None:
        """What is no grid of arrays is one error on all ranks, and what they see otherwise."""
        from redist import pgas

        (a, b), (c, d), (e, _) = grid
        wrong: dict[str, Any] = {
            "block (2, 1) is missing": [[a, b], [c, d], [e]],
            "nested [1, 2] deep": [[a, b], c],
            "nest lists as deep as the blocks have dims": [a, c, e],
            "those beside it need <f8[4, 4]": [[a, d], [c, b]],
            "those beside it need <f8[12, 4]": [[a, b], [c, odd["f4"]]],
            "it is no NumPy array": [[odd["text"]]],
            "no such luck": [[odd["failed"]]],
            "unknown dtype": [[odd["words"]]],
        }
        if self.size > 1:
            wrong["ranks disagree"] = [[a, b]] if self.rank else [[c, d]]
        for words, refs in wrong.items():
            said = self._refused(partial(pgas.asarray, refs))
            if words not in said:
                return f"{words}: {said}"
        return None

    def back(self, cut: str) -> Any:
        """Tiles as objects."""
        from redist import pgas

        a = pgas.from_function(lambda i, j: i * 10.0 + j, FULL.shape, type=cut)
        return pgas.to_ray(a)

    def again(self, refs: Any) -> str | None:
        """What all ranks put, as an array again."""
        from redist import pgas

        return None if np.array_equal(pgas.asarray(refs).gather(), FULL) else "other values"


def failed() -> Any:
    raise ZeroDivisionError("no such luck")


def main(size: int) -> int:
    """Start actors, let them check, and say what is wrong."""
    import faulthandler

    import ray

    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    os.environ |= {"RAY_raylet_start_wait_time_s": "100", "RAY_IGNORE_UNHANDLED_ERRORS": "1"}
    ray.init(
        num_cpus=size + 1, include_dashboard=False, log_to_driver=True, object_store_memory=2**28
    )
    ranks = [ray.remote(num_cpus=0)(Rank).remote(rank, size) for rank in range(size)]
    wrong: list[str] = []

    def all_of(name: str, *args: Any) -> list[Any]:
        return list(ray.get([getattr(rank, name).remote(*args) for rank in ranks], timeout=LIMIT_S))

    def check(name: str, *args: Any) -> None:
        said = [
            f"rank {k}: {text}" for k, text in enumerate(all_of(name, *args)) if text is not None
        ]
        print(f"WRONG {name}: {said}" if said else f"well {name}", flush=True)
        wrong.extend(said)

    assert all_of("join") == [size] * size
    grid = [[ray.put(block) for block in row] for row in blocks_of(FULL, ROWS, COLUMNS)]
    check("equal", grid, [ray.put(np.arange(5)), ray.put(np.arange(5, 9))])
    odd = {
        "f4": ray.put(np.zeros((12, 4), "f4")),
        "text": ray.put("text"),
        "words": ray.put(np.array([["a"]])),
        "failed": ray.remote(num_cpus=0)(failed).remote(),
    }
    check("mistakes", grid, odd)
    check("within", [[ray.put(np.ones((1, LARGE[1])))] for _ in range(LARGE[0])])
    for cut in ("{x}, {}", "{}, {x}", "{}, {}"):
        refs = {index: ref for own in all_of("back", cut) for index, ref in own.items()}
        counts = [max(along) + 1 for along in zip(*refs, strict=True)]
        tiles = [[ray.get(refs[i, j]) for j in range(counts[1])] for i in range(counts[0])]
        if not np.array_equal(np.block(tiles), FULL):
            wrong.append(f"back from {cut}")
        check("again", refs)
    ray.shutdown()
    return int(bool(wrong))


if __name__ == "__main__":
    from tests.programs.foreign import ray_ranks  # the class that actors find by its name

    sys.exit(ray_ranks.main(int(sys.argv[1])))
