"""Every operation on the disk fails once, on every rank: all ranks raise one error, and nothing is lost.

As in ``mpirun -n 2 python -m tests.programs.store.failures``. With ``kill FOLDER FORM RANK K`` one rank of a
save is killed at its operation ``K``.
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
from redist.runtime.files.disk import Disk, use_disk
from redist.runtime.files.kernels import carry_runs
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
FORMS = ("file", "folder")
CHECKS = (
    *(f"{how} in {form}" for form in FORMS for how in ("EIO", "ENOSPC")),
    "short writes",
    "the next save resumes",
)
KILLED = 9


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked; with ``--quick`` one kind of failure."""
    return ("EIO in file",) if "--quick" in args else CHECKS


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
    options: dict[str, Any] = {"shard_bytes": 100} if form == "folder" else {}
    redist.save(path_of(folder, form), arrays(version), **options)


def path_of(folder: Path, form: str) -> Path:
    return folder / ("w" if form == "folder" else "w.safetensors")


def version_of(path: Path) -> int | None:
    """Which version a checkpoint is, whole; None if there is none."""
    if not COMM.bcast(path.exists()):
        return None
    found = {name: one.gather() for name, one in redist.load(path).items()}
    version = int(found["n"])
    for name, want in values(version).items():
        if not np.array_equal(found[name], want):
            raise AssertionError(f"{name} is not of version {version}: {found[name]}")
    return version


def failing(folder: Path, form: str, how: str) -> str | None:
    """Let every operation of every rank fail, new and overwriting."""
    path = path_of(folder, form)
    for rank, old in itertools.product(range(COMM.size), (None, 1)):
        for at in itertools.count():
            if COMM.rank == 0:
                remove(path)
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
            save(folder, form, 3)
            if version_of(path) != 3:
                return f"operation {at} of rank {rank}: the next save did not work"
            if COMM.bcast(disk.count, rank) <= at:
                break
    return None


def remove(path: Path) -> None:
    if path.is_dir():
        for one in path.iterdir():
            one.unlink()
        path.rmdir()
    path.unlink(missing_ok=True)


def short(folder: Path) -> str | None:
    with use_disk(ShortDisk()):
        save(folder, "file", 5)
    return None if version_of(path_of(folder, "file")) == 5 else "short writes lose something"


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
        for form, how in itertools.product(FORMS, ("EIO", "ENOSPC")):
            if f"{how} in {form}" in asked:
                status |= int(not all_well(COMM, f"{how} in {form}", failing(folder, form, how)))
        for check, work in (("short writes", short), ("the next save resumes", resumes)):
            if check in asked:
                status |= int(not all_well(COMM, check, work(folder)))
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
