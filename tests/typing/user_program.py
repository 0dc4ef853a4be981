"""A user's program: never run, only read by a type checker, as strictly as it can.

Lines that it must refuse have a ``type: ignore``; one that is not needed is an error too.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_type

import redist
from redist import pgas


def program() -> None:
    """What a user may write, and what not."""
    a = pgas.zeros((8, 8), type="{x}, {}", mesh=redist.Mesh(x=2))
    b = pgas.ones((8, 8), dtype=np.float32, device="cpu")
    v = pgas.arange(8)

    assert_type(a, pgas.Array)
    assert_type(pgas.asarray([1, 2], type="{x}"), pgas.Array)
    assert_type(pgas.array([1, 2], float, type="{x}"), pgas.Array)
    assert_type(pgas.from_function(lambda i, j: i + j, (4, 4), dtype=np.int64), pgas.Array)

    # Operators
    assert_type(a + b, pgas.Array)
    assert_type(2 * a - b / 3.0, pgas.Array)
    assert_type(2.0**a, pgas.Array)
    assert_type(a < b, pgas.Array)
    assert_type(a == b, pgas.Array)
    assert_type(-a, pgas.Array)
    assert_type(abs(a), pgas.Array)
    assert_type(a @ b, pgas.Array)
    assert_type(a[1:3, None], pgas.Array)
    a += 1
    a @= b
    a + "text"  # type: ignore[operator]
    a @ 3  # type: ignore[operator]

    # The namespace
    assert_type(pgas.sin(a), pgas.Array)
    assert_type(pgas.add(a, 1), pgas.Array)
    assert_type(pgas.maximum(0.0, a), pgas.Array)
    assert_type(pgas.clip(a, 0, 1), pgas.Array)
    assert_type(pgas.where(a < b, a, 0.0), pgas.Array)
    assert_type(pgas.sum(a, axis=0, keepdims=True), pgas.Array)
    assert_type(pgas.reshape(a, (4, 16)), pgas.Array)
    assert_type(pgas.concat([a, b], axis=1), pgas.Array)
    assert_type(pgas.unstack(a), tuple[pgas.Array, ...])
    assert_type(pgas.astype(a, pgas.float32), pgas.Array)
    assert_type(pgas.sort(a, axis=-1, descending=True), pgas.Array)
    assert_type(pgas.einsum("ij,jk->ik", a, b), pgas.Array)
    assert_type(pgas.ein("ij,j->i", a, v, join=lambda x, y: abs(x - y), agg="max"), pgas.Array)
    assert_type(pgas.linalg.solve(a, v), pgas.Array)
    assert_type(pgas.linalg.qr(a).Q, pgas.Array)
    assert_type(pgas.fft.fft(a, axis=0), pgas.Array)
    assert_type(pgas.fft.fftfreq(8, type="{x}"), pgas.Array)
    assert_type(pgas.random.generator(7).normal((8, 8), type="{x}, {}"), pgas.Array)
    assert_type(pgas.move_together({"a": a}, {"a": "{}, {x}"}), dict[str, pgas.Array])
    pgas.sin("text")  # type: ignore[type-var]
    pgas.zeros((8, 8), typ="{x}, {}")  # type: ignore[call-arg]
    pgas.zeros((8, 8), mesh="x=2")
    pgas.zeros((8, 8), mesh={"x": 2})
    pgas.zeros((8, 8), mesh=4)  # type: ignore[arg-type]

    # Methods
    assert_type(a.to("{}, {x}"), pgas.Array)
    assert_type(a.shape, tuple[int, ...])
    assert_type(a.sum(0, keepdims=True), pgas.Array)
    assert_type(a.std(ddof=1), pgas.Array)
    assert_type(a.reshape(2, -1), pgas.Array)
    assert_type(a.reshape((2, -1)).astype(np.float32).transpose(1, 0), pgas.Array)
    assert_type(a.real, pgas.Array)
    assert_type(a.sort(axis=0), None)
    assert_type(pgas.median(a, axis=0), pgas.Array)
    assert_type(pgas.cov(a, rowvar=False), pgas.Array)
    assert_type(pgas.histogram(a, 5).hist, pgas.Array)
    a.sum(0, nonsense=True)  # type: ignore[call-arg]
    assert_type(float(pgas.mean(a)), float)
    assert_type(a.type, redist.ArrayType)
    with a.epoch() as inside:
        assert_type(inside, pgas.Array)
    with redist.trace() as t:
        a.to("{}, {x}")
    assert_type(t.received_bytes, int)
    with redist.memory_limit("1GiB"):
        pass
    assert_type(redist.explain(lambda: a @ b).seconds, float)
