"""Rechunks in this process, against what was written: all formats, names, groups, mistakes, resumption."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redist
from redist.errors import ArgumentError, NoPlanError, ReadError, RequestError, WriteError
from redist.runtime.files.disk import Disk, use_disk
from redist.store.chunks.checksum import checksum
from tests.store.chunks import measured
from tests.tiers import sample

HERE = find_spec("zarr") is not None and find_spec("h5py") is not None
needs_zarr = pytest.mark.skipif(not HERE, reason="needs zarr and h5py: make store has them")
ROOT = Path(__file__).resolve().parents[3]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Any, Any, Any, Any, Any, str, int]:
    """Kind of source, shape, chunks and shards before and after, dtype, limit."""
    kind = draw(st.sampled_from(["zarr2", "zarr3", "hdf5", "npy"]))
    shape = tuple(
        draw(st.lists(st.integers(0 if kind != "hdf5" else 1, 9), min_size=1, max_size=3))
    )
    chunks = tuple(draw(st.integers(1, max(1, n))) for n in shape)
    new = tuple(draw(st.integers(1, max(1, n))) for n in shape)
    shards = tuple(n * draw(st.integers(1, 3)) for n in chunks) if draw(st.booleans()) else None
    outer = tuple(n * draw(st.integers(1, 3)) for n in new) if draw(st.booleans()) else None
    dtype = draw(st.sampled_from(["f4", "f8", "i2", "u1", "?", "c16"] + [">f4"] * (kind == "npy")))
    return kind, shape, chunks, shards, new, outer, dtype, draw(st.integers(0, 3000))


@needs_zarr
@settings(
    max_examples=sample(40, of=400), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(cases())
def test_random_chunks_hold_the_same_elements(tmp_path: Path, case: Any) -> None:
    import zarr

    kind, shape, chunks, shards, new, outer, dtype, room = case
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    source, target = folder / f"in.{kind}", folder / "out.zarr"
    x = np.random.default_rng(room).integers(0, 200, shape).astype(dtype)
    measured.make(source, kind, x, chunks, shards)
    with pytest.raises(NoPlanError) as caught:
        redist.plan_rechunk(source, target, new, outer, 1)
    least = caught.value.least_bytes
    redist.rechunk(source, target, new, outer, least + room, verify=True, threads=2)
    found = zarr.open_group(target)["x"] if kind == "hdf5" else zarr.open_array(target)
    assert found.metadata.zarr_format == 3
    assert tuple(found.chunks) == new
    assert found.dtype == x.dtype.newbyteorder("=")
    assert np.array_equal(found[...], x)
    assert [one.name for one in folder.iterdir() if "part" in one.name] == []
    back = folder / "back.npy"
    redist.rechunk(target, back)
    assert np.array_equal(np.load(back), x)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_of_numpy_needs_no_zarr(tmp_path: Path, order: Any) -> None:
    x = np.asarray(np.random.default_rng(0).normal(size=(70, 50, 30)), order=order)
    np.save(tmp_path / "in.npy", x)
    done = redist.rechunk(
        tmp_path / "in.npy", tmp_path / "out.npy", verify=True, limit_bytes="64MiB"
    )
    out = np.load(tmp_path / "out.npy")
    assert out.flags.c_contiguous
    assert np.array_equal(out, x)
    assert done.read_bytes == done.written_bytes == x.nbytes
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.npy", "out.npy"]


@pytest.mark.skipif(HERE, reason="zarr is installed")
def test_the_error_says_what_to_install(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros(3))
    with pytest.raises(WriteError, match="pip install 'zarr>=3' h5py"):
        redist.rechunk(tmp_path / "in.npy", tmp_path / "out.zarr", 2)


# Groups, as xarray writes and reads them.


def weather(folder: Path, version: int) -> Any:
    """A dataset with coordinates, attributes, packed integers and missing values, in a store."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    rng = np.random.default_rng(1)
    values = rng.normal(size=(40, 12, 10)).astype("f4")
    values[3] = np.nan
    packed = xarray.Variable(
        ("time", "lat"), rng.normal(size=(40, 12)), {"units": "K"},
        {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9},
    )  # fmt: skip
    made = xarray.Dataset(
        {
            "t2m": (("time", "lat", "lon"), values, {"units": "K"}), "packed": packed,
            "z": ("lat", np.arange(12)),
        },
        {
            "time": np.datetime64("2020-01-01", "ns") + np.arange(40) * np.timedelta64(1, "h"),
            "lat": np.linspace(-5, 5, 12), "lon": np.arange(10.0),
        },
        {"title": "a test"},
    )  # fmt: skip
    path = folder / "in"
    made.chunk({"time": 7}).to_zarr(path, zarr_format=version)
    return made, path


@needs_zarr
@pytest.mark.parametrize("version", [2, 3])
def test_xarray_reads_the_same_dataset(tmp_path: Path, version: int) -> None:
    xarray = pytest.importorskip("xarray")
    import zarr

    _, path = weather(tmp_path, version)
    made = xarray.open_zarr(path).load()
    target = tmp_path / "out.zarr"
    done = redist.rechunk(path, target, {"time": "all", "lat": 5}, limit_bytes="64MiB", verify=True)
    found = xarray.open_zarr(target)
    xarray.testing.assert_identical(found.load(), made)
    for name in ("t2m", "packed", "z", "time"):
        assert dict(found[name].encoding).get("scale_factor") == dict(made[name].encoding).get(
            "scale_factor"
        )
    chunks = {name: one.chunks for name, one in zarr.open_group(target).arrays()}
    assert chunks == {
        "t2m": (40, 5, 10), "packed": (40, 5), "z": (5,), "lat": (5,), "time": (40,), "lon": (10,),
    }  # fmt: skip
    assert [one.name for one in done.plan.arrays if one.copied] == ["lon"]
    assert "copied     lon" in str(done.plan)


@needs_zarr
@pytest.mark.filterwarnings("ignore")  # Zarr 3 has no specification of texts and dates yet
def test_single_numbers_empty_arrays_dates_and_texts_are_copied(tmp_path: Path) -> None:
    import zarr

    made = zarr.create_group(tmp_path / "in")
    made.create_array(
        "x", data=np.arange(20.0).reshape(4, 5), chunks=(1, 5), dimension_names=["t", "y"]
    )
    made.create_array("ref", data=np.array(7))
    made.create_array("none", shape=(0, 5), chunks=(1, 5), dtype="f4")
    made.create_array("words", data=np.array(["a", "bcd"]))
    made.create_array("dates", data=np.arange(3).astype("M8[s]"))
    redist.rechunk(tmp_path / "in", tmp_path / "out", {"t": 4}, verify=True)
    found = zarr.open_group(tmp_path / "out")
    for name, one in made.arrays():
        assert np.array_equal(found[name][...], one[...]), name
    made.create_array("texts", data=np.array(["a", "bcd"], dtype=object).astype("T"))
    with pytest.raises(
        ReadError, match=r"cannot read texts of .*leave_out=\['texts'\] leaves it out"
    ):
        redist.rechunk(tmp_path / "in", tmp_path / "more", {"t": 4})
    redist.rechunk(tmp_path / "in", tmp_path / "more", {"t": 4}, leave_out=["texts"])
    assert "texts" not in zarr.open_group(tmp_path / "more")


@needs_zarr
def test_hdf5_dims_and_attributes_stay(tmp_path: Path) -> None:
    import h5py
    import zarr

    x = np.arange(60.0).reshape(10, 6)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.attrs["title"] = "a test"
        time = file.create_dataset("time", data=np.arange(10))
        time.make_scale("time")
        lon = file.create_dataset("lon", data=np.arange(6))
        lon.make_scale("lon")
        data = file.create_dataset(
            "deep/x", data=x, chunks=(1, 6), compression="gzip", shuffle=True
        )
        data.dims[0].attach_scale(time)
        data.dims[1].attach_scale(lon)
        data.attrs["units"] = "m"
        data.attrs["_FillValue"] = np.array([-1.0])
    redist.rechunk(tmp_path / "in.h5", tmp_path / "out.zarr", {"time": 10, "lon": 2}, verify=True)
    group = zarr.open_group(tmp_path / "out.zarr")
    found = group["deep/x"]
    assert group.attrs["title"] == "a test"
    assert found.metadata.dimension_names == ("time", "lon")
    assert found.attrs["units"] == "m"
    assert "_FillValue" in found.attrs
    assert "DIMENSION_LIST" not in found.attrs
    assert (found.chunks, group["time"].chunks) == ((10, 2), (10,))
    assert np.array_equal(found[...], x)


# Mistakes: one clear error, before a byte moves.


@needs_zarr
@pytest.mark.parametrize(("options", "error", "said"), [
    ({"chunks": {"day": 3}}, ArgumentError, "cannot use chunks for dim 'day'.*it has lat, lon, time"),
    ({"chunks": (3, 3)}, ArgumentError, "it has several arrays .*name the dims"),
    ({"chunks": {"time": 0}}, ArgumentError, "cannot use chunks=0 along dim 'time': need a whole number"),
    ({"chunks": {"time": 2.5}}, ArgumentError, "cannot use chunks=2.5 along dim 'time'"),
    ({"chunks": {"lat": 2}, "shards": {"lat": 5}}, ArgumentError, "shards of 5 along dim 'lat'.*give 4 or 6"),
    ({"chunks": {"lat": 2}, "limit_bytes": "1KiB"}, NoPlanError, "cannot rechunk .* within 1 KiB.*give"),
    ({"chunks": {"lat": 2}, "codec": "zip"}, RequestError, "cannot use codec='zip': need one of zstd"),
    ({"chunks": {"lat": 2}, "leave_out": ["q"]}, ArgumentError, "cannot leave out 'q': .* has lat, lon"),
    ({"chunks": {"lat": 2}, "threads": 0}, RequestError, "cannot use threads=0"),
])  # fmt: skip
def test_a_wrong_request_says_what_is_right(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    pytest.importorskip("xarray")
    _, path = weather(tmp_path, 3)
    with pytest.raises(error, match=said):
        redist.rechunk(path, tmp_path / "out.zarr", **options)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in"]


@needs_zarr
def test_files_that_are_in_the_way_or_missing(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.arange(10))
    (tmp_path / "folder").mkdir()
    (tmp_path / "out.zarr").mkdir()
    source, out = tmp_path / "in.npy", tmp_path / "out.zarr"
    for one, other, error, said in (
        (tmp_path / "none", out, ReadError, "no such file"),
        (tmp_path / "folder", tmp_path / "x", ReadError, "not a Zarr store"),
        (source, out, WriteError, "it exists; give another name, or overwrite=True"),
        (source, tmp_path / "no" / "x", WriteError, "there is no folder"),
        (source, source, RequestError, "one lies in the other"),
    ):
        with pytest.raises(error, match=said):
            redist.rechunk(one, other, 3 if other.suffix != ".npy" else None)
    redist.rechunk(source, out, 3, overwrite=True)
    redist.rechunk(source, out, 4, overwrite=True)
    assert np.array_equal(__import__("zarr").open_array(out)[:], np.arange(10))


@needs_zarr
def test_a_full_disk_is_found_before_a_byte_moves(tmp_path: Path, monkeypatch: Any) -> None:
    np.save(tmp_path / "in.npy", np.zeros(2**16))
    real = os.statvfs(tmp_path)
    fields = list(real)
    fields[4] = 1  # free blocks
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    with pytest.raises(WriteError, match=r"it needs 512 KiB, and the disk has .* left; make room"):
        redist.rechunk(tmp_path / "in.npy", tmp_path / "out.zarr", 2**10, codec="none")
    assert not (tmp_path / "out.zarr").exists()


# Interrupted runs.

SLOW = """
import os, sys, signal
import redist
from redist.store.chunks.run import ArrayRun
name, count = sys.argv[3], int(sys.argv[4])
real = getattr(ArrayRun, name)
left = [count]
def counted(self, *args):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args)
setattr(ArrayRun, name, counted)
redist.rechunk(sys.argv[1], sys.argv[2], (64, 4, 4), limit_bytes=sys.argv[5], threads=1)
"""


TIGHT = 24 * 2**20 + 90_000
"""A limit that is kept by way of a scratch file alone."""


def killed(source: Path, target: Path, name: str, count: int, limit: int) -> None:
    """A run that is killed by the system at the start of a task."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW, str(source), str(target), name, str(count), str(limit)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@needs_zarr
@pytest.mark.parametrize(("name", "count", "limit"), [
    ("_write_unit", 20, 2**30), ("_put", 150, TIGHT), ("_take_and_write", 20, TIGHT),
])  # fmt: skip
def test_a_run_that_was_killed_goes_on(tmp_path: Path, name: str, count: int, limit: int) -> None:
    import zarr

    source, target = tmp_path / "in.zarr", tmp_path / "out.zarr"
    x = np.random.default_rng(0).normal(size=(64, 32, 32)).astype("f4")
    measured.make(source, "zarr3", x, (1, 32, 32), None)
    killed(source, target, name, count, limit)
    folder = tmp_path / ".out.zarr.part"
    assert not target.exists()
    assert folder.exists()
    before = {
        one: one.stat().st_mtime_ns for one in (folder / "data" / "c").rglob("*") if one.is_file()
    }
    assert len(before) == {"_write_unit": 20, "_put": 0, "_take_and_write": 20}[name]
    with pytest.raises(WriteError, match="unfinished work of another source, other chunks"):
        redist.rechunk(source, target, (64, 8, 8))
    whole = redist.rechunk(source, tmp_path / "all.zarr", (64, 4, 4), limit_bytes=limit, threads=1)
    done = redist.rechunk(source, target, (64, 4, 4), limit_bytes=limit, threads=1, verify=True)
    assert done.resumed
    assert done.written_bytes < whole.written_bytes
    after = {one: (target / one.relative_to(folder / "data")).stat().st_mtime_ns for one in before}
    assert after == before  # what was whole is not written again
    assert np.array_equal(zarr.open_array(target)[...], x)
    assert not folder.exists()


@needs_zarr
def test_what_a_machine_that_started_anew_may_have_lost_is_written_again(tmp_path: Path) -> None:
    source, target = tmp_path / "in.zarr", tmp_path / "out.zarr"
    measured.make(source, "zarr3", np.ones((64, 32, 32), "f4"), (1, 32, 32), None)
    killed(source, target, "_write_unit", 5, 2**30)
    record = tmp_path / ".out.zarr.part" / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "boots": ["another"]}))
    assert not redist.rechunk(source, target, (64, 4, 4), verify=True).resumed


@needs_zarr
def test_two_runs_do_not_write_one_target(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((64, 64, 64)))
    program = SLOW.replace("os.kill(os.getpid(), signal.SIGKILL)", "__import__('time').sleep(60)")
    arguments = [str(tmp_path / "in.npy"), str(tmp_path / "out.zarr"), "_write_unit", "3", "1GiB"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as other:  # fmt: skip
        try:
            end = time.monotonic() + 60
            while not (tmp_path / ".out.zarr.part" / "done-0").exists() and time.monotonic() < end:
                time.sleep(0.05)
            with pytest.raises(WriteError, match="another job is writing it"):
                redist.rechunk(tmp_path / "in.npy", tmp_path / "out.zarr", (64, 4, 4))
        finally:
            other.kill()


@needs_zarr
def test_a_damaged_chunk_is_found_by_its_checksum(tmp_path: Path, monkeypatch: Any) -> None:
    from redist.store.chunks.targets import ZarrTarget

    x = np.arange(64.0).reshape(8, 8)
    np.save(tmp_path / "in.npy", x)
    real = ZarrTarget.write
    monkeypatch.setattr(
        ZarrTarget, "write", lambda self, box, values: real(self, box, values[::-1])
    )
    with pytest.raises(WriteError, match=r"has checksum \w+ in the source and \w+ as written"):
        redist.rechunk(tmp_path / "in.npy", tmp_path / "out.zarr", (4, 8), verify=True)
    assert not (tmp_path / "out.zarr").exists()


@settings(max_examples=sample(30, of=300), deadline=None, derandomize=True)
@given(st.integers(0, 2**30))
def test_checksums_add_up_and_see_places(seed: int) -> None:
    rng = Random(seed)
    shape = (rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9))
    x = (
        np.random.default_rng(seed)
        .integers(0, 5, shape)
        .astype(rng.choice(["f4", "i1", "c16", "S3"]))
    )
    whole = checksum(x, tuple((0, n) for n in shape), shape)
    cut = [rng.randint(0, n) for n in shape]
    total = 0
    for corner in np.ndindex(2, 2, 2):
        box = tuple(((0, c), (c, n))[i] for i, c, n in zip(corner, cut, shape, strict=True))
        total += checksum(x[tuple(slice(*one) for one in box)], box, shape)
    assert total % 2**64 == whole
    other = x.copy()
    flat = other.reshape(-1)
    i, j = rng.randrange(x.size), rng.randrange(x.size)
    flat[i], flat[j] = flat[j], flat[i]
    assert (checksum(other, tuple((0, n) for n in shape), shape) == whole) == np.array_equal(
        other, x
    )


@needs_zarr
@pytest.mark.slow("starts a process for each case")
def test_memory_stays_within_the_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.chunks.measured", "0", "20", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 20
    for one in found:
        assert one["peak"] <= one["limit"], one
        assert one["planned_peak"] <= one["limit"], one
        assert one["moved"] <= 1.1 * one["planned"], one


class _NoNames(Disk):
    """A disk that fails when a name is to be given."""

    def rename(self, path: Path, final: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_target_that_is_replaced_has_its_name_until_the_new_one_does(tmp_path: Path) -> None:
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    values = np.arange(24.0).reshape(4, 6)
    np.save(source, values)
    np.save(target, values + 1)
    with use_disk(_NoNames()), pytest.raises(redist.WriteError, match="Input/output error"):
        redist.rechunk(source, target, overwrite=True, limit_bytes="64MiB")
    assert (np.load(target) == values + 1).all()
    redist.rechunk(source, target, overwrite=True, limit_bytes="64MiB")
    assert (np.load(target) == values).all()
