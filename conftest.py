"""What pytest looks at: what needs another framework only where that is installed."""

from __future__ import annotations

from importlib.util import find_spec

PLACES = {
    "jax": ("redist/jax/*", "tests/programs/jax/*"),
    "torch": (
        *("redist/torch/*", "tests/programs/torch/*", "bench/pytorch/job.py"),
        *("bench/refits/torch_job.py", "bench/refits/gpu_job.py"),
        "tests/launchers/test_torchrun.py",
    ),
    "ray": (
        *("tests/launchers/test_ray.py", "tests/programs/joined/on_ray.py"),
        "tests/foreign/test_ray_objects.py",
    ),
    "dask": ("tests/foreign/test_dask_arrays.py",),
    "distributed": ("tests/launchers/test_dask.py", "tests/programs/joined/on_dask.py"),
    "IPython": ("tests/launchers/test_notebook.py",),
    "yaml": ("tests/launchers/test_kubernetes.py",),
    "zarr": ("redist/pgas/files/zarr_store.py",),
    "sklearn": ("redist/learn/*", "tests/programs/learn/*", "bench/clustering/*"),
}

collect_ignore_glob = [
    place for name, places in PLACES.items() if find_spec(name) is None for place in places
]
