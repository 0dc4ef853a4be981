"""Gradients of random functions against differences of NumPy's values: on every layout, and as programs.

As in ``mpirun -n 3 python -m tests.programs.pgas.gradients --n 100 --seed 0``. With ``--beside FILE`` also
against JAX, which has written the file before (``tests.programs.jax.gradients``): no rank needs JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from examples import train_mlp, transformer
from redist import ArrayType, Mesh, RedistError, pgas
from tests.problems.smooth_programs import SmoothProgram, draw_program, slope_along
from tests.programs.pgas.drawing import Draw, Values, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main
from tests.tiers import sample

NEAR = 1e-6
"""Relative error against differences."""
SAME = 1e-11
"""Relative error of a program against the function itself: sums are made in another order."""
SAME_AS_JAX = 1e-12
"""Error against JAX, relative to the largest element of a gradient, or to 1."""
AGAIN = 10
"""Of so many programs one is run twice."""
SMOOTH: list[int] = []
"""Of the functions so far: whether differences were precise enough to compare with."""


def smooth(draw: Draw) -> str | None:
    """A random function, which one says its number: eager, then as a program, planned or as written."""
    number = len(SMOOTH)
    program = draw_program(np.random.default_rng(number))
    mesh = draw.mesh()
    arrays = [draw.array(x, mesh) for x in program.arguments]
    numbers = tuple(range(len(arrays)))

    def loss(*given: Any) -> Any:
        return program(xp, *given)

    both = xp.value_and_grad(loss, argnums=numbers)
    value, slopes = both(*arrays)
    found = [g.gather() for g in slopes]
    wrong = (
        _beside_differences(draw, program, float(value), found)
        or _beside_jax(draw, number, found)
        or _as_program(both, arrays, float(value), found, number)
    )
    what = f"{number}: {program} of {', '.join(str(x.type) for x in arrays)}"
    return f"{what}: {wrong}" if wrong else None


def _beside_differences(
    draw: Draw, program: SmoothProgram, value: float, found: list[Values]
) -> str | None:
    """What is wrong with a value and gradients, by differences along a way."""
    ways = [draw.rng.standard_normal(x.shape) for x in program.arguments]
    with np.errstate(all="ignore"):
        want, doubt = slope_along(lambda *given: program(np, *given), program.arguments, ways)
        straight = float(program(np, *program.arguments))
    if abs(value - straight) > 1e-9 * max(1, abs(value)):
        return f"{value}, not {straight}"
    slope = float(sum(np.vdot(g, way).real for g, way in zip(found, ways, strict=True)))
    sizes = (np.linalg.norm(g) * np.linalg.norm(w) for g, w in zip(found, ways, strict=True))
    size = max(1e-3, *map(float, sizes))
    SMOOTH.append(int(doubt <= 0.1 * NEAR * size))
    if SMOOTH[-1] and abs(slope - want) > NEAR * size:
        return f"{slope}, not {want} ({doubt})"
    return None


def _beside_jax(draw: Draw, number: int, found: list[Values]) -> str | None:
    """What is wrong with gradients, by those that JAX found, if it has been asked.

    In 17 of 500 programs JAX has NaN or infinity for some elements, as behind a root of 0 that nothing else
    needs. Ours are numbers there, which differences have confirmed.
    """
    for k, g in enumerate(found if draw.beside else ()):
        want = draw.beside[f"{number}.{k}"]
        known = np.isfinite(want)
        size = max(1.0, np.abs(want[known]).max(initial=0))
        far = np.abs(g - want)[known].max(initial=0) / size
        if not far <= SAME_AS_JAX or not np.isfinite(g).all():
            return f"argument {k}: {g}, not {want} as in JAX: {far}"
    return None


def _as_program(
    both: Any, arrays: list[Any], value: float, found: list[Values], number: int
) -> str | None:
    """What is wrong with a program: it is planned if its number is even, else as written."""
    layouts = ("planned", "as written")[number % 2]
    step = xp.program(layouts=layouts)(both)
    for _ in range(1 if number % AGAIN else 2):
        again, slopes = step(*arrays)
        for one, g, x in zip(slopes, found, arrays, strict=True):
            if (one.shape, one.dtype) != (x.shape, x.dtype):
                return f"{layouts}: {one.type}"
            most = max(1.0, float(np.abs(g).max(initial=0)))
            if np.abs(one.gather() - g).max(initial=0) > SAME * most:
                return f"{layouts}: {one.gather()}, not {g}"
        if abs(float(again) - value) > SAME * max(1.0, abs(value)):
            return f"{layouts}: value {float(again)}, not {value}"
    return None


def most_are_smooth(draw: Draw) -> str | None:
    """Differences could be compared for nine of ten."""
    if len(SMOOTH) >= 10 and sum(SMOOTH) < 0.9 * len(SMOOTH):
        return f"only {sum(SMOOTH)} of {len(SMOOTH)}"
    return None


# What is promised beside that.


def _refusal(function: Callable[[], Any]) -> str:
    try:
        function()
    except RedistError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing is wrong"


def refusals(draw: Draw) -> str | None:
    """What cannot be differentiated says so, with the line."""
    x = xp.asarray(np.arange(6.0).reshape(2, 3))

    def updates(x: Any) -> Any:
        x = x * 2
        x += 1
        return xp.sum(x)

    def puts(x: Any) -> Any:
        y = x * 1.0
        y[0] = 0.0
        return xp.sum(y)

    def opens(x: Any) -> Any:
        y = x * 1.0
        with y.epoch():
            pass
        return xp.sum(y)

    def reaches(x: Any) -> Any:
        y = x * 1.0
        z = xp.sum(y * y)
        y.local[...] = 0
        return z

    wanted: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: xp.grad(updates)(x),
            "GradientError: cannot change an array in place (gradients.py:",
        ),
        (lambda: xp.grad(puts)(x), "GradientError: cannot change an array in place (gradients.py:"),
        (
            lambda: xp.grad(opens)(x),
            "GradientError: cannot change an array in place (gradients.py:",
        ),
        (
            lambda: xp.grad(lambda x: x)(x),
            "ArgumentError: cannot differentiate <lambda>: it gives f64[",
        ),
        (
            lambda: xp.grad(lambda x: 1.0)(x),
            "ArgumentTypeError: cannot differentiate <lambda>: it gives a float",
        ),
        (
            lambda: xp.grad(lambda x: xp.sum(x) * 1j)(x),
            "ArgumentError: cannot differentiate <lambda>: it gives c128",
        ),
        (
            lambda: xp.grad(xp.sum)(3.0),
            "ArgumentTypeError: cannot differentiate sum by argument 0: a float has",
        ),
        (
            lambda: xp.grad(xp.sum, 1)(x),
            "ArgumentError: cannot differentiate sum by argument 1: 1 were given",
        ),
        (
            lambda: xp.grad(xp.sum)(xp.asarray([1, 2])),
            "ArgumentTypeError: cannot differentiate sum by argument 0: i64",
        ),
        (lambda: xp.grad(3), "ArgumentTypeError: cannot differentiate an int: need a function"),
        (lambda: xp.grad(xp.sum, "0"), "ArgumentTypeError: cannot differentiate by argnums='0'"),
        (
            lambda: xp.grad(xp.sum, has_aux=True)(x),
            "ArgumentTypeError: cannot differentiate sum with has_aux",
        ),
    ]
    if draw.comm.size == 1:
        wanted.append(
            (lambda: xp.grad(reaches)(x), "GradientError: cannot differentiate multiply (gradients")
        )
    for call, want in wanted:
        said = _refusal(call)
        if not said.startswith(want):
            return f"{said}, not {want}"
    step = xp.program(updates)
    said = _refusal(lambda: step.grad()(x))
    return None if said.startswith("GradientError: cannot change") else said


def examples(draw: Draw) -> str | None:
    """The MLP as by hand; layers of the transformer as by differences."""
    x, y, *weights = train_mlp.values(24, (6, 8, 8, 3), "f8")
    want = train_mlp.gradients(np, x, y, *weights)

    rows = [xp.asarray(one, type="{x}, {}") for one in (x, y)]
    given = [*rows, *map(xp.asarray, weights)]
    for form in (xp.grad(train_mlp.loss, (2, 3, 4)), xp.program(train_mlp.loss).grad((2, 3, 4))):
        for g, w in zip(form(*given), want, strict=True):
            if not np.allclose(g.gather(), w, rtol=1e-13, atol=1e-13):
                return f"{g.gather()}, not {w}"
    rng = np.random.default_rng(5)
    layers = [transformer.values(rng, 8, 2, 12, "f8") for _ in range(sample(1, of=2))]
    tokens = rng.standard_normal((4, 5, 8))

    def through(xp: Any, layers: Any) -> Any:
        given = xp.asarray(tokens, type="{x}, {}, {}") if xp is pgas else tokens
        return xp.sum(xp.sin(transformer.stack(xp, given, layers)))

    held = [{name: xp.asarray(w) for name, w in layer.items()} for layer in layers]
    slopes = xp.grad(lambda layers: through(xp, layers))(held)
    planned = xp.program(lambda layers: through(xp, layers)).grad()(held)
    named = [(0, "q"), (1, "gate"), (1, "v"), (0, "o"), (1, "before"), (0, "down")]
    for number, name in [one for one in named if one[0] < len(layers)][: sample(2, of=6)]:
        g = slopes[number][name].gather()
        if not np.allclose(planned[number][name].gather(), g, rtol=1e-10, atol=1e-12):
            return f"{number} {name}: a program gives others"
        way = rng.standard_normal(g.shape)

        def moved(w: Values, number: int = number, name: str = name) -> float:
            other = [dict(layer) for layer in layers]
            other[number][name] = w
            return float(through(np, other))

        slope, _ = slope_along(moved, [layers[number][name]], [way])
        if abs(np.vdot(g, way) - slope) > NEAR * np.linalg.norm(g) * np.linalg.norm(way):
            return f"{number} {name}: {np.vdot(g, way)}, not {slope}"
    return None


def promises(draw: Draw) -> str | None:
    """Structures, what is beside the value, what is constant, own gradients, gradients of gradients."""
    x = xp.asarray(np.linspace(0.1, 0.9, 6).reshape(2, 3))
    values = x.gather()

    def close(a: Any, b: Any) -> bool:
        return bool(np.allclose(a.gather(), b, rtol=1e-12, atol=1e-14))

    (value, told), g = xp.value_and_grad(
        lambda p, s: (xp.sum(p["a"] * p["b"][0]), {"s": s}), has_aux=True
    )({"a": x, "b": [x * 2, 3]}, "said")
    if not (close(g["a"], 2 * values) and close(g["b"][0], values) and g["b"][1] == 3):
        return f"of a dict: {g}"
    if told != {"s": "said"} or abs(float(value) - 2 * (values**2).sum()) > 1e-12:
        return f"beside it: {told}"
    both = xp.grad(lambda a, b: xp.sum(a * a * b), (0, 1))(x, x)
    if not (close(both[0], 2 * values**2) and close(both[1], values**2)):
        return "of an array that is given twice"
    if not close(xp.grad(lambda x: xp.sum(x * xp.stop_gradient(x)))(x), values):
        return "stop_gradient"
    if not close(xp.grad(lambda x: xp.sum(x.to(x.type)) * 2)(x), np.full((2, 3), 2.0)):
        return "of a move"
    if not close(xp.grad(lambda x, y: xp.sum(y))(x, x * 1), np.zeros((2, 3))):
        return "of what nothing depends on"
    for k in (-3, -2, -1, 0, 2, 3, 4):  # some diagonals are empty, or outside
        g = xp.grad(lambda x, k=k: xp.sum(xp.linalg.diagonal(x, offset=k)))(x)
        if not close(g, np.eye(2, 3, k)):
            return f"of diagonal {k}: {g.gather()}"

    @xp.custom_gradient  # type: ignore[untyped-decorator]
    def doubled(x: Any, n: int) -> Any:
        return xp.sin(x), lambda g: (g * 2.0, None)

    if not close(xp.grad(lambda x: xp.sum(doubled(x, 3) * x))(x), np.sin(values) + 2 * values):
        return "custom_gradient"
    if not np.array_equal(doubled(x, 3).gather(), np.sin(values)):
        return "custom_gradient, forward"

    def slope(x: Any) -> Any:
        return xp.sum(xp.grad(lambda x: xp.sum(xp.sin(x) * x))(x))

    second = 2 * np.cos(values) - values * np.sin(values)
    if not (close(xp.grad(slope)(x), second) and close(xp.program(slope).grad()(x), second)):
        return "of a gradient"
    square = xp.program(lambda x: x * x)
    if not close(xp.grad(lambda x: xp.sum(square(x)))(x), 2 * values):
        return "of a program inside"
    if not close(xp.grad(lambda x: xp.sum(xp.repeat(lambda x: x * x, 3, x)))(x), 8 * values**7):
        return "of a step that is repeated"
    runs: list[int] = []

    def counted(x: Any) -> Any:
        runs.append(1)
        return xp.sum(x**3)

    step = xp.program(counted).value_and_grad()
    for _ in range(3):
        value, g = step(x)
    if len(runs) != 1 or not close(g, 3 * values**2):
        return f"it ran {len(runs)} times"
    found = _checkpointed(x)
    if found:
        return found
    found = _elsewhere(draw)
    if found:
        return found
    z = xp.asarray(values + 1j * values**2)
    g = xp.grad(lambda z: xp.sum(xp.real(z * z * z)))(z)
    return None if close(g, 3 * z.gather() ** 2) else "of complex numbers"


def _elsewhere(draw: Draw) -> str | None:
    """Of arrays that go to other ranks, and of dims with segments."""
    n = draw.comm.size
    values = np.linspace(0.1, 0.9, 8 * n).reshape(4 * n, 2)
    x = xp.asarray(values)
    mesh = Mesh({"x": n}, ranks=[*range(1, n), 0])
    there = ArrayType.parse(f"f64[{4 * n}{{x}}, 2]", mesh)
    g = xp.grad(lambda x: xp.sum(xp.sin((x * x).to(there))))(x)
    if not np.allclose(g.gather(), 2 * values * np.cos(values**2), rtol=1e-12):
        return "of an array that goes to other ranks"
    fused = ArrayType.parse(f"f64[{2 * n}{{x}}+{2 * n}{{x}}, 2]", Mesh({"x": n}))
    w = xp.asarray(values, mesh=fused.mesh).to(fused)
    left = xp.asarray(values.T, mesh=fused.mesh)
    for function, want in (
        (lambda w: xp.sum(w * w), 2 * values),
        (lambda w: xp.sum(left @ w), np.broadcast_to(values.sum(axis=1)[:, None], values.shape)),
    ):
        g = xp.grad(function)(w)
        if not np.allclose(g.gather(), want, rtol=1e-12):
            return f"of {w.type}: {g.gather()}"
    return None


def _checkpointed(x: Any) -> str | None:
    """A checkpoint changes no gradient; its function runs once, its calls twice, of programs too."""
    runs: list[int] = []
    w = xp.asarray(np.linspace(-1.0, 1.0, 9).reshape(3, 3))

    def layer(x: Any, w: Any) -> Any:
        runs.append(1)
        return x + xp.tanh(xp.exp(0.1 * x) @ w)

    def loss(w: Any, wrap: Any) -> Any:
        y = wrap(layer)(wrap(layer)(x, w), w)
        return xp.sum(y * y)

    kept, again = (lambda f: f), xp.checkpoint
    want = xp.grad(loss)(w, kept)
    runs.clear()
    both = xp.grad(loss)(w, again), xp.program(lambda w: loss(w, again)).grad()(w)
    if len(runs) != 4:
        return f"layers that are done again ran {len(runs)} times"
    if not all(np.allclose(g.gather(), want.gather(), rtol=1e-12) for g in both):
        return "of a checkpoint"
    second = [
        xp.grad(lambda w, wrap=wrap: xp.sum(xp.grad(lambda w: loss(w, wrap))(w) ** 2))(w).gather()
        for wrap in (kept, again)
    ]
    if not np.allclose(second[0], second[1], rtol=1e-11):
        return "of the gradient of a checkpoint"
    n_tasks = [
        xp.program(lambda w, wrap=wrap: loss(w, wrap)).grad().graph(w).figures["tasks"]
        for wrap in (kept, again)
    ]
    return None if n_tasks[1] >= n_tasks[0] + 8 else f"{n_tasks} tasks: equal ones are done once"


OFTEN: list[Check] = [smooth]
ONCE: list[Check] = [refusals, examples, promises, most_are_smooth]
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """Random functions, then what is promised."""
    SMOOTH.clear()
    return run_checks(OFTEN, ONCE, n=20)


if __name__ == "__main__":
    main(program)
