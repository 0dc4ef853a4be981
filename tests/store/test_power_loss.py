"""Losses of power: whatever had not been synced may be missing, and the old or the new checkpoint is whole.

A disk records what is asked of it. A crash after any number of operations is played on a model of a file
system: writes that no later sync of their file covers are dropped in every combination, and names given since
the last sync of their folder may be the old ones.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
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


@dataclass
class Model:
    """Names and what they stand for: bytes of a file, or a folder (None)."""

    names: dict[str, bytearray | None] = field(default_factory=dict)

    def do(self, record: Record, drop: bool) -> None:
        kind, path, a, b = record
        if kind == "folder":
            self.names[path] = None
        elif kind == "create":
            self.names.setdefault(path, bytearray())
        elif kind == "allocate":
            file = self.names[path]
            assert file is not None
            del file[a:]
            file.extend(bytes(a - len(file)))
        elif kind == "write" and not drop:
            file = self.names[path]
            assert file is not None
            file.extend(bytes(max(0, a + len(b) - len(file))))
            file[a : a + len(b)] = b
        elif kind in ("rename", "exchange"):
            self._rename(path, a, kind == "exchange")
        elif kind == "remove":
            self.names.pop(path, None)

    def _rename(self, path: str, final: str, both: bool) -> None:
        def renamed(name: str) -> str | None:
            for one, other in ((path, final), (final, path if both else None)):
                if name == one or name.startswith(f"{one}/"):
                    return None if other is None else other + name[len(one) :]
            return name

        old, self.names = self.names, {}
        for name, value in old.items():
            new = renamed(name)
            if new is not None:
                self.names[new] = value

    def write(self, root: Path, real: Path) -> None:
        shutil.rmtree(real, ignore_errors=True)
        real.mkdir()
        for name, data in sorted(self.names.items()):
            place = real / Path(name).relative_to(root)
            if data is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(data)


OLD, NEW = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) + 10


def arrays(values: Any) -> dict[str, Any]:
    return {
        "w": pgas.asarray(values),
        "t": pgas.asarray(values.T.copy() + 1),
        "n": pgas.asarray(values[0]),
    }


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("name", ["w.safetensors", "w"], ids=["file", "folder"])
def test_a_loss_of_power_leaves_the_old_or_the_new_one(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    shard: dict[str, Any] = {"shard_bytes": 60} if name == "w" else {}
    disk = RecordingDisk()
    with use_disk(disk):
        if overwrite:
            redist.save(root / name, arrays(OLD), **shard)
        first = len(disk.records)
        redist.save(root / name, arrays(NEW), **shard)
    tried, seen = 0, set()
    for k in range(first, len(disk.records) + 1):
        for model in states(disk.records[:k], first):
            model.write(root, tmp_path / "after")
            seen.add(outcome(tmp_path / "after" / name, overwrite))
            tried += 1
    assert seen == {"old" if overwrite else "nothing", "new"}
    assert tried > 20


def states(records: list[Record], first: int) -> Any:
    """Every state that a loss of power can leave after these operations."""
    synced = {i for i, record in enumerate(records) if record[0] != "write"}
    for i, record in enumerate(records):
        if record[0] == "write":
            later = records[i + 1 :]
            if any(one[0] == "sync" and one[1] == record[1] for one in later) or i < first:
                synced.add(i)
    loose = [i for i in range(len(records)) if i not in synced]
    names = [i for i, record in enumerate(records) if record[0] in ("rename", "exchange", "remove")]
    folder = max((i for i, r in enumerate(records) if r[0] == "sync_folder"), default=-1)
    unsure = [i for i in names if i > max(folder, first - 1)]
    for dropped in itertools.product((False, True), repeat=min(6, len(loose))):
        gone = {i for i, drop in zip(loose, dropped, strict=False) if drop}
        for cut in range(len(unsure) + 1):  # names are given in order
            lost = {*unsure[cut:]}
            model = Model()
            for i, record in enumerate(records):
                if i not in lost:
                    model.do(record, i in gone)
            yield model


def outcome(path: Path, overwrite: bool) -> str:
    if not path.exists():
        assert not overwrite, "the old checkpoint is lost"
        return "nothing"
    found = redist.load(path)
    values = {name: one.gather() for name, one in found.items()}
    for said, want in (("old", OLD), ("new", NEW)):
        if all(np.array_equal(values[key], one.gather()) for key, one in arrays(want).items()):
            return said
    raise AssertionError(f"a mixture: {values}")
