"""Arrays larger than memory: eager ones that are put away and come back, weights that pass through programs.

As in ``mpirun -n 3 python -m tests.programs.pgas.spilling``.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.memory import BUFFERS
from redist.pgas.spill.memory_limit import put_away, stored_tile
from redist.pgas.spill.spill_store import store_for
from redist.text import progress as progress_text
from tests.programs.pgas.limited import SLACK, high_water, planned_within
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X: Any = pgas
FOLDER = tempfile.mkdtemp()
SIDE = 384


def weights(n: int) -> list[Any]:
    draw = X.random.generator(5)
    return [draw.normal((SIDE, SIDE), type="{x}, {}") * 0.05 for _ in range(n)]


def layers(x: Any, several: list[Any]) -> Any:
    for w in several:
        x = X.tanh(x @ w) + x
    return x, X.sum(x, axis=0)


def eager_arrays() -> str | None:
    """Eager arrays that do not fit together give the same bits, within the limit, after the block too."""
    x, several = weights(1)[0], weights(8)
    want = [one.tile.tobytes() for one in layers(x, several)]
    limit = BUFFERS.live_bytes // 2 + 2 * SIDE * SIDE * 8  # products are whole on every rank
    with redist.memory_limit(limit, spill=FOLDER), high_water() as most:
        got = layers(x, several)
        away = sum(stored_tile(one) is not None for one in several)
        if not away:
            return "nothing was put away"
        if most[0] > limit:
            return f"{most[0]} bytes held, limit {limit}"
    if [one.tile.tobytes() for one in got] != want:
        return "other bits"
    values = [one.gather() for one in several]  # they come back without a limit, too
    fresh = [one.gather() for one in weights(8)]
    same = all(np.array_equal(a, b) for a, b in zip(values, fresh, strict=True))
    return None if same else "weights came back otherwise"


def strides() -> str | None:
    """Tiles come back as they lay: C, Fortran, permuted; small, shared and viewed ones stay."""
    store = store_for(FOLDER)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        shape = (8, 12, 16)
        values = np.arange(np.prod(shape)).reshape([shape[dim] for dim in order])
        tile = values.transpose(np.argsort(order)).astype("f4", copy=True)
        a = X.zeros(shape, dtype="f4", type="{}, {}, {}")
        a.tile = tile.copy(order="K")
        before = a.tile.strides
        put_away(a, store)
        if stored_tile(a) is None or a.type.shape != shape:
            return "not put away"
        if (
            a.tile.strides != before
            or not np.array_equal(a.tile, tile)
            or type(a) is not pgas.Array
        ):
            return f"{order}: {a.tile.strides}, not {before}"
    return None


def stays() -> str | None:
    """What somebody else holds does not leave memory; what somebody held once may."""
    a, b, c, once = (X.ones((SIDE, SIDE)) for _ in range(4))
    view, own, looked = b.T, c.tile, a.local
    assert once.T is not None and once.local is not None
    with redist.memory_limit(BUFFERS.live_bytes, spill=FOLDER):
        looked[...] = 2.0
        try:
            made = [X.zeros((SIDE, SIDE)) for _ in range(3)]
        except redist.MemoryLimitError:
            made = []
    kept = [stored_tile(one) is None for one in (a, b, view, c)]
    if stored_tile(once) is None:
        return "an array that nobody looks at any more stayed"
    return None if all(kept) and own is not None else f"put away: {kept}, {len(made)}"


def tightly(function: Any, x: Any, several: list[Any], spill: str) -> tuple[Any, int]:
    """**Collective.** A program within the least limit of its error and two weights more; the limit."""
    small: Any = X.program(layouts="as written", limit=1, spill=spill)(function)
    try:
        small(x, several)
    except redist.NoPlanError as error:
        limit = error.least_bytes + 2 * several[0].type.tile_bytes
        return X.program(layouts="as written", limit=limit, spill=spill)(function), limit
    raise AssertionError("a limit of one byte is kept")


def streaming() -> str | None:
    """Weights that are put away stream through a program, call after call, and stay where they are."""
    x, several = weights(1)[0], weights(8)
    want = [one.gather() for one in layers(x, several)]
    step, limit = tightly(layers, x, several, FOLDER)
    certificate = step.plan(x, several).certificate
    if certificate.verdict != "proved" or certificate.scope != "every order":
        return f"{certificate}"
    for _ in range(3):
        with high_water() as most:
            got = step(x, several)
        if most[0] > limit + limit // 100 + SLACK:
            return f"{most[0]} bytes held, limit {limit}"
        if not all(np.array_equal(a.gather(), b) for a, b in zip(got, want, strict=True)):
            return "other values"
        del got
    (program,) = planned_within(step)
    assert program.fitted is not None
    noted = step.timeline(x, several)
    lanes = {one.lane for one in noted.ranks[COMM.rank]}
    if not {"compute", "moves", "load"} - {"moves" * (COMM.size == 1)} <= lanes:
        return f"lanes {lanes}"
    if not np.array_equal(noted.result[0].gather(), want[0]) or "load" not in str(noted):
        return f"timeline {noted}"
    waited_s = noted.waited_s(COMM.rank)
    if not 0 <= waited_s <= noted.seconds or "for memory" not in str(noted):
        return f"waited {waited_s} s of {noted.seconds}: {noted}"
    if "lost waiting for memory" not in str(step.explain(x, several)):
        return f"{step.explain(x, several)}"
    curve = [n_bytes for _, n_bytes in noted.memory[COMM.rank]]
    if not 0 < max(curve) <= (noted.limit_bytes or 0) or min(curve) < 0:
        return f"memory from {min(curve)} to {max(curve)}, limit {noted.limit_bytes}"
    del noted
    away = [stored_tile(one) is not None for one in several]
    loads = program.fitted.graph.moved_bytes["load"]
    return None if any(away) and loads else f"{away}, {loads} bytes loaded"


def staying() -> str | None:
    """What leaves is needed later than what stays; inputs that are new in every call make no new plan."""
    x, several = weights(1)[0], weights(12)
    want = [one.gather() for one in layers(x, several)]
    _, limit = tightly(layers, x, several, FOLDER)
    limit += 5 * several[0].type.tile_bytes
    step: Any = X.program(layouts="as written", limit=limit, spill=FOLDER)(layers)
    plans = []
    for _ in range(4):
        got = step(x, several)
        if not all(np.array_equal(a.gather(), b) for a, b in zip(got, want, strict=True)):
            return "other values"
        del got
        (program,) = planned_within(step)
        plans.append(program.fitted)
        x = weights(1)[0]
    if plans[-1] is not plans[-2]:
        return "a new input makes a new plan in every call"
    away = [stored_tile(one) is not None for one in several]
    if True not in away or away != sorted(away):
        return f"away {away}"
    names = {(one.name, one.admits) for one in COMM.allgather(program.policy)}
    if len(names) != 1 or not names <= {("longest path", True), ("synchronous", False)}:
        return f"ranks run by {names}"
    return None


def progress() -> str | None:
    """Rank 0 says how far a run has come, where that takes long; nobody else does."""
    x, several = weights(1)[0], weights(2)
    step: Any = X.program(limit="1GiB", progress=True)(layers)
    said, line_s, unasked_s = io.StringIO(), progress_text.LINE_S, progress_text.UNASKED_S
    progress_text.LINE_S = 0.0
    try:
        with contextlib.redirect_stderr(said):
            step(x, several)
        progress_text.LINE_S, progress_text.UNASKED_S = line_s, 1e-6
        silent = io.StringIO()
        with contextlib.redirect_stderr(silent):
            X.program(limit="1GiB")(layers)(x, several)
    finally:
        progress_text.LINE_S, progress_text.UNASKED_S = line_s, unasked_s
    lines = {line.rpartition(" for ")[0] for line in silent.getvalue().splitlines()}
    if lines != (
        {"the planner of layers within 1 GiB a rank has been running"} if COMM.rank == 0 else set()
    ):
        return f"while it plans, {silent.getvalue()!r} is said"
    good = ("layers" in said.getvalue()) == (COMM.rank == 0)
    try:
        X.program(layers).timeline(x, several)
    except redist.RequestError as error:
        return None if good and "it has no limit" in str(error) else f"{said.getvalue()}, {error}"
    return "a timeline without a limit"


def contexts() -> str | None:
    """Programs inside ``memory_limit`` take limit and folder from it; what is not planned runs as it is."""
    x, several = weights(1)[0], weights(4)
    want = [one.gather() for one in layers(x, several)]
    step: Any = X.program(layouts="as written")(layers)
    with redist.memory_limit(BUFFERS.live_bytes + 2**22, spill=FOLDER):
        got = step(x, several)
    if not planned_within(step):
        return "not planned"
    if not all(np.array_equal(a.gather(), b) for a, b in zip(got, want, strict=True)):
        return "other values"
    inv: Any = X.program(limit="64MiB")(lambda a: X.linalg.inv(a))
    good = np.allclose(inv(x).gather() @ x.gather(), np.eye(SIDE), atol=1e-6)
    if not good or not planned_within(inv):
        return f"inverse: {inv.explain(x)}"
    odd: Any = X.program(limit="64MiB")(lambda a, b: a @ b)
    said = str(odd.explain(x, x.T))
    good = np.allclose(odd(x, x.T).gather(), x.gather() @ x.gather().T)
    return None if good and "runs as it is under the limit" in said else said[-300:]


def no_disk() -> str | None:
    """A folder that is not there is the same error on all ranks, and arguments are as they were."""
    x, several = weights(1)[0], weights(4)
    values = [one.gather() for one in several]
    try:
        step: Any = X.program(limit=BUFFERS.live_bytes - 2**16, spill=f"{FOLDER}/nowhere")(layers)
        step(x, several)
    except redist.RedistError as error:
        said = COMM.allgather("cannot spill to" in str(error))
        same = all(np.array_equal(a.gather(), b) for a, b in zip(several, values, strict=True))
        return None if all(said) and same else f"{error}"
    return "no error"


def files() -> str | None:
    """Nothing is left behind."""
    left = os.listdir(FOLDER)
    if not left:
        os.rmdir(FOLDER)
    return f"{left}" if left else None


CHECKS = {
    check.__name__: check
    for check in (
        eager_arrays,
        strides,
        stays,
        streaming,
        staying,
        progress,
        contexts,
        no_disk,
        files,
    )
}


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
