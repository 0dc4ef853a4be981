"""Rechunks, and chunks of files as global arrays, under mpirun."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from redist import ReadError, WriteError, pgas
from tests.programs.checks import Job, Run, items, must_hold

HERE = find_spec("zarr") is not None and find_spec("h5py") is not None
FAILURES = Run(
    "store.failures", ("--stores",), "every operation fails, on every rank, in every form"
)
JOBS = [
    *(Job(n, (Run("pgas.rechunking"), Run("pgas.chunk_files"))) for n in (1, 2, 3)),
    Job(2, (Run("store.failures", ("--stores", "--quick")),)),
    *(Job(n, (FAILURES,)) for n in (1, 2)),
]


@pytest.mark.skipif(not HERE, reason="needs zarr and h5py: make store has them")
@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@pytest.mark.skipif(HERE, reason="zarr is installed")
def test_the_errors_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ReadError, match="cannot read Zarr: zarr is not installed; pip install"):
        pgas.read_zarr(tmp_path)
    with pytest.raises(ReadError, match="cannot read HDF5: h5py is not installed; pip install"):
        pgas.read_hdf5(tmp_path / "a.h5", "x")
    with pytest.raises(WriteError, match="cannot write Zarr: zarr is not installed; pip install"):
        pgas.write_zarr(tmp_path / "new", pgas.ones(3))
