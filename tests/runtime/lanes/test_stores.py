"""Stores keep bytes of any size and alignment; a file has no name, and says clearly what it lacks."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.errors import SpillError
from redist.runtime.lanes.spill_file import BLOCK_BYTES, BUFFER_BYTES, SpillFile, empty_aligned
from redist.runtime.lanes.stores import MemoryStore, bytes_of
from redist.runtime.shm.first_fit import FirstFit
from tests.tiers import sample

SIZES = (0, 1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5, BUFFER_BYTES + 7)


def test_ranges_never_overlap_and_join_again() -> None:
    rng = random.Random(1)
    for _ in range(sample(10, of=500)):
        ranges = FirstFit(16, rng.choice((None, 640)))
        lent: dict[int, int] = {}
        for _ in range(100):
            if lent and rng.random() < 0.45:
                start = rng.choice(list(lent))
                ranges.give(start, lent.pop(start))
                continue
            n_bytes = rng.randint(0, 80)
            found = ranges.take(n_bytes)
            if found is None:
                continue
            size = ranges.rounded(n_bytes)
            for other, n in lent.items():
                assert found + size <= other or other + ranges.rounded(n) <= found
            lent[found] = n_bytes
        for start, n_bytes in lent.items():
            ranges.give(start, n_bytes)
        whole = ranges.end_bytes
        assert not whole or ranges.take(whole) == 0  # one hole


@pytest.mark.parametrize("kind", ["direct", "buffered", "cached", "memory"])
def test_what_is_written_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "buffered":  # a file system without direct I/O
        monkeypatch.setattr(os, "O_DIRECT", 0)
    store: Any = MemoryStore() if kind == "memory" else SpillFile(tmp_path, cached=kind == "cached")
    if kind in ("buffered", "cached"):
        assert not store.is_direct
    rng = np.random.default_rng(0)
    kept = []
    for size in SIZES:
        for shift in (0, 1):
            data = empty_aligned((size + shift,), np.dtype(np.uint8))[shift:]
            data[:] = rng.integers(0, 256, size)
            space = store.take(size + 3)
            store.write(space, data)
            kept.append((space, data))
    for space, data in kept:
        for shift in (0, 1):
            out = empty_aligned((data.nbytes + shift,), np.dtype(np.uint8))[shift:]
            out[:] = 0
            store.read(space, out)
            assert out.tobytes() == data.tobytes()
    assert not list(tmp_path.iterdir())
    store.close()
    store.close()


def test_a_system_without_nameless_files_leaves_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    store = SpillFile(tmp_path)
    assert not list(tmp_path.iterdir())
    space = store.take(10)
    store.write(space, np.arange(10, dtype=np.uint8))
    out = np.zeros(10, np.uint8)
    store.read(space, out)
    assert out.tolist() == list(range(10))
    store.close()


def test_the_system_may_take_and_give_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = os.pwritev, os.preadv
    rng = random.Random(2)

    def some(call: Any) -> Any:
        def part(file: int, buffers: Any, offset: int) -> int:
            n_bytes = min(buffers[0].nbytes, BLOCK_BYTES * rng.randint(1, 3))
            done = call(file, [buffers[0][:n_bytes]], offset)
            return int(done) - (rng.randrange(BLOCK_BYTES) if done > BLOCK_BYTES else 0)

        return part

    store = SpillFile(tmp_path)
    data = np.random.default_rng(1).integers(0, 256, 20 * BLOCK_BYTES + 17, dtype=np.uint8)
    space, out = store.take(data.nbytes), np.zeros_like(data)
    monkeypatch.setattr(os, "pwritev", some(write))
    store.write(space, data)
    monkeypatch.setattr(os, "preadv", some(read))
    store.read(space, out)
    assert (out == data).all()
    store.close()


def test_a_full_disk_is_told_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpillFile(tmp_path)
    store.reserve(10_000)
    little = SimpleNamespace(f_bavail=5, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda file: little)
    with pytest.raises(
        SpillError, match=r"needs 1012 KiB \(\d+ bytes\), 20 KiB \(20480 bytes\) are"
    ):
        store.reserve(2**20)
    monkeypatch.undo()

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SpillError, match="make room, give another folder"):
        store.reserve(2**20)

    def too_large(*args: Any) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "posix_fallocate", too_large)
    with pytest.raises(SpillError, match=r"File too large \(EFBIG\); raise .*\(ulimit -f\)"):
        store.reserve(2**20)
    store.close()


def test_what_fails_in_the_middle_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpillFile(tmp_path)
    space, data = store.take(9), np.zeros(9, np.uint8)
    store.write(space, data)

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(SpillError, match=r"cannot write 9 B of a spill file in .*No space left"):
        store.write(space, data)
    monkeypatch.setattr(os, "preadv", lambda *args: 0)
    with pytest.raises(SpillError, match=r"cannot read .* of a spill file: it ends after 0 B"):
        store.read(space, data)
    with pytest.raises(SpillError, match="give another folder"):
        SpillFile(tmp_path / "nowhere")
    with pytest.raises(SpillError, match="there are gaps in it"):
        bytes_of(np.zeros((3, 4))[:, :2])
    store.close()
