"""One Lloyd step on a GPU: redist's beside CuPy, PyTorch and JAX by hand, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from redist.learn.kernels.steps import lloyd_step
from redist.spmd import ExactGrid

Step = Callable[[], Any]
"""Does a step and returns labels and new centres once they are there."""


def by_redist(x: Any, centers: Any) -> Step:
    """The step of KMeans: labels by rows, exact sums."""
    import cupy

    n = len(x)
    weights, labels = cupy.ones(n, x.dtype), cupy.full(n, -1, np.int32)
    most = float(abs(x).max())
    grids = ExactGrid.for_sum(most, n), ExactGrid.for_sum(1.0, n)

    def step() -> Any:
        norms = (centers * centers).sum(axis=1)
        _, sums = lloyd_step(x, weights, centers, norms, labels, grids)
        assert sums is not None
        total = sums.sum(axis=1)
        return labels, total[:, :-1] / total[:, -1:]

    return step


def by_cupy(x: Any, centers: Any) -> Step:
    """Distances by a product, labels, sums by a product with what labels say."""
    import cupy

    places, k = cupy.asarray(centers), len(centers)
    rows = 2**21

    def step() -> Any:
        norms, sums = (places * places).sum(axis=1), cupy.zeros_like(places)
        counts, labels = cupy.zeros(k, np.float32), cupy.empty(len(x), np.int32)
        for lo in range(0, len(x), rows):
            part = x[lo : lo + rows]
            found = (norms - 2 * (part @ places.T)).argmin(axis=1)
            labels[lo : lo + rows] = found
            one = (found[:, None] == cupy.arange(k)).astype(x.dtype)
            sums += one.T @ part
            counts += one.sum(axis=0)
        return labels, cupy.asnumpy(sums / counts[:, None])

    return step


def by_torch(x: Any, centers: Any, compiled: bool) -> Step:
    """The same in PyTorch, sums by ``index_add_``; compiled by its compiler if asked."""
    import torch

    rows, places = torch.from_dlpack(x), torch.tensor(centers, device="cuda")

    def plain(rows: Any, places: Any) -> Any:
        far = (places * places).sum(1) - 2 * (rows @ places.T)
        labels = far.argmin(1)
        sums = torch.zeros_like(places).index_add_(0, labels, rows)
        counts = torch.bincount(labels, minlength=len(places))
        return labels, sums / counts[:, None]

    run = torch.compile(plain) if compiled else plain

    def step() -> Any:
        labels, new = run(rows, places)
        return labels, new.cpu().numpy()

    return step


def by_jax(x: Any, centers: Any) -> Step:
    """The same in JAX, compiled, sums by segments."""
    import jax
    import jax.numpy as jnp

    rows, places = jnp.from_dlpack(x), jnp.asarray(centers)

    def plain(rows: Any, places: Any) -> Any:
        far = (places * places).sum(1) - 2 * jnp.dot(rows, places.T, precision="highest")
        labels = far.argmin(1)
        sums = jax.ops.segment_sum(rows, labels, len(centers))
        counts = jax.ops.segment_sum(jnp.ones(len(rows), rows.dtype), labels, len(centers))
        return labels, sums / counts[:, None]

    run = jax.jit(plain)

    def step() -> Any:
        labels, new = run(rows, places)
        return labels, np.asarray(new)

    return step


def ways_of(x: Any, centers: Any) -> dict[str, Step]:
    """All that can be run here, by name."""
    made: dict[str, Step] = {}
    several: dict[str, Callable[[], Step]] = {
        "redist": lambda: by_redist(x, centers),
        "CuPy": lambda: by_cupy(x, centers),
        "PyTorch": lambda: by_torch(x, centers, False),
        "PyTorch, compiled": lambda: by_torch(x, centers, True),
        "JAX": lambda: by_jax(x, centers),
    }
    for name, make in several.items():
        try:
            made[name] = make()
            made[name]()
        except Exception as problem:
            print(f"  {name} cannot: {type(problem).__name__}: {str(problem)[:120]}")
            made.pop(name, None)
    return made


def measure(n: int, d: int, k: int, dtype: Any, repeat: int) -> dict[str, Any]:
    """Milliseconds of each way, turn by turn, and how far their centres are from redist's."""
    import cupy

    rng = np.random.default_rng(0)
    places = rng.uniform(-10, 10, (k, d)).astype(dtype)
    chosen = cupy.asarray(rng.integers(0, k, n))
    noise = cupy.random.default_rng(1).standard_normal((n, d), dtype=dtype)
    x = cupy.asarray(places)[chosen] + noise
    centers = cupy.asnumpy(x[:k])
    ways = ways_of(x, centers)
    want = ways["redist"]()[1]
    apart = {name: float(np.abs(way()[1] - want).max()) for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            cupy.cuda.get_current_stream().synchronize()
            begin = time.perf_counter()
            way()
            times[name].append(1e3 * (time.perf_counter() - begin))
    flat, copied = x.reshape(-1), cupy.empty_like(x).reshape(-1)
    copies = []
    for _ in range(repeat):
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        copied[...] = flat
        cupy.cuda.get_current_stream().synchronize()
        copies.append(1e3 * (time.perf_counter() - begin))
    return {
        "n": n, "d": d, "k": k, "dtype": np.dtype(dtype).name, "ms": times, "apart": apart,
        "copy_ms": copies,
    }  # fmt: skip
