"""The least data that a device needs for its share of an operation's points.

Let S be the points of an operation that a device works on, at least 1/p of all. It needs the projections
of S onto the labels of every array. For every way to cover all labels by arrays and labels (weights s of
arrays and t of labels, at least 1 together wherever a label is), |S| is at most the product of all
|projection|^s and size^t (Loomis-Whitney, Shearer, Finner). By duality of linear programs the smallest sum of
projections that keeps to all of these is that of a block with real sides, between 1 and the size of the
label, whose volume is the share. So the least over all sets, of whatever form, is a small convex program.

    >>> sizes = {"i": 100, "j": 100, "k": 100}
    >>> round(least_access(sizes, [("ij", 1), ("jk", 1), ("ik", 1)], 8), 3)
    7500.0
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Terms = tuple[tuple[str, Fraction], ...]
"""Labels of arrays, and bytes for each of their elements."""
SLACK = 1e-10
"""Share by which sums in floating point may be too high; it is taken off."""
SHARPEST = 1e11
"""How far walls are pushed back, at last."""
MOST_STEPS = 20
FINE = 2**20
"""Roots are rounded down to a part of this."""


def least_access(
    sizes: Mapping[str, int], terms: Sequence[tuple[str, Fraction | int]], n_devices: int
) -> float:
    """A number that no device's access is below if it does 1/n of the points, and that hardly is.

    ``terms`` has the labels of every array and what an element counts. Found by walking inside the walls
    of the program; what is returned is a bound by a tangent there, so it holds even if the walk went astray.
    """
    terms = [(labels, weight) for labels, weight in terms if weight > 0]
    labels = [label for label, size in sizes.items() if size > 1]
    if not terms:
        return 0.0
    tops = np.array([math.log(sizes[label]) for label in labels])
    total = float(tops.sum()) - math.log(n_devices)
    logs = np.array([math.log(weight) for _, weight in terms])
    has = np.array([[float(label in own) for label in labels] for own, _ in terms])
    if total <= 0:
        found = float(_log_sum(logs)[0])
    elif n_devices == 1:
        found = float(_log_sum(logs + has @ tops)[0])
    else:
        found = _walk(logs, has.reshape(len(terms), len(labels)), tops, total)
    return math.exp(found) * (1 - SLACK)


def _log_sum(logs: Reals) -> tuple[float, Reals]:
    """The logarithm of a sum, and the share of each term."""
    most = float(logs.max())
    parts = np.exp(logs - most)
    return most + math.log(float(parts.sum())), parts / parts.sum()


def _walk(logs: Reals, has: Reals, tops: Reals, total: float) -> float:
    """The best bound by a tangent on a walk from the middle towards the walls."""
    sides = tops * (total / float(tops.sum()))
    best, push = -math.inf, 10.0
    while push <= SHARPEST:
        for _ in range(MOST_STEPS):
            step = _newton_step(logs, has, tops, sides, push)
            outward = np.where(step > 0, (tops - sides) / np.maximum(step, 1e-300), np.inf)
            inward = np.where(step < 0, sides / np.maximum(-step, 1e-300), np.inf)
            length = min(1.0, 0.9 * float(min(outward.min(), inward.min())))
            sides = sides + length * step
            if float(np.abs(step / np.minimum(sides, tops - sides)).max()) < 1e-3:
                break
        value, bound = _tangent_bound(logs, has, tops, total, sides)
        best, push = max(best, bound), push * 30
        if value - best < SLACK:
            break
    return best


def _newton_step(logs: Reals, has: Reals, tops: Reals, sides: Reals, push: float) -> Reals:
    """Where to go next; the volume stays."""
    n = len(sides)
    _, shares = _log_sum(logs + has @ sides)
    slope = has.T @ shares
    bend = (has.T * shares) @ has - np.outer(slope, slope)
    left, right = 1 / sides, 1 / (tops - sides)
    matrix = np.zeros((n + 1, n + 1))
    matrix[:n, :n] = push * bend + np.diag(left**2 + right**2)
    matrix[n, :n] = matrix[:n, n] = 1
    against = np.append(-(push * slope - left + right), 0.0)
    scale = 1 / np.sqrt(np.append(np.diag(matrix)[:n], 1.0))
    solved: Reals = np.linalg.solve(matrix * np.outer(scale, scale), against * scale) * scale
    return solved[:n]


def _tangent_bound(
    logs: Reals, has: Reals, tops: Reals, total: float, sides: Reals
) -> tuple[float, float]:
    """What the sum is here, and at least: the least of a tangent, for which cheap labels are filled first."""
    value, shares = _log_sum(logs + has @ sides)
    slope = has.T @ shares
    left, least = total, 0.0
    for at in np.argsort(slope, kind="stable"):
        taken = min(left, float(tops[at]))
        least += float(slope[at]) * taken
        left -= taken
    return value, value + least - float(slope @ sides)


def product_access(sides: tuple[int, int, int], n_devices: int) -> Fraction:
    """The least elements that a device needs for 1/n of a product of matrices, in closed form.

    By the published bound with its three regimes: blocks are cut along one, two or all three sides. Roots
    are rounded down.

    >>> [int(product_access((400, 100, 20), p)) for p in (4, 16, 512)]
    [14000, 4500, 403]
    """
    k, n, m = sorted(sides)
    p = n_devices
    if p * n <= m:
        return Fraction(m * n + m * k, p) + n * k
    if p * k * k <= m * n:
        root = math.isqrt(4 * m * n * k * k * FINE**2 // p)
        return Fraction(root, FINE) + Fraction(m * n, p)
    return Fraction(_cube_root(27 * (m * n * k) ** 2 * FINE**3 // p**2), FINE)


def _cube_root(n: int) -> int:
    """The largest whole number whose cube is at most n."""
    low, high = 0, 1 << (n.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= n else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def least_lack_bytes(terms: Terms, sizes: tuple[tuple[str, int], ...], n_devices: int) -> int:
    """What a device needs at least of arrays that lie once over all, less what it holds; rounded down."""
    of = dict(sizes)
    elems = [weight * math.prod(of[label] for label in term) for term, weight in terms]
    held = sum(elems, Fraction(0)) / n_devices
    if _is_product(terms, of):
        m, n, k = of.values()
        access = terms[0][1] * product_access((m, n, k), n_devices)
    else:
        access = Fraction(least_access(of, terms, n_devices))
    return max(0, math.floor(access - held))


def _is_product(terms: Terms, sizes: Mapping[str, int]) -> bool:
    """Whether it is a product of matrices: three labels, in two of three arrays each that count alike."""
    several = Counter("".join(term for term, _ in terms))
    return (
        len(terms) == len(sizes) == len(several) == 3
        and set(several.values()) == {2}
        and all(len(term) == 2 for term, _ in terms)
        and len({weight for _, weight in terms}) == 1
    )
