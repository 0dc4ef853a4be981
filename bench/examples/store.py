"""How quick are checkpoints beside raw system calls, PyTorch, zarr, HDF5 and safetensors? Needs mpirun.

All ways write and read the same matrices in one folder, in turn, without waiting for the disk; new files
every time. The folder lies in memory (``/dev/shm``) where the system has that, so that a disk that empties
the page cache at its own pace disturbs nobody. Only saves that wait for the disk go there. What was loaded is
compared first. Others are left out where they are not installed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.examples.race import ratio_of
from bench.peers.torch import join
from bench.problems.installed import why_absent
from bench.problems.judge import WrongPlanError
from bench.report.figures import in_turn, slowest_s
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.measure.job import mpi_name
from redist.measure.timing import Times

IN_MEMORY = Path("/dev/shm")
SHAPE, N_ARRAYS = (2048, 4096), 16
Array = NDArray[Any]
Ways = dict[str, Callable[[], Any]]


def run(n: int = 7, arrays: int = N_ARRAYS) -> Tables:
    """Measure saves and loads of 512 MiB on 2 and on 4 ranks.

    n: repetitions; arrays: how many of 32 MiB.
    """
    rows: list[Row] = []
    for ranks in (2, 4):
        data = found_by(on_ranks(ranks), "bench.examples.store", repeat=n, n_arrays=arrays)
        for row in data["rows"]:
            if row["wrong"]:
                raise WrongPlanError(f"cannot compare {row['what']}: {row['wrong']}")
            ours = row["times"]["redist"]
            for name, times in row["times"].items():
                about: Row = {"what": row["what"], "ranks": ranks, "by": name}
                rows.append({**about, "ms": 1e3 * times["median_s"], **ratio_of(ours, times)})
    title = (
        f"Checkpoints of {arrays * 32} MiB in the page cache, {data['mpi']}, {os.cpu_count()} cores"
    )
    note = (
        "medians, all ways in turn; ratio: redist's time to this one's, below 1: redist is quicker; "
        "from, to: quartiles against each other. raw: pwrite or pread of the same bytes by the same "
        "ranks. zarr, HDF5 and safetensors: by one process"
    )
    return (Table.of("checkpoints", title, rows, note, keys=3),)


def measure(repeat: int, n_arrays: int) -> dict[str, Any]:
    """Measure all ways. **Collective over all ranks of the job.**"""
    comm = MPI.COMM_WORLD
    if not why_absent("torch"):
        join(comm)
    in_memory = new_folder(comm, IN_MEMORY if IN_MEMORY.is_dir() else None)
    with in_memory as folder, new_folder(comm) as disk:
        race = Race(comm, folder, n_arrays)
        rows = [
            race.compare("save", race._saves(), repeat, race._check_saved, race.clean),
            race.compare("load in other types", race._loads(), repeat, race._check_loaded),
            race.compare("load, not verified", race._loads(False), repeat, race._check_loaded),
            race.stall(repeat, disk),
        ]
    return {"mpi": mpi_name(), "rows": rows}


@contextmanager
def new_folder(comm: MPI.Intracomm, within: Path | None = None) -> Iterator[Path]:
    """A folder of all ranks, for a while."""
    folder = Path(comm.bcast(tempfile.mkdtemp(dir=within)))
    try:
        yield folder
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


class Race:
    """The same arrays for all: cut by rows when they are saved, by columns when they are loaded."""

    def __init__(self, comm: MPI.Intracomm, folder: Path, n_arrays: int) -> None:
        self.comm, self.folder, self.count = comm, folder, 0
        rng = np.random.default_rng(comm.rank)
        own = SHAPE[0] // comm.size
        self.tiles = {
            f"w{i}": rng.standard_normal((own, SHAPE[1]), dtype=np.float32) for i in range(n_arrays)
        }
        text, mesh = f"f32[{SHAPE[0]}{{x}}, {SHAPE[1]}]", redist.Mesh(x=comm.size)
        self.arrays = {
            name: pgas.asarray(pgas.from_local(tile, text, mesh=mesh)).copy()
            for name, tile in self.tiles.items()
        }
        self.columns = dict.fromkeys(self.tiles, "{}, {x}")
        self.n_bytes = n_arrays * 4 * SHAPE[0] * SHAPE[1]
        self.is_first = comm.rank == 0

    def compare(
        self,
        what: str,
        ways: Ways,
        repeat: int,
        check: Callable[[str, Any], str | None] = lambda name, found: None,
        before: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Times of all ways, one after another, each time again; what they make is checked first."""
        wrong = None
        for name, way in ways.items():
            before()
            wrong = check(name, way()) or wrong
        told = [text for text in self.comm.allgather(wrong) if text]

        def seconds(way: Callable[[], Any]) -> float:
            before()
            return slowest_s(self.comm, way)

        found = {} if told else in_turn(ways, repeat, seconds)
        say(f"store: {what} on {self.comm.size} ranks")
        times = {name: asdict(Times.of(one)) for name, one in found.items()}
        return {"what": what, "times": times, "wrong": told[0] if told else None}

    def clean(self) -> None:
        """All ways make new files."""
        if self.is_first:
            for path in self.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.comm.Barrier()

    # Saving

    def _saves(self) -> Ways:
        ways: Ways = {"redist": self._save, "raw": self._raw_write}
        if not why_absent("torch"):
            ways["PyTorch DCP"] = self._dcp_save
        alone = {"zarr": zarr_save, "h5py": h5_save, "safetensors": safetensors_save}
        here = {library: way for library, way in alone.items() if not why_absent(library)}
        return ways | {library: partial(self._alone, way) for library, way in here.items()}

    def _save(self) -> Path:
        path = self.folder / "ours.safetensors"
        redist.save(path, self.arrays, sync=False)
        return path

    def _raw_write(self) -> Path:
        path = self.folder / "raw"
        if self.is_first:
            file = os.open(path, os.O_CREAT | os.O_RDWR)
            os.posix_fallocate(file, 0, self.n_bytes)
            os.close(file)
        self.comm.Barrier()
        self._raw(os.pwrite, os.O_RDWR)
        return path

    def _raw(self, act: Callable[[int, Any, int], int], mode: int) -> None:
        """Write or read this rank's tiles, each at its place in one file."""
        file = os.open(self.folder / "raw", mode)
        for i, tile in enumerate(self.tiles.values()):
            flat = memoryview(tile.data).cast("B")
            at = (i * self.comm.size + self.comm.rank) * tile.nbytes
            while flat:
                n = act(file, flat, at)
                flat, at = flat[n:], at + n
        os.close(file)
        self.comm.Barrier()

    def _dcp_save(self) -> Path:
        import torch.distributed.checkpoint as dcp

        path = self.folder / "dcp"
        dcp.save(self._dtensors(0, self.tiles), checkpoint_id=str(path))
        self.comm.Barrier()
        return path

    def _dtensors(self, dim: int, tiles: Any) -> Any:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cpu", (self.comm.size,))
        return {
            name: DTensor.from_local(torch.from_numpy(tile), mesh, [Shard(dim)], run_check=False)
            for name, tile in tiles.items()
        }

    def _alone(self, save: Callable[[Path, dict[str, Array]], None]) -> None:
        """What one process does, which has all arrays, while the others wait."""
        if not hasattr(self, "_gathered"):
            found = {name: one.gather() for name, one in self.arrays.items()}
            self._gathered = found if self.is_first else {}
        if self.is_first:
            save(self.folder / "alone", self._gathered)
        self.comm.Barrier()

    def _check_saved(self, name: str, path: Any) -> str | None:
        if name != "redist":
            return None
        self.comm.Barrier()
        found = redist.load(path, dict.fromkeys(self.tiles, "{x}, {}"))
        same = all(np.array_equal(np.asarray(found[key].local), t) for key, t in self.tiles.items())
        return None if same else "other values than were saved"

    # Loading

    def _loads(self, verify: bool = True) -> Ways:
        path = self._save()
        self._raw_write()

        def load() -> Any:
            return redist.load(path, self.columns, verify=verify)

        ways: Ways = {"redist": load, "raw": self._raw_read}
        if not why_absent("torch"):
            self._dcp_save()
            ways["PyTorch DCP"] = self._dcp_load
        return ways

    def _raw_read(self) -> None:
        self._raw(lambda file, flat, at: os.preadv(file, [flat], at), os.O_RDONLY)

    def _dcp_load(self) -> Any:
        import torch.distributed.checkpoint as dcp

        shape = (SHAPE[0], SHAPE[1] // self.comm.size)
        tiles = {name: np.empty(shape, np.float32) for name in self.tiles}
        dcp.load(self._dtensors(1, tiles), checkpoint_id=str(self.folder / "dcp"))
        self.comm.Barrier()
        return tiles

    def _check_loaded(self, name: str, found: Any) -> str | None:
        if found is None:
            return None
        lo = self.comm.rank * (SHAPE[1] // self.comm.size)
        for key, one in self.arrays.items():
            tile = found[key] if isinstance(found[key], np.ndarray) else found[key].local
            whole = one.gather()
            if not np.array_equal(tile, whole[:, lo : lo + tile.shape[1]]):
                return f"{name} loads other values"
        return None

    # In the background

    def stall(self, repeat: int, disk: Path) -> Any:
        """How long a step waits for a save in the background, beside one that it waits for; both synced."""
        saver = redist.Saver(disk / "run", keep=1)
        path = disk / "ours.safetensors"

        def background() -> None:
            self.count += 1
            saver.save(self.arrays, step=self.count)

        ways: Ways = {"redist": background, "redist.save": lambda: redist.save(path, self.arrays)}
        return self.compare("step stalled by a synced save", ways, repeat, before=saver.wait)


def zarr_save(path: Path, arrays: dict[str, Array]) -> None:
    """By zarr: two uncompressed chunks for each array."""
    group = import_module("zarr").open_group(path, mode="w")
    for name, one in arrays.items():
        chunks = SHAPE[0] // 2, SHAPE[1]
        made = group.create_array(name, shape=SHAPE, chunks=chunks, dtype="f4", compressors=None)
        made[:] = one


def h5_save(path: Path, arrays: dict[str, Array]) -> None:
    """By HDF5."""
    with import_module("h5py").File(path, "w") as file:
        for name, one in arrays.items():
            file[name] = one


def safetensors_save(path: Path, arrays: dict[str, Array]) -> None:
    """By safetensors' own package."""
    import_module("safetensors.numpy").save_file(arrays, path)
