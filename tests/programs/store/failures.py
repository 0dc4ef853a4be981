"""Every operation on the disk fails once, on every rank: all ranks raise one error, and nothing is lost.

As in ``mpirun -n 2 python -m tests.programs.store.failures``: checkpoints and a rechunk to a file of NumPy;
with ``--stores`` rechunks to Zarr stores and ``write_zarr``, which need zarr.
With ``kill FOLDER FORM RANK K`` one rank is killed at its operation ``K``.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import WriteError, pgas
from redist.runtime.files.disk import Disk, remove_tree, use_disk
from redist.runtime.files.kernels import carry_runs
from tests.programs.together import all_well, main, watch
from tests.tiers import FULL

COMM = MPI.COMM_WORLD
FORMS = ("file", "folder", "npy")
"""A checkpoint as a file and as a folder, a rechunk to a file of NumPy."""
STORES = ("direct", "scratch", "array")
"""Rechunks to a Zarr store, directly and through a scratch file; a global array in a Zarr store."""
RESUMED = ("npy", "direct", "scratch")
"""What goes on with the work of an earlier call if that was the same."""
KILLED = 9


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked; with ``--quick`` one kind of failure."""
    forms = STORES if "--stores" in args else FORMS
    if "--quick" in args:
        return tuple(f"EIO in {form}" for form in forms if form != "folder")
    return (
        *(f"{how} in {form}" for form in forms for how in ("EIO", "ENOSPC")),
        *(f"short writes in {form}" for form in forms),
        *(() if "--stores" in args else ("the next save resumes",)),
    )


class FaultyDisk(Disk):
    """Fails at one operation of one rank; ``at`` counts from 0."""

    def __init__(self, rank: int, at: int, how: str) -> None:
        self.count, self._rank, self._at, self._how = 0, rank, at, how

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name == "count":
            return found

        def called(*args: Any, **options: Any) -> Any:
            now, self.count = self.count, self.count + 1
            if COMM.rank == self._rank and now == self._at:
                if self._how == "kill":
                    os._exit(KILLED)
                code = getattr(errno, self._how)
                raise OSError(code, os.strerror(code))
            return found(*args, **options)

        return called


class ShortDisk(Disk):
    """The system takes three bytes at a time."""

    def carry(
        self, kind: int, file: int, array: Any, offset: int, steps: Any, checked: Any
    ) -> None:
        carry_runs(kind, file, array, offset, steps, checked, most=3)


def values(version: int) -> dict[str, Any]:
    base = np.arange(12.0).reshape(4, 3) + 100 * version
    return {"rows": base, "columns": base.T + 1, "same": base[0] + 2, "n": np.float64(version)}


def arrays(version: int) -> dict[str, Any]:
    types = {"rows": "{x}, {}", "columns": "{}, {x}", "same": "{}", "n": ""}
    return {name: pgas.asarray(one, type=types[name]) for name, one in values(version).items()}


def save(folder: Path, form: str, version: int) -> None:
    """Write a version, whatever is there."""
    path = path_of(folder, form)
    match form:
        case "file":
            redist.save(path, arrays(version))
        case "folder":
            redist.save(path, arrays(version), shard_bytes=100)
        case "array":
            pgas.write_zarr(path, arrays(version)["rows"], chunks=(2, 2))
        case "npy":
            redist.rechunk(source(folder, form, version), path, overwrite=True, threads=1)
        case _:
            given = source(folder, form, version)
            limit = least_bytes(given, path) if form == "scratch" else 2**30
            redist.rechunk(given, path, (4, 1), limit_bytes=limit, overwrite=True, threads=1)


def source(folder: Path, form: str, version: int) -> Path:
    """What a version is rechunked from, made once."""
    rows = values(version)["rows"]
    path = folder / f"{form}-{version}"
    if COMM.rank == 0 and not path.exists():
        if form == "npy":
            with path.open("wb") as file:
                np.save(file, np.asfortranarray(rows))
        else:
            import zarr

            zarr.create_array(path, shape=rows.shape, chunks=(1, 3), dtype=rows.dtype)[...] = rows
    COMM.Barrier()
    return path


def least_bytes(given: Path, path: Path) -> int:
    """The limit that a scratch file alone keeps."""
    try:
        redist.plan_rechunk(given, path, (4, 1), limit_bytes=1, threads=1)
    except redist.NoPlanError as error:
        assert error.least_bytes is not None
        return error.least_bytes
    raise AssertionError("a plan for one byte")


def path_of(folder: Path, form: str) -> Path:
    ends = {"file": ".safetensors", "folder": "", "npy": ".npy"}
    return folder / f"w{ends.get(form, '.zarr')}"


def version_of(path: Path) -> int | None:
    """Which version a checkpoint is, whole; None if there is none."""
    if not COMM.bcast(path.exists()):
        return None
    if path.suffix in (".npy", ".zarr"):
        rows = COMM.bcast(rows_in(path) if COMM.rank == 0 else None)
        version = int(rows[0, 0]) // 100
        if not np.array_equal(rows, values(version)["rows"]):
            raise AssertionError(f"{path.name} is not of version {version}: {rows}")
        return version
    found = {name: one.gather() for name, one in redist.load(path).items()}
    version = int(found["n"])
    for name, want in values(version).items():
        if not np.array_equal(found[name], want):
            raise AssertionError(f"{name} is not of version {version}: {found[name]}")
    return version


def rows_in(path: Path) -> Any:
    """The elements of a file of NumPy or a Zarr store, read by their own libraries."""
    if path.suffix == ".npy":
        return np.load(path)
    import zarr

    return zarr.open_array(path, mode="r")[...]


def next_version(form: str, at: int) -> int:
    """What is written after a failure: the same again where that goes on with the work, or something else."""
    return 2 if form in RESUMED and at % 2 else 3


def failing(folder: Path, form: str, how: str, every: int) -> str | None:
    """Let every operation of every rank fail, or every third, new and overwriting."""
    path = path_of(folder, form)
    for rank, old in itertools.product(range(COMM.size), (None, 1)):
        for at in itertools.count(0, every):
            if COMM.rank == 0:
                remove_tree(path)
                remove_tree(path.with_name(f".{path.name}.part"))
            COMM.Barrier()
            if old is not None:
                save(folder, form, old)
            disk = FaultyDisk(rank, at, how)
            said = None
            with use_disk(disk):
                try:
                    save(folder, form, 2)
                except WriteError as error:
                    said = str(error)
            told = COMM.allgather(said)
            if len(set(told)) > 1:
                return f"operation {at} of rank {rank}: ranks say {told}"
            now = version_of(path)
            if now not in (old, 2) or (said is None and now != 2):
                return f"operation {at} of rank {rank}: {old} became {now}, and all say {said}"
            after = next_version(form, at)
            save(folder, form, after)
            if version_of(path) != after:
                return f"operation {at} of rank {rank}: the next save did not work"
            left = COMM.bcast([one.name for one in folder.iterdir() if one.name.startswith(".")])
            if left and form != "array":  # whose folder has a name of its own each time
                return f"operation {at} of rank {rank}: {left} stay"
            if COMM.bcast(disk.count, rank) <= at:
                break
    return None


def short(folder: Path, form: str) -> str | None:
    with use_disk(ShortDisk()):
        save(folder, form, 5)
    return None if version_of(path_of(folder, form)) == 5 else "short writes lose something"


def resumes(folder: Path) -> str | None:
    """What a failed save wrote stays, for the next one to go on."""
    path = folder / "b.safetensors"
    with use_disk(FaultyDisk(COMM.size - 1, 0 if COMM.size > 1 else 5, "EIO")):
        try:
            redist.save(path, arrays(8))
            return "the save did not fail"
        except WriteError:
            pass
    if not COMM.bcast((folder / ".b.safetensors.part").exists()):
        return "nothing was kept"
    redist.save(path, arrays(8))
    if COMM.bcast((folder / ".b.safetensors.part").exists()):
        return "something is left"
    return None if version_of(path) == 8 else "resumed to something else"


def program() -> int:
    if sys.argv[1:2] == ["kill"]:
        place, form, rank, at = sys.argv[2:6]
        with use_disk(FaultyDisk(int(rank), int(at), "kill")):
            save(Path(place), form, 2)
        return 0
    status = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(COMM.bcast(name))
        asked = checks_on(COMM.size, sys.argv)
        for check in asked:
            watch()  # each has as long as a program: there are hundreds of saves in one
            how, _, form = check.rpartition(" in ")
            if check == "the next save resumes":
                wrong = resumes(folder)
            elif how == "short writes":
                wrong = short(folder, form)
            else:
                every = 1 if FULL or form == "file" else 2 if "--stores" in sys.argv else 1
                if "--quick" in sys.argv and form != "file":
                    every = 3
                wrong = failing(folder, form, how, every)
            status |= int(not all_well(COMM, check, wrong))
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
