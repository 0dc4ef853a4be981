"""The folder of a rechunk that is not finished: beside the target, and gone when the target has its name.

It has a record of what is written, so that a run that was interrupted goes on; a flag for each unit that is
whole; the store as it grows; scratch files. The target appears by one rename: nobody reads a half of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import WriteError
from redist.runtime.files.disk import lock, take_name
from redist.text.units import format_bytes

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """**Local.** A text that changes when this machine starts anew, and what was not synced may be lost."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return "unknown"


class Unfinished:
    """The folder, as all ranks see it."""

    def __init__(self, target: str) -> None:
        self.target = Path(target)
        final = Path(os.path.realpath(target))
        self.final = final
        self.folder = final.with_name(f".{final.name}.rechunk")
        self.data = self.folder / "data"
        self.new = self.folder / "new"
        self.failed = self.folder / "failed"
        self._record = self.folder / "record.json"
        self._lock = -1

    def begin(self, digest: str, boots: list[str], overwrite: bool) -> bool:
        """**Local**, on rank 0. Make the folder, or find one of the same rechunk: whether it goes on.

        Machines that started anew since may have lost what they had written: then it begins again.
        """
        self._check_target(overwrite)
        try:
            self.folder.mkdir(exist_ok=True)
            self._take_lock()
            known = self._known()
            if known is not None and known.get("digest") != digest and not overwrite:
                raise WriteError(
                    f"cannot rechunk to {str(self.target)!r}: {str(self.folder)!r} has unfinished work of "
                    "another source, other chunks or codecs; finish that, remove the folder, or give "
                    "overwrite=True (--overwrite)"
                )
            same = known is not None and known.get("digest") == digest
            goes_on = same and {*(known or {}).get("boots", ())} <= {*boots}
            if not goes_on:
                self._clear()
                self._write_record({"digest": digest, "boots": sorted({*boots})})
            else:
                self._write_record(
                    {"digest": digest, "boots": sorted({*boots, *(known or {})["boots"]})}
                )
            self.new.mkdir(exist_ok=True)
            self.failed.unlink(missing_ok=True)
        except WriteError:
            self.leave()
            raise
        except OSError as problem:
            self.leave()
            raise self.error(problem) from problem
        return goes_on

    def _check_target(self, overwrite: bool) -> None:
        name = str(self.target)
        if not self.final.parent.is_dir():
            raise WriteError(
                f"cannot rechunk to {name!r}: there is no folder {str(self.final.parent)!r}; make it first"
            )
        if self.final.exists() and not overwrite:
            raise WriteError(
                f"cannot rechunk to {name!r}: it exists; give another name, or overwrite=True (--overwrite)"
            )

    def _take_lock(self) -> None:
        self._lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o666)
        if not lock(self._lock):
            raise WriteError(
                f"cannot rechunk to {str(self.target)!r}: another process writes it now; wait until it ends"
            )

    def _known(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self._record.read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def _write_record(self, record: dict[str, Any]) -> None:
        new = self.folder / "record.new"
        new.write_text(json.dumps(record))
        new.replace(self._record)

    def _clear(self) -> None:
        """**Local.** Remove all but the lock; the record first, so that no half of it is taken for whole."""
        self._record.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    def check_room(self, needed: int) -> None:
        """**Local.** Raise if the disk has not so many bytes left, beside those that are in the folder."""
        state = os.statvfs(self.folder)
        available = state.f_bavail * state.f_frsize
        if needed > available + stored_bytes(self.folder):
            raise WriteError(
                f"cannot rechunk to {str(self.target)!r}: it needs about {format_bytes(needed)}, and "
                f"{format_bytes(available)} are available on the disk; make room, or write elsewhere"
            )

    def scratch(self, number: int, digest: str) -> Path:
        """The scratch file of an array; another way has another one."""
        return self.folder / f"scratch-{number}-{digest[:12]}"

    def flags(self, name: str, n: int) -> Flags:
        """**Local.** Flags of this name; they are off where there were none."""
        return Flags(self.folder / f"done-{name}", n)

    def finish(self, overwrite: bool) -> bool:
        """**Local**, on rank 0, when all is on the disk: give the target its name, and remove the folder.

        What had the name has it until then, and is removed with the folder.
        """
        try:
            self._check_target(overwrite)
            take_name(self.data, self.final, sync=True)
        except WriteError:
            raise
        except OSError as problem:
            raise self.error(problem) from problem
        self._clear()
        (self.folder / "lock").unlink(missing_ok=True)
        self.leave()
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return True

    def discard(self) -> None:
        """**Local**, on rank 0. Remove all that was written."""
        self._clear()

    def leave(self) -> None:
        """**Local.** Let others go on with the folder."""
        file, self._lock = self._lock, -1
        if file >= 0:
            os.close(file)

    def error(self, problem: OSError) -> WriteError:
        """What went wrong, in words."""
        return WriteError(f"cannot rechunk to {str(self.target)!r}: {problem.strerror or problem}")


class Flags:
    """A byte for each of some tasks, in a file that all ranks see: whether it is done."""

    def __init__(self, path: Path, n: int) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        read = os.pread(self._file, n, 0)
        self._done = np.zeros(n, bool)
        self._done[: len(read)] = np.frombuffer(read, np.uint8) != 0
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> bool:
        return bool(self._done[number])

    @property
    def n_done(self) -> int:
        """How many were done when the file was opened, or have been by this rank since."""
        return int(self._done.sum())

    def set(self, number: int) -> None:
        """**Local.** Note that a task is done."""
        os.pwrite(self._file, b"\1", number)
        self._done[number] = True

    def close(self) -> None:
        """**Local.** Close the file."""
        os.close(self._file)


def stored_bytes(path: Path) -> int:
    """**Local.** The bytes of all files at a path.

    >>> stored_bytes(Path("no such file"))
    0
    """
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total
