"""New arrays, and what an array says of itself, against NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.creating --n 20 --seed 0``.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np

from redist import ArrayType, Mesh, RequestError, box_of
from tests.programs.pgas.drawing import Draw, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

DTYPES = ("bool", "i1", "i4", "u8", "f4", "f8", "c8", "c16")


def filled(draw: Draw) -> str | None:
    """Arrays of one value, on any mesh and by default."""
    shape = tuple(draw.size() for _ in range(draw.rng.integers(0, 4)))
    kind = np.dtype(str(draw.rng.choice(DTYPES)))
    where: dict[str, Any] = {"mesh": draw.mesh(), "comm": draw.comm}
    what = f"{shape} of {kind} on {where['mesh']}"
    empty = xp.empty(shape, dtype=kind, **where)
    if (empty.shape, empty.dtype, empty.ndim, empty.size) != (
        shape, kind, len(shape), int(np.prod(shape)),
    ):  # fmt: skip
        return f"empty is {empty.type}"
    if empty.nbytes != empty.size * kind.itemsize or xp.empty_like(empty).type != empty.type:
        return f"{empty.nbytes} bytes of {empty.type}"
    return (
        wrong(xp.zeros(shape, dtype=kind, **where), np.zeros(shape, kind), f"zeros {what}")
        or wrong(xp.ones(shape, dtype=kind, **where), np.ones(shape, kind), f"ones {what}")
        or wrong(xp.full(shape, 7, **where), np.full(shape, 7), f"full {what}")
        or wrong(xp.full(shape, 1.5j, **where), np.full(shape, 1.5j), f"full {what}")
    )


def ranges(draw: Draw) -> str | None:
    """Ranges, lines and diagonals."""
    rng = draw.rng
    start, stop = (int(v) for v in rng.integers(-9, 20, 2))
    step = int(rng.choice([-3, -1, 1, 2, 5]))
    where: dict[str, Any] = {"mesh": draw.mesh(), "comm": draw.comm}
    low, high = (float(v) for v in rng.standard_normal(2) * 9)
    by, n = float(rng.choice([0.1, -0.3, 1.7])), int(rng.integers(0, 12))
    rows, columns, k = draw.size(), draw.size(), int(rng.integers(-4, 5))
    end, kind = bool(rng.integers(2)), str(rng.choice(["i4", "f4", "f8", "c16"]))
    return (
        wrong(xp.arange(start, stop, step, **where), np.arange(start, stop, step), "arange")
        or wrong(xp.arange(2**60, 2**60 + n, **where), np.arange(2**60, 2**60 + n), "large")
        or wrong(xp.arange(low, high, by, **where), np.arange(low, high, by), "arange")
        or wrong(xp.arange(n, dtype=kind, **where), np.arange(n, dtype=kind), "arange")
        or wrong(
            xp.linspace(low, high, n, endpoint=end, dtype=kind, **where),
            np.linspace(low, high, n, endpoint=end, dtype=kind),
            f"linspace {low} {high} {n} {kind}",
        )
        or wrong(xp.eye(rows, columns, k=k, **where), np.eye(rows, columns, k=k), "eye")
        or wrong(
            xp.from_function(lambda i, j: i - 3 * j, (rows, columns), dtype="i8", **where),
            np.fromfunction(lambda i, j: i - 3 * j, (rows, columns), dtype="i8"),
            "from_function",
        )
    )


def given(draw: Draw) -> str | None:
    """Arrays from what ranks have: NumPy's, lists, tiles, other libraries' by DLPack."""
    mesh = draw.mesh()
    values = draw.values(
        tuple(draw.size() for _ in range(draw.rng.integers(0, 4))), str(draw.rng.choice(DTYPES))
    )
    x = draw.array(values, mesh)
    made = xp.from_local(x.local, x.type, comm=draw.comm)
    other = "f8" if values.dtype.kind != "c" else "c16"
    found = (
        wrong(made, values, "from_local")
        or wrong(
            xp.asarray(values.tolist(), dtype=values.dtype, comm=draw.comm),
            np.asarray(values.tolist(), dtype=values.dtype),
            "list",
        )
        or wrong(xp.asarray(x, dtype=other), values.astype(other), f"asarray {x.type}")
        or wrong(xp.asarray(x, copy=True), values, f"copy of {x.type}")
        or wrong(xp.array(x, other), values.astype(other), f"array of {x.type}")
        or wrong(xp.from_dlpack(values.copy()), values, "from_dlpack")
        or wrong(pickle.loads(pickle.dumps(x)), values, f"pickled {x.type}")
        or wrong(copy.deepcopy(x), values, f"deepcopy {x.type}")
    )
    if found or x.local is None:
        return found
    for twin in (x.copy(), copy.copy(x), pickle.loads(pickle.dumps(x)), xp.asarray(x, copy=True)):
        if x.local.size and np.shares_memory(twin.local, x.local):
            return f"a copy of {x.type} shares its tile"
    if made.local is not x.local or xp.asarray(x) is not x or x.to_device("cpu") is not x:
        return f"a needless copy of {x.type}"
    return None


def sent(draw: Draw) -> str | None:
    """What another rank sends is refused if it is a tile, and taken if it is everything."""
    comm = draw.comm
    cut, whole = xp.arange(comm.size, type="{x}"), xp.arange(4, type="{}")
    root = comm.size - 1
    texts = comm.bcast([pickle.dumps(cut), pickle.dumps(whole), pickle.dumps(xp.sum(cut))], root)
    found = wrong(pickle.loads(texts[1]), np.arange(4), "a pickle of everything")
    restore, (*parts, size, owes) = whole.__reduce__()
    found = found or wrong(
        restore(*parts, size + 1, owes), np.arange(4), "everything of more ranks"
    )
    for text in (texts[0], texts[2]):
        try:
            pickle.loads(text)
        except RequestError as error:
            if comm.rank == root or f"what rank {root} of {comm.size} held" not in str(error):
                found = str(error)
        else:
            found = found if comm.rank == root else "loaded another rank's tile"
    return found


def placed(draw: Draw) -> str | None:
    """A mesh may be a dict or text; another thing is refused, and so is a tile of another size."""
    size = draw.comm.size
    made = [xp.ones(5, mesh=m, comm=draw.comm) for m in ({"x": size}, f"x={size}", Mesh(x=size))]
    made.append(xp.array([1.0] * 5, mesh={"x": size}, comm=draw.comm))
    if len({one.type for one in made}) > 1:
        return str([str(one.type) for one in made])
    t = ArrayType.of(Mesh(x=size), "f64", (2 * size + 1,), [["x"]])
    mine = np.array_split(np.ones(2 * size + 1), size)[draw.comm.rank]
    want = box_of(t, draw.comm.rank)
    assert want is not None
    if len(mine) == want[0][1] - want[0][0]:
        return None
    try:
        xp.from_local(mine, t, comm=draw.comm)
    except RequestError as error:
        cuts = "array_split" in str(error) and "redist.box_of(type, rank)" in str(error)
        return None if cuts and f"rank {draw.comm.rank} passed" in str(error) else str(error)
    return "took a tile of another size"


def exported(draw: Draw) -> str | None:
    """The whole for other libraries, without a copy where a rank has it; else by name only."""
    x = xp.ones((7, 5), comm=draw.comm)
    everywhere = xp.ones((7, 5), type="{}, {}", comm=draw.comm)
    if not np.shares_memory(np.from_dlpack(everywhere), everywhere.local):
        return "DLPack copies"
    try:
        given = np.from_dlpack(x)
    except BufferError as error:
        if draw.comm.size == 1 or "a.local" not in str(error):
            return str(error)
    else:
        if draw.comm.size > 1:
            return f"DLPack gives {given.shape}"
    if memoryview(x.local).shape != x.local.shape or x.device != "cpu":
        return "no buffer"
    try:
        np.asarray(x)
    except TypeError as error:
        return None if "a.gather()" in str(error) else str(error)
    return "numpy.asarray gathers"


def everywhere(draw: Draw) -> str | None:
    """The value of an array is known on ranks outside its mesh too."""
    few = Mesh({"x": 1}, ranks=[draw.comm.size - 1])
    x = xp.arange(5, mesh=few, comm=draw.comm)
    if (
        x.gather().tolist() != [0, 1, 2, 3, 4]
        or int(xp.sum(x)) != 10
        or f"{int(xp.sum(x)):03d}" != "010"
    ):
        return "another value"
    if [int(v) for v in x] != [0, 1, 2, 3, 4] or 3 not in x or 7 in x or len(x) != 5:
        return "other elements"
    return None if np.sin(x).type == xp.sin(x).type else "numpy.sin differs"


def shown(draw: Draw) -> str | None:
    """What is printed is local: it may stand on one rank alone, and says what is pending."""
    size = draw.comm.size
    x = xp.ones((2 * size,), type="{x}", comm=draw.comm)
    total = xp.sum(x)
    text, done = str(total), total.settled()
    count, every = xp.count_nonzero(x), xp.all(x)
    parts = str(xp.sum(xp.ones((2 * size, 3), type="{x}, {}", comm=draw.comm), axis=0))
    if round(done, 1).item() != 2 * size or round(done + 0.4) != 2 * size:
        return f"rounded: {round(done + 0.4)}"
    if draw.comm.rank == 0:
        if str(done) != f"{done}" or str(done) != f"{2 * size}.0" or "pgas.Array" not in repr(done):
            return f"{done} and {done!r}"
        for number, call in ((count, "int(a)"), (every, "bool(a)")):
            try:
                said = f"{number:d}"
            except RequestError as error:
                said = str(error)
            if (call in said) != (size > 1):
                return said
        if f"{done:.1f}" != f"{2 * size}.0" or f"{total}" != text:
            return f"{done:.1f} of {text}"
        if size > 1 and text != "<f64[] sum pending: float(a) on every rank>":
            return text
        if size > 1 and str(count) != "<i64[] sum pending: int(a) on every rank>":
            return str(count)
        if size > 1 and not ("the sum over x is pending" in parts and "a.gather()" in parts):
            return parts
        try:
            said = f"{total:.1f}"
        except RequestError as error:
            said = str(error)
        if ("float(a)" in said) != (size > 1):
            return said
    return None if float(total) == 2 * size else "another value"


def several(draw: Draw) -> str | None:
    """Arrays moved as one operation, and back."""
    mesh = draw.meshes[0]
    values = {"a": draw.values((9, 4), "f8"), "b": draw.values((7,), "i4")}
    arrays = {name: draw.array(one, mesh) for name, one in values.items()}
    moved = xp.move_together(arrays, {"a": "{}, {x}", "b": "{x}"})
    if str(moved["a"].type) != str(ArrayType.parse("f64[9, 4{x}]", mesh)):
        return str(moved["a"].type)
    return wrong(moved["a"], values["a"], "together") or wrong(moved["b"], values["b"], "together")


def said(draw: Draw) -> str | None:
    """Dtypes and their limits are NumPy's."""
    x = xp.ones((3,), dtype="f4", comm=draw.comm)
    facts = (
        xp.finfo(x).eps == np.finfo("f4").eps,
        xp.iinfo("i2").max == 2**15 - 1,
        xp.isdtype(x.dtype, "real floating"),
        xp.result_type(x, np.float64) == np.float64,
        not xp.can_cast(x, np.int32),
        x.settled() is x,
        x.__array_namespace__() is xp,
    )
    return None if all(facts) else str(facts)


OFTEN: tuple[Check, ...] = (
    filled,
    ranges,
    given,
    sent,
    placed,
    exported,
    everywhere,
    several,
    said,
)
CHECKS = names_of(OFTEN)


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN, n=10)


if __name__ == "__main__":
    main(program)
