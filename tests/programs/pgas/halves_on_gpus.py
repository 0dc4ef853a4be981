"""16-bit floats on a pretended GPU: our kernels in plain C++, and global arrays beside those in memory.

As in ``mpirun -n 2 python -m tests.programs.pgas.halves_on_gpus``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist import pgas
from redist.pgas.elementwise import on_device
from redist.pgas.elementwise.rounded import tile_function
from redist.pgas.elementwise.standard_limits import function_on_tiles
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.stand_ins import pretend
from redist.pgas.ghosts.tape import Tape, taping
from redist.pgas.ghosts.traffic import GhostTraffic
from redist.pgas.kinds import dtype_asked
from redist.pgas.memory import DEVICE
from redist.pgas.programs.passes.casts import RoundedProduct
from redist.pgas.programs.passes.fuse import FusedElements, fuse_elements
from redist.pgas.watch.seam import through, traffic
from redist.runtime.cuda.elements import EXPRESSIONS, ElementStep, run_steps
from redist.runtime.cuda.rows import run_rows
from tests.fakes import numpy_cupy
from tests.programs.pgas.sixteen_bits import shown, ulps_off
from tests.programs.together import main, run_named
from tests.tiers import sample

HALVES = tuple(map(dtype_asked, ("bf16", "float16")))
ALWAYS = ("add", "exp", "maximum", "less", "where")
LOW, HIGH = {"arccos", "arcsin", "arctanh"}, {"arccosh"}


def there(values: Any) -> Any:
    """Values on the pretended GPU."""
    return numpy_cupy.ndarray(np.array(values))


def special(kind: Any, n: int, seed: int) -> Any:
    """Any bits of a dtype: zeros with signs, small and large numbers, infinities, NaN."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**16, n).astype(np.uint16).view(kind)


def chosen() -> list[str]:
    """Functions, each of which is compiled: a few, or all."""
    names = np.random.default_rng(5).permutation(sorted({*EXPRESSIONS} - {*ALWAYS})).tolist()
    return [*ALWAYS, *names[: sample(3, of=len(names))]]


def kernels() -> str | None:
    """Every function, alone, of arrays of many lengths."""
    for kind in HALVES:
        for name in chosen():
            function: Any = function_on_tiles(name)
            n_args = 3 if name == "where" else getattr(function, "nin", 1)
            for n in (1, 7, 8, 9, 333):
                values = [special(kind, n, k) for k in range(n_args)]
                if name in LOW | HIGH:
                    values = [np.linspace(0.1, 0.9, n).astype(kind) + kind.type(name in HIGH)]
                with np.errstate(all="ignore"):
                    if name == "where":
                        values[0] = values[1] > values[2]
                    dtype, rounded = tile_function(function, *(one.dtype for one in values))
                    want = rounded(*values)
                step = ElementStep(name, tuple(range(n_args)), dtype.name)
                got = run_steps([there(one) for one in values], [step]).values
                if dtype.name == "bool":
                    off = int((got != want).sum())
                else:
                    off = max(0, ulps_off(got, want.astype(np.float64)) - 1)
                if off or got.dtype != dtype:
                    return f"{name} of {n} {kind}: {shown(got)} not {shown(want)}"
    return None


def chains() -> str | None:
    """Several steps as one kernel have the bits of one kernel for each; of numbers, f32 and f64 too."""
    rng = np.random.default_rng(0)
    for kind in HALVES:
        x, y = (there(rng.normal(size=(37, 11)).astype(kind)) for _ in range(2))
        steps = [
            ElementStep("multiply", (0, 1), kind.name),
            ElementStep("add", (3, 2), kind.name),
            ElementStep("tanh", (4,), kind.name),
            ElementStep("greater", (5, 0), "bool"),
            ElementStep("where", (6, 5, 1), kind.name),
        ]
        got = run_steps([x, y, 0.37], steps).values
        known: list[Any] = [x, y, 0.37]
        for step in steps:
            inner = ElementStep(step.name, tuple(range(len(step.args))), step.dtype)
            known.append(run_steps([known[k] for k in step.args], [inner]))
        if (got.view("u2") != known[-1].values.view("u2")).any():
            return f"a chain of {kind}: {got} not {known[-1].values}"
        wide = there(rng.normal(size=(37, 11)).astype(np.float32))
        mixed = run_steps([x, wide], [ElementStep("add", (0, 1), "float32")]).values
        if (mixed != x.values.astype(np.float32) + wide.values).any():
            return f"{kind} and f32: {mixed}"
    doubles = there(rng.normal(size=101))
    got = run_steps([doubles], [ElementStep("sqrt", (0,), "float64")]).values
    with np.errstate(invalid="ignore"):
        same = np.array_equal(got, np.sqrt(doubles.values), equal_nan=True)
    if run_steps([doubles, there(np.ones(3))], [ElementStep("add", (0, 1), "float64")]) is not None:
        return "shapes that differ are not refused"
    return None if same else f"f64: {got}"


def stretched() -> str | None:
    """Operands of other shapes, and views, are read where they lie."""
    rng = np.random.default_rng(3)
    wide, narrow = (4, 6, 16), (4, 6, 5)
    for kind in HALVES[: sample(1, of=len(HALVES))]:  # a kernel takes the compiler 0.5 s
        for shape in (wide, narrow)[: sample(1, of=2)]:
            whole = there(rng.normal(size=shape).astype(kind))
            longer = there(rng.normal(size=(*shape[:2], 2 * shape[2])).astype(kind))
            turned = there(rng.normal(size=(shape[1], shape[0], shape[2])).astype(np.float32))
            given = {
                "rows": rng.normal(size=(*shape[:2], 1)).astype(np.float32),
                "columns": rng.normal(size=shape[2:]).astype(kind),
                "middle": rng.normal(size=(shape[0], 1, shape[2])).astype(np.float32),
                "one": rng.normal(size=(1, 1, 1)).astype(kind),
                "first half": longer[..., : shape[2]],
                "last half": longer[..., shape[2] :],
                "turned": turned.transpose(1, 0, 2),
                "backwards": whole[:, ::-1],
                "every other": longer[..., ::2],
            }
            steps = [
                ElementStep("multiply", (0, 1), "float32"),
                ElementStep("add", (2, 0), kind.name),
            ]
            for name, other in given.items():
                y = other if isinstance(other, numpy_cupy.ndarray) else there(other)
                got = run_steps([whole, y], steps)
                want = whole.values.astype(np.float32) * y.values.astype(np.float32)
                want = (want + whole.values.astype(np.float32)).astype(kind)
                if got.shape != shape or (got.values.view("u2") != want.view("u2")).any():
                    return f"{name} of {shape}, {kind}: {shown(got.values)} not {shown(want)}"
    return None


def rows() -> str | None:
    """Rows of what steps make, summed up and searched, of words and of single elements, and of views."""
    rng = np.random.default_rng(6)
    searched = (("sum", np.sum), ("max", np.max), ("min", np.min))
    for kind in HALVES[: sample(1, of=len(HALVES))]:
        for shape in ((3, 5, 64), (2, 3, 301)):
            x = there(rng.normal(size=shape).astype(kind))
            turned = there(rng.normal(size=(shape[1], shape[0], shape[2])).astype(kind))
            column = there(rng.normal(size=(*shape[:2], 1)).astype(np.float32))
            for y in (x, turned.transpose(1, 0, 2), column, x[:, ::-1], turned[:1, :1]):
                steps = [ElementStep("multiply", (0, 1), "float32")]
                made = x.values.astype(np.float32) * y.values.astype(np.float32)
                for op, function in searched[: sample(1, of=len(searched))]:
                    got = run_rows([x, y], steps, op, True)
                    want = function(made, axis=-1, keepdims=True)
                    if got.shape != want.shape or not np.allclose(got.values, want, 1e-5, 1e-5):
                        return f"{op} of {shape}, {kind}: {shown(got.values)} not {shown(want)}"
    one = run_rows(
        [there(np.ones((2, 64), np.float32))], [ElementStep("exp", (0,), "float32")], "sum", False
    )
    return None if one.shape == (2,) and np.allclose(one.values, 64 * np.e) else f"{one.values}"


def arrays() -> str | None:
    """Calls of global arrays: the same to one unit in the last place, and still on the GPU."""
    rng = np.random.default_rng(1)
    for kind in HALVES:
        values = rng.uniform(0.3, 1.7, (12, 10)).astype(kind)
        calls: dict[str, Any] = {
            "chain": lambda a: pgas.exp(a) * 2 + a,
            "row": lambda a: a / pgas.sum(a, axis=1, keepdims=True),
            "sum": lambda a: pgas.sum(a, axis=0),
            "mean": lambda a: pgas.mean(a),
            "max": lambda a: pgas.max(a, axis=0),
            "product": lambda a: a.T @ a,
            "stack": lambda a: pgas.matmul(a.reshape(3, 4, 10), a.reshape(3, 4, 10).mT),
            "einsum": lambda a: pgas.einsum("ij,ij->i", a, a),
            "ein": lambda a: pgas.ein("ij,kj->ik", a, a, join=lambda u, v: abs(u - v), agg="max"),
            "where": lambda a: pgas.where(a > 1, a, 0),
            "truth": lambda a: pgas.maximum(a, a > 1),
            "sort": lambda a: pgas.sort(a, axis=0),
            "index": lambda a: a[2:9, ::3],
            "f32": lambda a: (a + np.float32(1)).astype(a.dtype),
            "program": pgas.program(lambda a: pgas.tanh(a @ a.T) + 1),
        }  # fmt: skip
        for name, call in calls.items():
            here = pgas.asarray(values, type="{x}, {}")
            x = pgas.asarray(values, type="{x}, {}", device="cuda")
            got, want = call(x).settled(), call(here).settled()
            if not got.memory.on_device:
                return f"{name} of {kind} has left the GPU"
            a, b = got.memory.host(got.gather()), want.gather()
            if a.dtype != kind or ulps_off(a, b.astype(np.float64)) > 1:
                return f"{name} of {kind}: {a} not {b}"
    return large_f32(rng) or stored()


def large_f32(rng: np.random.Generator) -> str | None:
    """Large arrays of f32 are added and divided in wide words, with the same bits."""
    a, b, row = (rng.normal(size=n).astype("f4") for n in ((6, 8), (6, 8), 8))
    x, y, z = (pgas.asarray(one, device="cuda") for one in (a, b, row))
    sizes: list[int] = []

    def counted(leaves: Any, steps: Any) -> Any:
        sizes.append(max(np.size(one) for one in leaves))
        return run_steps(leaves, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_device, "LEAST_IN_WORDS", 8)
        patch.setattr(on_device, "run_steps", counted)
        made = ((x / y, a / b), (x + z, a + row), (2 - x, 2 - a))
    if len(sizes) != len(made):
        return f"f32: kernels of {sizes} elements"
    for number, (got, want) in enumerate(made):
        if (DEVICE.host(got.gather()).view("u4") != want.view("u4")).any():
            return f"f32, {number}: {shown(DEVICE.host(got.gather()))} not {shown(want)}"
    return None


def stored() -> str | None:
    """8-bit floats are moved, cut and converted on the GPU."""
    x = pgas.asarray(np.arange(12.0), dtype="f8e4m3fn", type="{x}", device="cuda")
    back = x[3:].to("{}").astype("bf16")
    if not back.memory.on_device or back.tolist() != list(range(3, 12)):
        return f"8 bits: {back}"
    return None if x.to_device("cpu").tolist() == list(range(12)) else "8 bits on the host"


def fused() -> str | None:
    """In a program, a chain is one task, and has the bits that it has outside."""
    rng = np.random.default_rng(2)

    def chain(a: Any, b: Any) -> Any:
        c = pgas.exp(a * b) * 0.5 + a
        return pgas.where(c > 1, c, b), pgas.sum(c, axis=0)

    for kind in HALVES:
        a, b = (
            pgas.asarray(
                rng.uniform(0.3, 1.7, (12, 40)).astype(kind), type="{x}, {}", device="cuda"
            )
            for _ in range(2)
        )
        program = pgas.program(chain)
        for _ in range(2):
            for got, want in zip(program(a, b), chain(a, b), strict=True):
                one, other = (x.memory.host(x.gather()) for x in (got, want))
                if one.dtype != kind or (one.view("u2") != other.view("u2")).any():
                    return f"{kind}: {shown(one)} not {shown(other)}"
        before = [task.function for task in _tasks(chain, a, b)]
        together = [one for one in before if isinstance(one, FusedElements)]
        if [len(one.steps) for one in together] != [4, 2]:
            return f"{kind}: {[len(one.steps) for one in together]} steps together, of {before}"
    return None


def products() -> str | None:
    """In a program, a product of 16-bit floats and its cast are one task; norms read each operand once."""
    rng = np.random.default_rng(4)

    def layer(x: Any, gain: Any, w: Any) -> Any:
        wide = pgas.astype(x, "f4")
        wide = wide / pgas.sqrt(pgas.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)
        return pgas.maximum((pgas.astype(wide, x.dtype) * gain) @ w, 0)

    for kind in HALVES:
        x, gain, w = (
            pgas.asarray(rng.uniform(0.3, 1.7, sides).astype(kind), type=cuts, device="cuda")
            for sides, cuts in (((4, 3, 96), "{x}, {}, {}"), ((96,), "{}"), ((96, 8), "{}, {}"))
        )
        program = pgas.program(layer)
        want = DEVICE.host(layer(x, gain, w).gather())
        for _ in range(2):
            got = DEVICE.host(program(x, gain, w).gather())
            if ulps_off(got, want.astype(np.float64)) > 1:
                return f"{kind}: {shown(got)} not {shown(want)}"
        functions = [one.function for one in _tasks(layer, x, gain, w)]
        names = [type(one).__name__ for one in functions]
        if names.count("RoundedProduct") != 1 or names.count("FusedRows") != 1 or "Cast" in names:
            return f"{kind}: {names}"
        if taken := sum(one.work_bytes for one in functions if type(one) is RoundedProduct):
            return f"{kind}: a product is said to take {taken} bytes beside its result"
    return None


def tiles() -> str | None:
    """Functions of tiles get CuPy's arrays of 16-bit floats, of several sizes, and so do their gradients."""
    rng = np.random.default_rng(8)

    def scaled(x: Any, y: Any) -> Any:
        return there(
            (x.values.astype("f4") * y.values.astype("f4").repeat(2, axis=1)).astype(x.dtype)
        )

    def slopes(g: Any, x: Any, y: Any) -> Any:
        g, x, y = (one.values.astype("f4") for one in (g, x, y))
        dy = (g * x).reshape(len(x), -1, 2).sum(axis=2)
        return there((g * y.repeat(2, axis=1)).astype(kind)), there(dy.astype(kind))

    def loss(x: Any, y: Any) -> Any:
        made = pgas.map_tiles(scaled, x, y, whole=1, room="1MiB", gradient=slopes)
        return pgas.sum(pgas.astype(made, "f4"))

    for kind in HALVES:
        a, b = (rng.uniform(0.5, 2, (5, n)).astype(kind) for n in (6, 3))
        x, y = pgas.asarray(a, type="{x}, {}", device="cuda"), pgas.asarray(b, device="cuda")
        both: Any = pgas.grad(loss, (0, 1))
        exact = a.astype("f8").reshape(5, 3, 2).sum(axis=2)
        for way in (both, pgas.program(both), pgas.program(limit="64MiB", spill="host")(both)):
            dx, dy = (DEVICE.host(one.gather()) for one in way(x, y))
            if not np.array_equal(dx, b.repeat(2, axis=1)) or ulps_off(dy, exact) > 1:
                return f"{kind}: {shown(dx)}, {shown(dy)} not {exact}"
    return None


def _tasks(function: Any, *arrays: Any) -> list[Any]:
    """The tasks of a function that have been fused."""
    tape = Tape()
    with taping(tape), through(GhostTraffic(traffic(), tape)):
        ghosts = ghosts_for(True)
        given = []
        for x in arrays:
            tile: Any = ghosts.ghost_kind(pretend(x.tile.shape, x.dtype), tape)
            given.append(pgas.Array(x.type, x.comm, tile, ghosts))
        made = function(*given)
    kept = [x.tile.number for x in (made if isinstance(made, tuple) else (made,))]
    return fuse_elements(tape.tasks, kept, tape.roots, tape.shapes, tape.dtypes)


CHECKS = ("kernels", "chains", "stretched", "rows", "arrays", "fused", "products", "tiles")


def program() -> int:
    """0 if every check holds."""
    numpy_cupy.install()
    return run_named({name: globals()[name] for name in CHECKS})


if __name__ == "__main__":
    main(program)
