"""What is written in extended Einstein notation: distances, softmax, attention, tensors, convolutions.

As in ``mpirun -n 3 python -m tests.programs.pgas.einstein --n 5 --seed 0``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist import pgas
from tests.programs.pgas.drawing import Draw, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main


def near(got: Any, want: Any, what: str) -> str | None:
    return wrong(got, want, what, scale=50.0)


def k_means(draw: Draw) -> str | None:
    """Squared distances, and the sums of points of each centre."""
    mesh = draw.mesh()
    x, c = draw.values((23, 5), "f8"), draw.values((4, 5), "f8")
    points, centres = draw.array(x, mesh), draw.array(c, mesh)
    far = xp.ein("ik,jk->ij", points, centres, join=lambda a, b: (a - b) ** 2)
    want = ((x[:, None] - c[None]) ** 2).sum(axis=2)
    nearest = want.argmin(axis=1)
    own = xp.astype(
        xp.argmin(far, axis=1)[:, None] == xp.arange(4, mesh=mesh, comm=draw.comm), "f8"
    )
    sums = xp.ein("ij,ik->jk", own, points)
    total = np.stack([x[nearest == j].sum(axis=0) for j in range(4)])
    return near(far, want, "distances") or near(sums, total, "sums of points")


def softmax(draw: Draw) -> str | None:
    """Rows of odds that add up to 1."""
    s = draw.values((9, 14), "f8")
    scores = draw.array(s, draw.mesh())
    top = xp.ein("ij->i", scores, agg="max")
    odds = xp.ein("ij,i->ij", scores, top, join=lambda x, m: xp.exp(x - m))
    out = xp.ein("ij,i->ij", odds, xp.ein("ij->i", odds), join="divide")
    want = np.exp(s - s.max(axis=1, keepdims=True))
    return near(out, want / want.sum(axis=1, keepdims=True), f"softmax of {scores.type}")


def attention(draw: Draw) -> str | None:
    """Queries, keys and values of several heads."""
    mesh = draw.mesh()
    q, k, v = (draw.values(shape, "f8") for shape in ((2, 6, 4), (2, 7, 4), (2, 7, 5)))
    queries, keys, held = (draw.array(x, mesh) for x in (q, k, v))

    def attend(queries: Any, keys: Any, held: Any) -> Any:
        scores = xp.ein("hqd,hkd->hqk", queries, keys)
        top = xp.ein("hqk->hq", scores, agg="max")
        odds = xp.ein("hqk,hq->hqk", scores, top, join=lambda x, m: xp.exp((x - m) / 2.0))
        total = xp.ein("hqk->hq", odds)
        return xp.ein("hqd,hq->hqd", xp.ein("hqk,hkd->hqd", odds, held), total, join="divide")

    scores = np.exp((q @ k.transpose(0, 2, 1)) / 2.0)
    want = (scores / scores.sum(axis=2, keepdims=True)) @ v
    said = near(attend(queries, keys, held), want, "attention")
    captured = pgas.program(attend)
    for _ in range(2):
        said = said or near(captured(queries, keys, held), want, "attention as a program")
    return said


def mttkrp(draw: Draw) -> str | None:
    """A tensor times two matrices, column by column."""
    mesh = draw.mesh()
    t, b, c = (draw.values(shape, "f8") for shape in ((5, 6, 7), (6, 3), (7, 3)))
    out = xp.ein("ijk,jr,kr->ir", *(draw.array(x, mesh) for x in (t, b, c)))
    return near(out, np.einsum("ijk,jr,kr->ir", t, b, c), "MTTKRP")


def convolution(draw: Draw) -> str | None:
    """Weights times shifted copies; and the largest of each window."""
    mesh = draw.mesh()
    x, w = draw.values((20,), "f8"), draw.values((4,), "f8")
    u = draw.array(x, mesh)
    shifted = xp.stack([u[k : k + 17] for k in range(4)])
    out = xp.ein("ki,k->i", shifted, draw.array(w, mesh))
    windows = np.lib.stride_tricks.sliding_window_view(x, 4)
    said = near(out, np.convolve(x, w[::-1], "valid"), "convolution")
    return said or near(xp.ein("ki->i", shifted, agg="max"), windows.max(axis=1), "pooling")


OFTEN: tuple[Check, ...] = (k_means, softmax, attention, mttkrp, convolution)
CHECKS = names_of(OFTEN)


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN)


if __name__ == "__main__":
    main(program)
