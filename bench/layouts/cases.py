"""The workloads at their sizes: those that are measured, and tiny ones for tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.layouts.workload import Aims, Values, Workload, as_new
from examples import conjugate_gradients, fft_filter, train_mlp, transformer

WEIGHTS = tuple(transformer.shapes(4, 2, 4))
BLOCK_AIM, SMALL_TIME_AIM, FILTER_AIM, KMEANS_AIM = 0.15, 0.6, 0.6, 1.1
SQUARE_AIM, SKEWED_AIM = 0.75, 0.35
SOLVER_STEPS = 10
Sizes = tuple[int, ...]
KERNELS = {
    "1MM": "ij,jk->ik",
    "2MM": "ij,jk,kl->il",
    "3MM": "ij,jk,kl,lm->im",
    "MTTKRP-03-M0": "ijk,ja,ka->ia",
    "MTTKRP-03-M1": "ijk,ia,ka->ja",
    "MTTKRP-03-M2": "ijk,ia,ja->ka",
    "MTTKRP-05-M0": "ijklm,ja,ka,la,ma->ia",
    "MTTKRP-05-M2": "ijklm,ia,ja,la,ma->ka",
    "MTTKRP-05-M4": "ijklm,ia,ja,ka,la->ma",
    "TTMc-05-M0": "ijklm,jb,kc,ld,me->ibcde",
}
"""Products of matrices, tensors times Khatri-Rao products, a tensor times a chain of matrices."""
MTTKRP_AIM = 0.5
ERROR = 1e-5


def kernel(xp: Any, *operands: Any, notation: str) -> Any:
    """One Einstein sum."""
    return xp.einsum(notation, *operands)


def shapes_of(notation: str, sizes: Mapping[str, int]) -> list[list[int]]:
    """The shapes of the operands.

    >>> shapes_of("ij,jk->ik", {"i": 2, "j": 3, "k": 4})
    [[2, 3], [3, 4]]
    """
    terms = notation.partition("->")[0].split(",")
    return [[sizes[label] for label in term] for term in terms]


def values(notation: str, sizes: Mapping[str, int]) -> list[NDArray[Any]]:
    """Random operands in single precision."""
    rng = np.random.default_rng(8)
    return [rng.standard_normal(shape).astype("f4") for shape in shapes_of(notation, sizes)]


def sizes_of(name: str, side: int, narrow: int) -> dict[str, int]:
    """How long each label is: matrices are square, factors of tensors are narrow.

    >>> sizes_of("MTTKRP-03-M0", 8, 2)
    {'i': 8, 'j': 8, 'k': 8, 'a': 2}
    """
    labels = dict.fromkeys(letter for letter in KERNELS[name] if letter.isalpha())
    return {letter: narrow if letter in "abcde" else side for letter in labels}


def kernel_of(name: str, side: int, narrow: int) -> Workload:
    """A kernel whose operands all lie as new arrays lie."""
    notation = KERNELS[name]
    sizes = sizes_of(name, side, narrow)
    what = " ".join(f"{letter}={size}" for letter, size in sizes.items())
    received = MTTKRP_AIM if name.startswith("MTTKRP") else None
    make = partial(values, notation, sizes)
    function = partial(kernel, notation=notation)
    cuts = as_new(shapes_of(notation, sizes))
    return Workload(name, what, function, make, cuts, ERROR, Aims(received))


def run_stack(xp: Any, x: Any, *weights: Any) -> Any:
    """Layers of a language model, their weights one after another."""
    n = len(WEIGHTS)
    rows = [weights[i : i + n] for i in range(0, len(weights), n)]
    return transformer.stack(xp, x, [dict(zip(WEIGHTS, row, strict=True)) for row in rows])


def chain(xp: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """(A B) + (C (D E))."""
    return a @ b + c @ (d @ e)


def lloyd(xp: Any, points: Any, centres: Any, numbers: Any) -> tuple[Any, Any]:
    """One step of k-means: the centre of every point, and the means of the points of every centre."""
    far = xp.sum(centres * centres, axis=1) - 2.0 * (points @ centres.T)
    nearest = xp.argmin(far, axis=1)
    belongs = xp.astype(nearest[:, None] == numbers, points.dtype)
    counts = xp.maximum(xp.sum(belongs, axis=0), 1.0)
    return nearest, (belongs.T @ points) / counts[:, None]


def conjugate(xp: Any, a: Any, b: Any) -> Any:
    """Ten steps of conjugate gradients."""
    return conjugate_gradients.solve(xp, a, b, SOLVER_STEPS)


def model(
    name: str, layers: int, tokens: Sizes, heads: int, hidden: int, dtype: str, aims: Aims,
    cut: int = 0,
) -> Workload:  # fmt: skip
    """Layers of a language model: tokens cut by sequences, or as ``cut`` says, weights as new ones lie."""

    def make() -> Values:
        rng = np.random.default_rng(5)
        x = rng.standard_normal(tokens).astype(dtype)
        each = [
            transformer.values(rng, tokens[-1], heads, hidden, dtype).values()
            for _ in range(layers)
        ]
        return [x, *(w for weights in each for w in weights)]

    weights = transformer.shapes(tokens[-1], heads, hidden).values()
    what = f"{' x '.join(map(str, tokens))} {dtype}, {layers} layer{'s' * (layers > 1)}, hidden {hidden}"
    error = 1e-2 if dtype == "f2" else 1e-5 * layers**0.5
    cuts = (cut, *as_new(weights) * layers)
    stay = tuple(range(1, len(cuts)))
    return Workload(name, what, run_stack, make, cuts, error, aims, stay)


def backward(samples: int, sides: Sizes) -> Workload:
    """Gradients of all weights of an MLP."""
    make = partial(train_mlp.values, samples, sides)
    cuts = (0, 0, *as_new(itertools.pairwise(sides)))
    what = f"{samples} samples, {' x '.join(map(str, sides))} f4"
    return Workload("MLP, backward", what, train_mlp.gradients, make, cuts, 1e-5)


def chain_of(name: str, sides: Sizes, aim: float) -> Workload:
    """A chain of products; all matrices lie as new ones lie."""
    rows, b, columns, d, e = sides
    pairs = ((rows, b), (b, columns), (rows, d), (d, e), (e, columns))

    def make() -> Values:
        rng = np.random.default_rng(9)
        return [(rng.standard_normal(p) * p[1] ** -0.5).astype("f4") for p in pairs]

    what = f"sides {sides} f4"
    return Workload(name, what, chain, make, as_new(pairs), 1e-5, Aims(aim))


def kmeans_of(points: int, dims: int, k: int) -> Workload:
    """Points cut by rows, centres and their numbers whole on every rank."""

    def make() -> Values:
        rng = np.random.default_rng(3)
        corners = np.arange(points)[:, None] % k >> np.arange(dims) % 8 & 1
        data = corners + 0.05 * rng.standard_normal((points, dims))
        return [data, data[:k].copy(), np.arange(k)]

    what = f"{points} points of {dims}, {k} centres f8"
    aims = Aims(received=KMEANS_AIM, moves=1)
    return Workload("k-means", what, lloyd, make, (0, None, None), 1e-10, aims, (0, 2))


def solver_of(n: int) -> Workload:
    """A dense matrix that stays and a vector, cut by rows."""
    make = partial(conjugate_gradients.values, n)
    what = f"{n}^2 f8, {SOLVER_STEPS} steps"
    return Workload("conjugate gradients", what, conjugate, make, (0, 0), 1e-9, stay=(0,))


def filters(image: Sizes, volume: Sizes) -> list[Workload]:
    """An image by a response that is given, and a volume by one that is computed."""

    def noise(shape: Sizes) -> NDArray[Any]:
        return np.random.default_rng(4).standard_normal(shape) + 0j

    def pictures() -> Values:
        u, v = fft_filter.frequencies(image)
        return [noise(image), np.exp(-20.0 * (u * u + v * v)) + 0j]

    def volumes() -> Values:
        return [noise(volume), *fft_filter.frequencies(volume)]

    flat, deep = (f"{' x '.join(map(str, shape))} c16" for shape in (image, volume))
    whole, aims = (None,) * len(volume), Aims(FILTER_AIM)
    return [
        Workload("FFT filter, 2-D", flat, fft_filter.multiply, pictures, (0, 0), 1e-12, aims, (1,)),
        Workload("FFT filter, 3-D", deep, fft_filter.blur, volumes, (0, *whole), 1e-12, aims, (1, 2, 3)),
    ]  # fmt: skip


def workloads(tiny: bool = False) -> Sequence[Workload]:
    """All of them, in the order of the tables."""
    whole, small = Aims(BLOCK_AIM), Aims(BLOCK_AIM, SMALL_TIME_AIM)
    tokens, few, deep = ((3, 4, 8),) * 3 if tiny else ((8, 128, 256), (4, 32, 64), (4, 16, 32))
    two = (3, 4, 8) if tiny else (2, 64, 128)
    hidden, narrow, layers = (12, 12, 2) if tiny else (768, 192, 32)
    side = 10 if tiny else 640
    matrix, cube, five = ((10, 2), (3, 2), (3, 2)) if tiny else ((1024, 24), (128, 24), (20, 8))
    kernels = [
        kernel_of(name, *(matrix if "MM" in name[:3] else cube if "-03-" in name else five))
        for name in KERNELS
    ]
    return [
        model("block", 1, tokens, 4, hidden, "f4", whole),
        model("block, small", 1, few, 4, narrow, "f4", small),
        model("block, as new", 1, two, 4, 12 if tiny else 512, "f4", small, 2),
        model("block, f2", 1, few, 4, narrow, "f2", whole),
        model("stack", layers, deep, 4, 12 if tiny else 96, "f4", whole),
        backward(*((10, (10, 10, 3)) if tiny else (2048, (256, 512, 512, 64)))),
        chain_of("chain, square", (side,) * 5, SQUARE_AIM),
        chain_of("chain, skewed", (side, side // 10, side, side // 10, 10 * side), SKEWED_AIM),
        *kernels,
        kmeans_of(*((30, 3, 4) if tiny else (2**16, 8, 8))),
        solver_of(20 if tiny else 1024),
        *filters(*(((10, 10), (4, 4, 4)) if tiny else ((512, 512), (64, 64, 64)))),
    ]
