"""What is a view, what is a new array: as docs/how-to/global-arrays.md lists it, eagerly and in programs.

As in ``mpirun -n 2 python -m tests.programs.pgas.aliasing``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import CaptureError, pgas
from redist.pgas.global_array import Array
from tests.programs.pgas.calls import CASES, Operands
from tests.programs.pgas.drawing import Draw, xp
from tests.programs.pgas.programs import REFUSED, arrays_in, unlike_after_updates
from tests.programs.pgas.programs import other_values as differ
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X: Any = pgas
Function = Callable[[Any], Any]

ITSELF: dict[str, Function] = {
    "asarray": lambda a: X.asarray(a),
    "astype": lambda a: X.astype(a, a.dtype, copy=False),
    "to": lambda a: a.to(a.type),
    "settled": lambda a: a.settled(),
    "to_device": lambda a: a.to_device("cpu"),
    "diff": lambda a: X.diff(a, n=0),
}
"""Calls that give the array itself."""
VIEWS: dict[str, Function] = {
    "permute_dims": lambda a: X.permute_dims(a, (1, 0)),
    "matrix_transpose": X.matrix_transpose,
    "T": lambda a: a.T,
    "mT": lambda a: a.mT,
    "moveaxis": lambda a: X.moveaxis(a, 0, 1),
    "expand_dims": lambda a: X.expand_dims(a, axis=0),
    "squeeze": lambda a: X.squeeze(X.expand_dims(a, axis=0), axis=0),
    "reshape": lambda a: X.reshape(a, (a.shape[0], 2, 4)),
    "linalg.matrix_transpose": X.linalg.matrix_transpose,
}
"""Calls that give a view."""
NEW: dict[str, Function] = {
    "real": X.real,
    "imag": X.imag,
    "conj": X.conj,
    "positive": X.positive,
    "round": X.round,
    "unstack": lambda a: X.unstack(a)[0],
    "unstack, axis 1": lambda a: X.unstack(a, axis=1)[0],
    "flip": lambda a: X.flip(a, axis=1),
    "roll": lambda a: X.roll(a, 0, axis=0),
    "repeat": lambda a: X.repeat(a, 1, axis=0),
    "tile": lambda a: X.tile(a, (1, 1)),
    "concat": lambda a: X.concat([a]),
    "stack": lambda a: X.stack([a]),
    "broadcast_to": lambda a: X.broadcast_to(a, a.shape),
    "broadcast_arrays": lambda a: X.broadcast_arrays(a, a),
    "linalg.diagonal": X.linalg.diagonal,
    "einsum": lambda a: X.einsum("ij->ji", a),
    "einsum of itself": lambda a: X.einsum("ij->ij", a),
    "ein": lambda a: X.ein("ij->ji", a),
    "ein, real": lambda a: X.ein("ij->ij", a, join=X.real),
    "sum of no dims": lambda a: X.sum(a, axis=()),
    "max of no dims": lambda a: X.max(X.real(a), axis=()),
    "a[...]": lambda a: a[...],
    "a[:, 1:]": lambda a: a[:, 1:],
    "a[0]": lambda a: a[0],
    "take": lambda a: X.take(a, np.arange(8), axis=1),
    "triu": lambda a: X.triu(a, k=-100),
    "where": lambda a: X.where(X.asarray(True, mesh=a.mesh), a, a),
    "sort": lambda a: X.sort(X.real(a), axis=1),
    "fftshift": lambda a: X.fft.fftshift(a),
    "matrix_power": lambda a: X.linalg.matrix_power(a, 1),
    "map_tiles": lambda a: X.map_tiles(lambda t: t, a),
    "astype, copied": lambda a: X.astype(a, a.dtype),
    "asarray, copied": lambda a: X.asarray(a, copy=True),
    "reshape, copied": lambda a: X.reshape(a, (8, 2, 4), copy=True),
    "copy": lambda a: a.copy(),
}
"""Calls that give a new array, whatever NumPy's of the same name give."""
DEPENDS = {"reshape", "squeeze", "astype"} | {"clip", "diff"}
"""Names of CASES whose arguments say what they give: these are asked above with arguments that do."""


def argument(kind: str = "c16") -> Any:
    values = np.arange(64.0).reshape(8, 8) * (1 + 0.5j if kind == "c16" else 1.0)
    return X.asarray(values.astype(kind), type="{x}, {}")


def relation(a: Any, made: Any) -> str:
    """**Collective.** What a result is to an argument: itself, a view, or new; and known as such."""
    if made is a:
        return "itself"
    shares = COMM.allreduce(
        a.tile is not None and made.tile is not None and np.shares_memory(a.tile, made.tile),
        op=MPI.LOR,
    )
    if not shares:
        return "new"
    known = a.shared_with is not None and a.shared_with is made.shared_with
    return "view" if known else "a view that nobody knows of"


def listed() -> str | None:
    """Every call gives what the list says, eagerly and as a program, planned or not."""
    for want, calls in (("itself", ITSELF), ("view", VIEWS), ("new", NEW)):
        for name, function in calls.items():
            for how, made in (
                ("eagerly", function),
                ("planned", X.program(function)),
                ("as written", X.program(layouts="as written")(function)),
            ):
                for call in range(2):
                    a = argument()
                    got = arrays_in(made(a))
                    said = {relation(a, one) for one in got}
                    apart = {relation(x, y) for x in got for y in got if x is not y}
                    if said != {want} or apart - {"new"}:
                        return f"{name} {how}, call {call}: {said | apart}, not {want}"
    return None


def public() -> str | None:
    """Every other public function gives new arrays; as a program it gives what it gives eagerly."""
    draw = Draw(COMM, 5)
    for name in CASES:
        if name in REFUSED | DEPENDS | set(ITSELF) | set(VIEWS):
            continue
        for _ in range(2):
            values, call = CASES[name](Operands(draw))
            mesh = draw.mesh()
            arrays = [draw.array(x, mesh) if isinstance(x, np.ndarray) else x for x in values]
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    made = arrays_in(call(xp, *arrays))
                except (TypeError, ValueError, OverflowError):
                    continue
            given = [x for x in arrays if isinstance(x, Array)]
            said = {relation(a, x) for a in given for x in made if isinstance(x, Array)}
            in_place = {"itself"} if name.startswith("__") else set()
            if said - {"new"} - in_place:
                return f"{name} of {[x.type for x in given]}: {said}"
    return None


def changed(kind: str) -> Callable[[Function], Function]:
    """What makes a function of one: it changes an argument or a result and looks at the other."""

    def through_result(function: Function) -> Function:
        def run(a: Any) -> Any:
            first = arrays_in(function(a))[0]
            first *= 2.0
            return None

        return run

    def through_argument(function: Function) -> Function:
        def run(a: Any) -> Any:
            first = arrays_in(function(a))[0]
            before = first * 1.0
            a *= 2.0
            return before, first * 1.0

        return run

    def both(function: Function) -> Function:
        def run(a: Any) -> Any:
            y = a @ a
            return y, function(y), function(a), function(y) @ y if y.ndim == 2 else y * 1.0

        return run

    found = {"result": through_result, "argument": through_argument, "both": both}
    return found[kind]


def updated(kind: str) -> str | None:
    """Changes inside programs, and after them, reach what they reach eagerly; or the program is refused."""
    refused = 0
    for name, function in (ITSELF | VIEWS | NEW).items():
        step = changed(kind)(function)
        if kind == "both" and name in ("unstack", "a[0]", "a[:, 1:]", "reshape", "expand_dims",
                                       "broadcast_arrays", "linalg.diagonal", "stack", "unstack, axis 1",
                                       "reshape, copied"):  # fmt: skip
            continue
        for layouts in ("planned", "as written"):
            program = X.program(layouts=layouts)(step)
            for call in range(2):
                mine, theirs = argument(), argument()
                want = step(theirs)
                try:
                    got = program(mine)
                except CaptureError as problem:
                    if "through another" not in str(problem) or name not in VIEWS:
                        return f"{name}, {layouts}: {problem}"
                    refused += 1
                    break
                found = unlike_after_updates(([mine], got), ([theirs], want), differ)
                if found:
                    return f"{name}, {layouts}, call {call}: {found}"
    if kind == "argument" and refused != 2 * len(VIEWS):
        return f"{refused} programs were refused, not {2 * len(VIEWS)}"
    return None


def through_result() -> str | None:
    """A result is changed in the program."""
    return updated("result")


def through_argument() -> str | None:
    """An argument is changed in the program."""
    return updated("argument")


def afterwards() -> str | None:
    """Arguments and results of a program that moves are changed after it."""
    return updated("both")


CHECKS = {
    check.__name__: check
    for check in (listed, public, through_result, through_argument, afterwards)
}


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
