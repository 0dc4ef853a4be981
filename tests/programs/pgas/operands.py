"""Random operands for checks of global arrays, and the comparison of results with NumPy's."""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import ArrayType, Mesh
from redist.layout.axes import coordinates
from redist.layout.dtype import DType
from redist.layout.tiles import box_of
from redist.pgas import memory as buffers
from redist.pgas.global_array import Array
from redist.pgas.tiles.layouts import idle_parts
from redist.runtime.elements import block_copies as blocks
from redist.runtime.elements import by_index as selection
from redist.runtime.elements import by_position as flat
from redist.runtime.index_sets import held as links
from redist.runtime.ranks import world as ranks
from tests.programs.pgas.layouts import layouts, meshes

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9)
DTYPES = ("float64", "int32", "complex64", "int8", "bool", "uint16")


def in_small_rounds() -> None:
    """Cut everything that passes between ranks into many messages and rounds."""
    links.FEW_RUNS, links.LISTED_ELEMS = 2, 16
    selection.MESSAGE_BYTES, selection.STAGING_BYTES = 48, 200
    flat.ROUND_ELEMS = 7
    blocks.ROW_BYTES, blocks.MOST_ROWS = 16, 3


def on_nodes(size: int) -> None:
    """Let indexing take so many ranks for a node: the others are reached by messages."""

    def world_of(comm: MPI.Comm, timeout_s: float | None = None) -> Any:
        return ranks.world_of(comm, "auto", size, timeout_s)

    modules: tuple[Any, ...] = (selection, flat)
    for module in modules:
        module.world_of = world_of


def settings() -> argparse.Namespace:
    """The arguments of a program that checks random cases, with those for the transport done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--node-size", type=int, default=None)
    parser.add_argument("--tiles", choices=("shared", "private", "mixed"), default="shared")
    args = parser.parse_args()
    if args.small:
        in_small_rounds()
    if args.node_size is not None:
        on_nodes(args.node_size)
    buffers.SHARED_FROM = 2**62 if args.tiles == "private" else 0
    return args


class Operands:
    """Arrays of random shapes in random layouts over one communicator, the same on all ranks."""

    def __init__(self, comm: MPI.Comm, seed: int, tiles: str = "shared") -> None:
        self.comm, self.rng, self.tiles = comm, Random(seed), tiles
        self._own = Random(seed * 100 + comm.rank)
        self.values = np.random.default_rng(seed)
        self.meshes = meshes(comm.size)
        if comm.size > 2:
            self.meshes.append(Mesh({"z": comm.size - 1}, ranks=range(1, comm.size)))
        self.mesh = self.meshes[0]

    def change_mesh(self) -> None:
        """Another mesh for the arrays to come."""
        self.mesh = self.rng.choice(self.meshes)

    def shape(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        """A shape; sizes of 0 now and then."""
        n = self.rng.randint(least, most)
        sizes = SIZES if self.rng.random() < 0.2 else SIZES[1:]
        return tuple(self.rng.choice(sizes) for _ in range(n))

    def numpy(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """Small values, exact in every dtype."""
        dtype = self.rng.choice(DTYPES) if dtype is None else dtype
        high = 2 if dtype == "bool" else 100
        return np.asarray(self.values.integers(0, high, shape)).astype(dtype)

    def place(self, whole: Any, pending: bool = True) -> Array:
        """An array in any layout: cut, copied, now and then with a sum that is pending."""
        dtype = DType.parse(whole.dtype.name)
        t = self.rng.choice(list(layouts(self.mesh, dtype, whole.shape)))
        idle = idle_parts(t, t.dims)
        draws = [self.rng.random() for _ in range(2)]  # on ranks outside the mesh too
        pending = pending and draws[0] < 0.2 and whole.dtype.kind != "b" and bool(idle)
        box = box_of(t, self.comm.rank)
        if box is None:
            return Array(t.with_pending("sum", idle) if pending else t, self.comm, None)
        tile = np.array(whole[tuple(slice(*ends) for ends in box)])
        if pending:
            t = t.with_pending("sum", idle)
            place = coordinates(self.mesh, idle)[list(self.mesh.ranks).index(self.comm.rank)]
            others = np.prod([part.size for part in idle]) - 1
            tile = (tile - others if place == 0 else np.ones_like(tile)).astype(whole.dtype)
        turned = not pending and tile.ndim > 1 and draws[1] < 0.2
        if self.tiles == "mixed":  # each rank as it likes
            buffers.SHARED_FROM = 0 if self._own.random() < 0.6 else 2**62
        out = buffers.BUFFERS.empty(tile.shape[::-1] if turned else tile.shape, tile.dtype, 0)
        out = out.T if turned else out
        out[...] = tile
        return Array(t, self.comm, out)


def difference(got: Any, want: Any) -> str | None:
    """What is wrong with this rank's tile of a result, None if nothing is."""
    want = np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.shape} of {got.dtype}, not {want.shape} of {want.dtype}"
    got = got.settled()
    t: ArrayType = got.type
    box = box_of(t, got.comm.rank)
    if box is None or got.local is None:
        return None if box is None and got.local is None else f"{t}: tile where none should be"
    part = want[tuple(slice(*ends) for ends in box)]
    if got.local.shape != part.shape:
        return f"{t}: a tile of {got.local.shape}, not {part.shape}"
    if not np.array_equal(got.local, part, equal_nan=want.dtype.kind in "fc"):
        return f"{t}: the tile is {got.local.tolist()}, not {part.tolist()}"
    return None if got.local.flags.writeable else f"{t}: the tile cannot be written"
