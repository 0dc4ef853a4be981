"""``python -m bench gpu halos --ranks 8``: halos of a box in three dims, by ranks that share a GPU.

By hand is what users write: arrays that have room for the halo, and along one dim after another, so that
edges and corners come along, a face to the host, ``Sendrecv``, and back; with pinned buffers that are made
once, too. Its tiles are in their places already, while ``redist``'s are copied into new ones: only that
is counted for it. Another table has the faces of one tile packed, beside a copy of as many bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.gpu.cases import PACKED, WHOLE, FaceCase
from bench.gpu.contenders import free_pool, values
from bench.gpu.copies import GenericMoves, gpu_machine, need_gpu, plain_copy, times_of
from bench.report.figures import repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, all_agree, meet
from redist.measure.values import ValueBox, boxes
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.rounds import CudaCopyList
from redist.runtime.halo import exchange_halo
from redist.runtime.schedule.halos import Halo

SECTOR = 32
"""Bytes that memory of a GPU is read and written in."""
_TAGS = (11, 12)
Slices = list[tuple[slice, ...]]


def run(ranks: int = 8, side: int = 512, width: int = 1, repeat: int = 11) -> Tables:
    """Halos of a cube of f32 over ranks cut along all dims, every way checked and timed in turn.

    side: of the whole cube; width: of the halo.
    """
    need_gpu()
    asked = {"side": side, "width": width, "repeats": repeat}
    data = found_by(on_ranks(ranks, one_thread=False), "bench.gpu.halos", **asked)
    title = (
        f"Halos {width} deep of {side}^3 f32, {ranks} ranks on {data['about']['machine']['gpu']}"
    )
    wrong = not all(row["right"] for row in data["rows"])
    faces = f"Faces of a tile, {width} deep, one launch, beside a contiguous copy of as many bytes"
    return (
        Table.of("halos", title, data["rows"], keys=2, is_wrong=wrong, about=data["about"]),
        Table.of("faces", faces, data["faces"], keys=2, about=data["about"]),
    )


def measure(side: int, width: int, repeats: int) -> dict[str, Any]:
    """All ways to exchange halos, then faces alone. **Collective over all ranks of the job.**"""
    comm = MPI.COMM_WORLD
    box = Cube(comm, side, width)
    ways: dict[str, Way] = {
        "redist, exchange": Exchange(box), "redist, map_tiles": Mapped(box),
        "redist.pack to pinned memory, MPI": Packs(box), "by hand, pinned": ByHand(box, True),
        "by hand": ByHand(box, False),
    }  # fmt: skip
    right = {}
    for name, way in ways.items():
        way.run()
        right[name] = all_agree(comm, way.is_right())
        free_pool()
    works = [repeated(way.run) for way in ways.values()]
    times = Stopwatch.on(comm).in_turn(works, repeats)
    hand = times[-1].median_s
    rows: list[Row] = [
        {
            "ranks": comm.size, "way": name, "right": right[name], **asdict(found),
            "times as quick as by hand": hand / found.median_s,
        }
        for name, found in zip(ways, times, strict=True)
    ]  # fmt: skip
    for row in rows:
        say(f"gpu halos: {row['way']}: {row['median_s']} s, right: {row['right']}")
    del ways, works
    free_pool()
    meet(comm)
    faces = _faces(box.inner, width, repeats) if comm.rank == 0 else []
    meet(comm)
    about = {
        "mpi": mpi_name(), "side": side, "width": width, "repeats": repeats, "machine": gpu_machine(),
        "halo_bytes": comm.size * 4 * (math.prod(box.outer) - math.prod(box.inner)),
        "tile_bytes": comm.size * 4 * math.prod(box.inner),
    }  # fmt: skip
    return {"about": about, "rows": rows, "faces": faces}


class Cube:
    """A cube of f32, the tile of this rank with room for a halo around it, and what must be there."""

    def __init__(self, comm: MPI.Intracomm, side: int, width: int) -> None:
        """Cut along three dims, as evenly as the number of ranks allows."""
        counts = MPI.Compute_dims(comm.size, 3)
        if any(side % n for n in counts):
            raise RequestError(f"cannot cut {side}^3 by {counts} ranks: give another side")
        mesh = Mesh(dict(zip("xyz", counts, strict=True)))
        self.type = ArrayType.parse(f"f32[{side}{{x}}, {side}{{y}}, {side}{{z}}]", mesh)
        self.comm, self.width, self.box = comm, width, boxes(self.type)[comm.rank]
        self.inner = self.box.shape
        self.outer = tuple(n + 2 * width for n in self.inner)
        self.whole = (slice(width, -width),) * 3

    def tile(self, width: int = 0) -> Any:
        """**Local.** This rank's tile with a halo of some width."""
        lo, hi = tuple(n - width for n in self.box.lo), tuple(n + width for n in self.box.hi)
        return values(ValueBox(lo, hi), self.type.shape)

    def is_grown(self, found: Any) -> bool:
        """**Local.** Whether this is the tile with its halo, bit for bit."""
        return bool((found == self.tile(self.width)).all())

    def grown(self) -> Any:
        """**Local.** The tile in a new array with room for the halo, which has no values yet."""
        import cupy

        out = cupy.full(self.outer, -1, cupy.float32)
        out[self.whole] = self.tile()
        return out


class Way:
    """A way to exchange halos."""

    def __init__(self, cube: Cube) -> None:
        import cupy

        self.cube = cube
        self.stream = cupy.cuda.get_current_stream()

    def run(self) -> None:
        """Exchange halos once, to the end. **Collective over all ranks.**"""

    def is_right(self) -> bool:
        """Whether this rank has what it must have, after a run. **Local.**"""
        return False


class Exchange(Way):
    """``exchange_halo`` into an array that is there: the tile and its halo, one launch for all ranks."""

    def __init__(self, cube: Cube) -> None:
        import cupy

        super().__init__(cube)
        self.halo = Halo(cube.type, (cube.width,) * 3, wraps=True)
        self.tile, self.out = cube.tile(), cupy.full(cube.outer, -1, cupy.float32)

    def run(self) -> None:
        """One exchange. **Collective over all ranks.**"""
        exchange_halo(self.cube.comm, self.halo, self.tile, self.out, on_device=True)
        self.stream.synchronize()

    def is_right(self) -> bool:
        """Every element of the array. **Local.**"""
        return self.cube.is_grown(self.out)


class Mapped(Way):
    """``pgas.map_tiles`` of a function that keeps what it is given: new memory, exchange, result."""

    def __init__(self, cube: Cube) -> None:
        super().__init__(cube)
        t = cube.type
        self.array = pgas.zeros(t.shape, dtype="f4", type=t, comm=cube.comm, device="cuda")
        tile: Any = self.array.local
        tile[...] = cube.tile()
        self.seen: list[Any] = []

    def _keep(self, tile: Any) -> Any:
        self.seen = [tile]
        return tile[self.cube.whole]

    def run(self) -> None:
        """One call. **Collective over all ranks.**"""
        self.seen.clear()  # so that its memory can be used again
        reach = dict.fromkeys(range(3), self.cube.width)
        pgas.map_tiles(self._keep, self.array, halo=reach, edges="wrap")
        self.stream.synchronize()

    def is_right(self) -> bool:
        """Every element that the function was given. **Local.**"""
        return self.cube.is_grown(self.seen[0])


class ByHand(Way):
    """A face to the host, ``Sendrecv``, and back; along the second dim with the halo of the first."""

    def __init__(self, cube: Cube, pinned: bool) -> None:
        super().__init__(cube)
        self.grown, self.pinned = cube.grown(), pinned
        counts = cube.type.cuts
        self.ranks = cube.comm.Create_cart(counts, periods=[True] * 3)
        self.faces = [_ends(cube.outer, dim, cube.width) for dim in range(3)]
        self.buffers = [self._buffers(given[0], pinned) for given, _ in self.faces]

    def _buffers(self, where: Any, pinned: bool) -> tuple[Any, Any]:
        shape = self.grown[where].shape
        if not pinned:
            return np.empty(shape, np.float32), np.empty(shape, np.float32)
        import cupyx

        return cupyx.empty_pinned(shape, np.float32), cupyx.empty_pinned(shape, np.float32)

    def run(self) -> None:
        """Six faces. **Collective over all ranks.**"""
        for dim, ((given, into), (sent, got)) in enumerate(
            zip(self.faces, self.buffers, strict=True)
        ):
            before, behind = self.ranks.Shift(dim, 1)
            ends = ((behind, before), (before, behind))
            for k, (to, of) in enumerate(ends):
                self.send(given[k], sent)
                self.ranks.Sendrecv(sent, to, _TAGS[k], got, of, _TAGS[k])
                self.put(into[k], got)
        self.stream.synchronize()

    def send(self, where: Any, buffer: Any) -> None:
        """Bring a face to the host. **Local.**"""
        import cupy

        face = cupy.ascontiguousarray(self.grown[where])
        if self.pinned:
            face.get(out=buffer)
        else:
            buffer[...] = cupy.asnumpy(face)

    def put(self, where: Any, buffer: Any) -> None:
        """Put a face of a neighbour's in its place. **Local.**"""
        import cupy

        self.grown[where] = cupy.asarray(buffer)
        if self.pinned:  # the next face comes into the same memory
            self.stream.synchronize()

    def is_right(self) -> bool:
        """Every element of the array. **Local.**"""
        return self.cube.is_grown(self.grown)


class Packs(ByHand):
    """The same faces by ``redist.pack`` and ``redist.unpack`` of subarrays, to and from pinned memory."""

    def __init__(self, cube: Cube) -> None:
        super().__init__(cube, True)
        self.types: dict[Any, MPI.Datatype] = {}

    def _type(self, where: Any) -> MPI.Datatype:
        key = tuple((one.start, one.stop) for one in where)
        if key not in self.types:
            sizes = [b - a for a, b in key]
            made = MPI.FLOAT.Create_subarray(self.cube.outer, sizes, [a for a, _ in key])
            self.types[key] = made.Commit()
        return self.types[key]

    def send(self, where: Any, buffer: Any) -> None:
        """Pack a face to the host. **Local.**"""
        redist.pack(self.grown, self._type(where), out=buffer)

    def put(self, where: Any, buffer: Any) -> None:
        """Unpack a face from the host. **Local.**"""
        redist.unpack(buffer, self._type(where), self.grown)


def _ends(shape: Sequence[int], dim: int, width: int) -> tuple[Slices, Slices]:
    """Where an array of this shape gives from and gets into along a dim: upwards, then downwards.

    Dims that were exchanged before are whole, others without halo.

    >>> [one[1] for one in _ends((6, 8), 1, 1)[0]]
    [slice(6, 7, None), slice(1, 2, None)]
    """
    n = shape[dim]

    def at(first: int) -> tuple[slice, ...]:
        whole = (slice(0, m) if k < dim else slice(width, m - width) for k, m in enumerate(shape))
        return tuple(
            slice(first, first + width) if k == dim else one for k, one in enumerate(whole)
        )

    return [at(n - 2 * width), at(width)], [at(0), at(n - width)]


def _faces(shape: Sequence[int], width: int, repeats: int) -> list[Row]:
    """Faces of a tile, all six and each pair, packed and unpacked: shares of the rate of a plain copy."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    rows: list[Row] = []
    for unpacks in (False, True):
        case = FaceCase("faces", tuple(shape), width, unpacks)
        moves = case.moves()
        chosen = {"all six": moves} | {f"dim {d}": moves[2 * d : 2 * d + 2] for d in range(3)}
        whole, packed = (cupy.zeros(n, cupy.uint8) for n in (case.whole_bytes, case.n_bytes))
        bases = np.zeros(2, np.uintp)
        bases[[WHOLE, PACKED]] = whole.data.ptr, packed.data.ptr
        for name, some in chosen.items():
            ours = CudaCopyList.of(some)
            works: dict[str, Callable[[], object]] = {
                "redist": partial(ours.run, bases, stream.ptr),
                "cupy": partial(GenericMoves(some).run, bases),
                "copy": plain_copy(ours.n_bytes),
            }
            found = {
                key: times_of(work, stream.synchronize, repeats) for key, work in works.items()
            }
            s = {key: times.median_s for key, times in found.items()}
            touched = sum(map(_touched_bytes, some)) / (2 * ours.n_bytes)
            rows.append(
                {
                    "way": "unpack" if unpacks else "pack", "faces": name, "bytes": ours.n_bytes,
                    "redist us": 1e6 * s["redist"], "CuPy us": 1e6 * s["cupy"], "copy us": 1e6 * s["copy"],
                    "of the copy": s["copy"] / s["redist"],
                    "of the copy, whole sectors": touched * s["copy"] / s["redist"],
                }
            )  # fmt: skip
    return rows


def _touched_bytes(move: BufferCopy) -> int:
    """Bytes of all sectors that a copy reads and writes: single elements far apart take one each.

    >>> from redist.runtime.copies.strided import Strided
    >>> _touched_bytes(BufferCopy(0, 0, 1, 0, Strided(4, ((64, 256, 1024), (64, 4, 1024)))))
    147456
    """
    total = 0
    for side in (1, 2):
        run, n_runs = move.form.block, 1
        for count, *steps in reversed(move.form.dims):
            if steps[side - 1] == run and n_runs == 1:
                run *= count
            else:
                n_runs *= count
        total += n_runs * (-(-run // SECTOR) * SECTOR)
    return total
