"""Losses of power: whatever was not synced may be missing, and the old or the new one is there, whole.

A disk records what is asked of it. A crash after any number of operations is played on a model of a file
system: writes that no later sync of their file covers are dropped in every combination, and names given since
the last sync of their folder may be the old ones.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist
from redist import pgas
from redist.runtime.files.disk import Disk, use_disk

Record = tuple[str, Any, Any, Any]


class RecordingDisk(Disk):
    """Does what is asked, and keeps a record of it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._paths: dict[tuple[int, int], Path] = {}

    def _path(self, file: int) -> str:
        return str(Path(f"/proc/self/fd/{file}").resolve())

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.records.append(("folder", str(path), None, None))

    def create(self, path: Path, mode: int, again: bool) -> int:
        file = super().create(path, mode, again)
        self.records.append(("create", str(path), None, None))
        return file

    def allocate(self, file: int, n_bytes: int) -> None:
        super().allocate(file, n_bytes)
        self.records.append(("allocate", self._path(file), n_bytes, None))

    def carry(
        self, kind: int, file: int, array: Any, offset: int, steps: Any, checked: Any
    ) -> None:
        super().carry(kind, file, array, offset, steps, checked)
        begun = len(self.records)
        for index in np.ndindex(array.shape):
            at = offset + sum(i * step for i, step in zip(index, steps, strict=True))
            data = np.asarray(array[index]).tobytes()
            last = self.records[-1]
            if len(self.records) > begun and last[2] + len(last[3]) == at:
                self.records[-1] = (*last[:3], last[3] + data)
            else:
                self.records.append(("write", self._path(file), at, data))

    def sync(self, file: int) -> None:
        super().sync(file)
        self.records.append(("sync", self._path(file), None, None))

    def rename(self, path: Path, final: Path) -> None:
        super().rename(path, final)
        self.records.append(("rename", str(path), str(final), None))

    def exchange(self, path: Path, final: Path) -> None:
        super().exchange(path, final)
        self.records.append(("exchange", str(path), str(final), None))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.records.append(("remove", str(path), None, None))

    def remove_folder(self, path: Path) -> None:
        super().remove_folder(path)
        self.records.append(("remove", str(path), None, None))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.records.append(("sync_folder", str(path), None, None))

    def sync_all(self, path: Path) -> None:
        super().sync_all(path)
        self.records.append(("sync_all", str(path), None, None))


Names = dict[str, bytearray | None]


@dataclass
class Model:
    """Names and the bytes of their files, None of folders: on the disk, and as programs saw them."""

    names: Names = field(default_factory=dict)
    seen: Names = field(default_factory=dict)

    def do(self, record: Record, drop: bool, lost: bool) -> None:
        """Do it; ``drop`` a write, or have a name ``lost`` on the disk."""
        kind, path, a, b = record
        if kind in ("folder", "create"):
            if path not in self.seen:
                self.names[path] = self.seen[path] = None if kind == "folder" else bytearray()
        elif kind == "allocate":
            file = self.seen[path]
            assert file is not None
            del file[a:]
            file.extend(bytes(a - len(file)))
        elif kind == "write" and not drop:
            file = self.seen[path]
            assert file is not None
            file.extend(bytes(max(0, a + len(b) - len(file))))
            file[a : a + len(b)] = b
        elif kind in ("rename", "exchange", "remove"):
            self.seen = renamed(self.seen, path, a, kind == "exchange")
            if not lost:
                self.names = renamed(self.names, path, a, kind == "exchange")

    def key(self) -> str:
        """A text that is the same for equal states."""
        return repr(sorted((name, data and bytes(data)) for name, data in self.names.items()))

    def write(self, root: Path, real: Path) -> None:
        shutil.rmtree(real, ignore_errors=True)
        real.mkdir()
        for name, data in sorted(self.names.items()):
            place = real / Path(name).relative_to(root)
            if data is None:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)


def renamed(names: Names, path: str, final: str | None, both: bool) -> Names:
    """Names after one was given to another's file or folder, or removed: ``final`` is None."""

    def new(name: str) -> str | None:
        for one, other in ((path, final), (final, path if both else None)):
            if one is not None and (name == one or name.startswith(f"{one}/")):
                return None if other is None else other + name[len(one) :]
        return name

    return {there: data for name, data in names.items() if (there := new(name)) is not None}


OLD, NEW = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) + 10


def arrays(values: Any) -> dict[str, Any]:
    return {
        "w": pgas.asarray(values),
        "t": pgas.asarray(values.T.copy() + 1),
        "n": pgas.asarray(values[0]),
    }


def write(folder: Path, name: str, values: Any) -> None:
    """Save a checkpoint, or rechunk to a store or a file from one that lies beside the folder."""
    if name.startswith("w"):
        redist.save(folder / name, arrays(values), shard_bytes=60 if name == "w" else None)
        return
    source = folder.parent / f"{int(values[0, 0])}.npy"
    if not source.exists():
        np.save(source, np.asfortranarray(values))
    chunks = None if name.endswith(".npy") else (2, 2)
    redist.rechunk(source, folder / name, chunks, codec="none", overwrite=True, threads=1)


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("name", [
    "w.safetensors", "w", "chunks.npy",
    pytest.param("chunks.zarr", marks=pytest.mark.skipif(
        find_spec("zarr") is None, reason="needs zarr: make store has it")),
])  # fmt: skip
def test_a_loss_of_power_leaves_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: Any, name: str, overwrite: bool
) -> None:
    root, after = tmp_path / "disk", tmp_path / "after"
    root.mkdir()
    disk = RecordingDisk()
    with use_disk(disk):
        if overwrite:
            write(root, name, OLD)
        first = len(disk.records)
        write(root, name, NEW)
    monkeypatch.setattr("redist.runtime.files.new_file.boot_id", lambda: "another")
    tried: set[str] = set()
    seen = set()
    for k in range(first, len(disk.records) + 1):
        for model in states(disk.records[:k], first):
            if model.key() in tried:
                continue
            tried.add(model.key())
            model.write(root, after)
            seen.add(outcome(after / name, overwrite))
            if len(tried) % 16 == 1:  # whatever is left, the next call works
                write(after, name, NEW)
                assert outcome(after / name, overwrite) == "new"
    assert seen == {"old" if overwrite else "nothing", "new"}
    assert len(tried) > 10


def states(records: list[Record], first: int) -> Any:
    """Every state that a loss of power can leave after these operations."""
    synced = {i for i, record in enumerate(records) if record[0] != "write"}
    for i, record in enumerate(records):
        if record[0] == "write":
            later = records[i + 1 :]
            if i < first or any(
                one[0] == "sync_all" or (one[0] == "sync" and one[1] == record[1]) for one in later
            ):
                synced.add(i)
    loose = [i for i in range(len(records)) if i not in synced]
    names = [i for i, record in enumerate(records) if record[0] in ("rename", "exchange", "remove")]
    folder = max((i for i, r in enumerate(records) if r[0].startswith("sync_")), default=-1)
    unsure = [i for i in names if i > max(folder, first - 1)]
    for dropped in itertools.product((False, True), repeat=min(6, len(loose))):
        gone = {i for i, drop in zip(loose, dropped, strict=False) if drop}
        for cut in range(len(unsure) + 1):  # names are given in order
            lost = {*unsure[cut:]}
            model = Model()
            for i, record in enumerate(records):
                model.do(record, i in gone, i in lost)
            yield model


def rows_of(path: Path) -> Any:
    import zarr

    return zarr.open_array(path, mode="r")[...]


def outcome(path: Path, overwrite: bool) -> str:
    if not path.exists():
        assert not overwrite, "the old checkpoint is lost"
        return "nothing"
    if not path.name.startswith("w"):
        rows = np.load(path) if path.suffix == ".npy" else rows_of(path)
        return next(said for said, want in (("old", OLD), ("new", NEW)) if (rows == want).all())
    found = redist.load(path)
    values = {name: one.gather() for name, one in found.items()}
    for said, want in (("old", OLD), ("new", NEW)):
        if all(np.array_equal(values[key], one.gather()) for key, one in arrays(want).items()):
            return said
    raise AssertionError(f"a mixture: {values}")
