"""Where weights come from: global arrays, and ranks that know some of them each.

As in ``mpirun -n 4 python -m tests.programs.store.weights``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, Weights, pgas
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
SIZE, RANK = COMM.size, COMM.rank


def fails_alike(says: str, call: Callable[[], Any]) -> str | None:
    """The same error, which says this, on all ranks."""
    try:
        call()
        text = "nothing"
    except redist.RedistError as problem:
        text = str(problem)
    said = COMM.allgather(text)
    return None if len(set(said)) == 1 and says in text else f"{said} in place of {says!r}"


def of_arrays() -> str | None:
    """Global arrays, tiles with types, and dicts of both say their types."""
    mesh = Mesh(x=SIZE)
    rows = ArrayType.parse(f"bf16[{2 * SIZE}{{x}}, 3]", mesh)
    w = pgas.ones((SIZE, 4), dtype="f4")
    state = {
        "a": {"w": w, 3: (np.zeros((2, 3), "u2"), rows)},
        "norm": (None, ArrayType.parse("f32[7]", mesh)),
    }
    found = Weights.of(state, "norm = ln")
    if [*found.types] != ["a.3", "a.w", "norm"] or found.types["a.3"] != rows:
        return f"{found.types}"
    if found.types["a.w"] != w.type or [*found.named()] != ["a.3", "a.w", "ln"]:
        return f"{found.types}, {found.named()}"
    for given, says in (
        ({"w": np.zeros(3)}, "'w' of ndarray as a weight: it does not say how it lies on ranks"),
        ({"w": {"b": 1}, "w.b": (0, rows)}, "cannot take 'w.b' of int"),
        ({"w": {"b": (0, rows)}, "w.b": (0, rows)}, "two arrays have the name 'w.b'"),
        ([rows], "cannot take weights from list: need a dict"),
        ({"w": (0, "f32[4]")}, "'w' of tuple"),
        ({True: (0, rows)}, "under the name True: need text"),
    ):
        wrong = fails_alike(says, lambda given=given: Weights.of(given))  # type: ignore[misc]
        if wrong:
            return wrong
    return None


def together() -> str | None:
    """Ranks of a pipeline know their own layers; after one call each knows all, and the plan is one."""
    mine = Mesh({"tp": 1}, ranks=[RANK])
    own = Weights({f"layers.{RANK}.w": "bf16[8, 4]"}, mine, names="*.w = *.weight")
    found = own.together()
    if found.stored != tuple(f"layers.{k}.w" for k in range(SIZE)):
        return f"{found.stored}"
    if found.ranks != tuple(range(SIZE)) or own.together(COMM) != found:
        return f"{found.ranks}"
    serve = Weights.declare({"*": "{tp}, {}"}, Mesh(tp=SIZE))
    digests = COMM.allgather(redist.refit(found, serve).digest)
    if len(set(digests)) > 1:
        return f"digests {digests}"
    alike = Weights({"w": "f32[8{x}]"}, Mesh(x=SIZE))
    return None if alike.together() == alike else "weights that all know have changed"


def apart() -> str | None:
    """Ranks that say two things of one name, or have other rules, get one error."""
    if SIZE == 1:
        return None
    last = RANK == SIZE - 1
    types = {"w": "f32[8{x}]" if last else "f32[8]"}
    says = f"'w' is f32[8] on x={SIZE} for rank 0 and f32[8{{x}}] on x={SIZE} for rank {SIZE - 1}"
    wrong = fails_alike(says, lambda: Weights(types, Mesh(x=SIZE)).together())
    own = Weights({"w": "f32[8]"}, Mesh(x=SIZE))
    own = Weights.declare({"*": None}, Mesh(x=SIZE)) if last else own
    says = (
        f"rank {SIZE - 1}: cannot list the tensors of weights that are declared by patterns alone"
    )
    wrong = wrong or fails_alike(says, lambda: own.together())
    rules = ["w = v"] if last else []
    says = f"rank {SIZE - 1} has other rules than rank 0"
    other = Weights({"w": "f32[8]"}, Mesh(x=SIZE), names=rules)
    return wrong or fails_alike(says, lambda: other.together())


PROGRAMS = {"of arrays": of_arrays, "together": together, "apart": apart}
CHECKS = tuple(PROGRAMS)


def program() -> int:
    return run_named(PROGRAMS)


if __name__ == "__main__":
    main(program)
