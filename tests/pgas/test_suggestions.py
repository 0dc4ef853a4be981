"""Every name of NumPy that global arrays lack is answered with what to write, and that exists."""

from __future__ import annotations

import operator
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import redist
from redist import pgas

ARRAY: Any = pgas.ones((3, 2))
LOOSE: Any = np
"""NumPy for arguments that its annotations refuse."""


def names(thing: Any) -> list[str]:
    return [
        name
        for name in dir(thing)
        if not name.startswith("_") and not isinstance(getattr(thing, name, None), ModuleType)
    ]


def said(thing: Any, name: str) -> str | None:
    """What is said of a name; None if it is there."""
    try:
        getattr(thing, name)
    except AttributeError as error:
        assert isinstance(error, redist.RedistError), name
        return str(error)
    return None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pgas, np),
        (pgas.linalg, np.linalg),
        (pgas.fft, np.fft),
        (pgas.random, np.random),
        (pgas.random, np.random.Generator),
        (ARRAY, np.ndarray),
    ],
    ids=["numpy", "linalg", "fft", "random", "Generator", "ndarray"],
)
def test_every_name_of_numpy_is_there_or_says_what_to_write(ours: Any, theirs: Any) -> None:
    for name in names(theirs):
        text = said(ours, name)
        if text is None:
            continue
        assert re.search(r"; |: ", text), text
        for path in re.findall(r"\bpgas((?:\.\w+)+)", text.partition("has no")[2]):
            found: Any = pgas
            for step in path.strip(".").split("."):
                found = getattr(found, step)


@pytest.mark.parametrize("package", [redist, pgas])
def test_every_public_name_is_there(package: Any) -> None:
    optional = ("jax", "torch", "learn")
    missing = [n for n in package.__all__ if n not in optional and not hasattr(package, n)]
    assert missing == []


def test_what_is_not_offered_is_nothing_that_numpy_answers_for_global_arrays() -> None:
    for name in names(np):
        text = said(pgas, name)
        if text is not None and "not offered" in text:
            assert name not in pgas.__all__, name
            known = getattr(np, name)
            assert not (isinstance(known, np.ufunc) and known.signature is None and known.nout == 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pgas.load, "pgas.read_npy"),
        (lambda: pgas.loadtxt, "pgas.read_csv"),
        (lambda: pgas.savetxt, "pgas.write_csv"),
        (lambda: pgas.info, "help("),
        (lambda: pgas.random.rand, "generator(seed).uniform(shape)"),
        (lambda: pgas.random.seed, "generator(seed)"),
        (lambda: ARRAY.flat, "a.reshape(-1)"),
        (lambda: ARRAY.strides, "a.local.strides"),
        (lambda: np.save("never.npy", ARRAY), "pgas.write_npy"),
        (lambda: np.savetxt("never.csv", ARRAY), "pgas.write_csv"),
        (lambda: np.interp(ARRAY, ARRAY, ARRAY), "pgas.searchsorted(xp, x)"),
        (lambda: np.unwrap(ARRAY), "a.gather()"),
        (lambda: np.nancumsum(ARRAY), "pgas.cumulative_sum(pgas.where("),
        (lambda: np.correlate(ARRAY[0], ARRAY[0]), "pgas.convolve(a, pgas.flip(v))"),
        (lambda: np.sum(ARRAY, where=ARRAY > 1), "pgas.sum(pgas.where(mask, a, 0), axis=axis)"),
        (lambda: np.mean(ARRAY, where=ARRAY > 1), "/ pgas.sum(mask, axis=axis)"),
        (lambda: np.amax(ARRAY, where=ARRAY > 1), "pgas.where(mask, a, -pgas.inf)"),
        (lambda: np.amin(ARRAY, where=ARRAY > 1), "pgas.where(mask, a, pgas.inf)"),
        (lambda: np.std(ARRAY, where=ARRAY > 1), "pgas.nanstd(pgas.where(mask, a, pgas.nan)"),
        (lambda: np.nanmean(ARRAY, where=ARRAY > 1), "pgas.where(mask, a, pgas.nan)"),
        (lambda: np.max(ARRAY, initial=3), "write pgas.maximum(a.max(...), value)"),
        (lambda: np.asarray(ARRAY), "a.local"),
        (lambda: ARRAY.to_numpy(), "a.gather()"),
        (lambda: ARRAY.values, "a.local"),
        (lambda: ARRAY.head(), "a[:5]"),
        (lambda: ARRAY.dropna(), "a[~pgas.any(pgas.isnan(a), axis=1)]"),
        (lambda: ARRAY.fillna(0), "pgas.where(pgas.isnan(a), value, a)"),
        (lambda: ARRAY.tobytes(), "a.gather().tobytes()"),
        (lambda: pgas.vstack, "numpy.vstack([a, b]), which takes global arrays"),
        (lambda: pgas.column_stack, "numpy.column_stack([a, b])"),
        (lambda: np.append(ARRAY, 1.0), "cannot use a float in append"),
        (lambda: np.array([ARRAY[0, 0], ARRAY[1, 0]]), "write float(a) for its number"),
        (lambda: np.asarray(ARRAY[0, 0] > 0), "write bool(a) for its number"),
        (lambda: LOOSE.sort(ARRAY, kind="bubble"), "known are 'stable', 'quicksort', 'mergesort'"),
        (lambda: ARRAY.argsort(0, "bubble"), "cannot sort by kind='bubble'"),
        (lambda: ARRAY - [1.0, 2], "cannot use a list in subtract with a global array; make it"),
        (lambda: (1.0, 2) * ARRAY, "cannot use a tuple in multiply with a global array; make it"),
        (lambda: ARRAY == [1.0, 2], "cannot use a list in equal with a global array; make it"),
        (lambda: ARRAY @ [1.0, 2], "cannot use a list in matmul: it is not a global array"),
        (lambda: operator.iadd(ARRAY, [1.0, 2]), "cannot use a list in add with a global array"),
        (lambda: np.add(ARRAY, [1.0, 2]), "cannot use a list in add with a global array"),
        (lambda: ARRAY @ np.ones(2), "cannot use a NumPy array of shape (2,) in matmul: it is not"),
        (lambda: pgas.where(ARRAY > 0, np.ones(2), 0), "cannot use a NumPy array of shape (2,) in"),
        (
            lambda: pgas.argsort(LOOSE.arange(2)),
            "cannot use a NumPy array of shape (2,) in argsort: it is",
        ),
        (lambda: (ARRAY > 1) and (ARRAY < 3), "or & and | between masks"),
        (lambda: ARRAY.ravel("F"), "tiles are in C order; write a.transpose().ravel()"),
        (lambda: ARRAY.flatten("F"), "tiles are in C order; write a.transpose().flatten()"),
        (lambda: np.ravel(ARRAY, order="F"), "tiles are in C order"),
        (lambda: setattr(ARRAY, "shape", (2, 3)), "write a = a.reshape((2, 3))"),
        (lambda: np.linalg.lstsq(ARRAY, ARRAY, rcond=None), "x = pgas.linalg.lstsq(a, b), the"),
        (lambda: LOOSE.percentile(ARRAY, 5, method="best"), "linear, lower, higher, nearest"),
        (lambda: np.savez("never.npz", a=ARRAY), "pgas.write_npy(file, a), once for each array"),
        (lambda: np.apply_along_axis(len, 0, ARRAY), "it with axis=, or pgas.map_tiles for a"),
        (lambda: np.lexsort((ARRAY[0], ARRAY[1])), "order[pgas.argsort(main[order])]"),
        (lambda: np.histogram2d(ARRAY[0], ARRAY[1]), "pgas.bincount(i * n + j"),
        (
            lambda: np.unravel_index(LOOSE.argmax(ARRAY), (3, 2)),
            "write numpy.unravel_index(int(a.argmax()), a.shape)",
        ),
        (lambda: np.ravel_multi_index((ARRAY.argmax(),), (6,)), "write int(a), float(a) or"),
        (lambda: np.interp(ARRAY, [1.0], [2.0]), "with global xp and fp, as by pgas.asarray(xp)"),
        (lambda: np.polyfit(ARRAY[0], ARRAY[0], 1), "** pgas.arange(deg, -1, -1), y)"),
        (lambda: pgas.c_, "write numpy.column_stack([a, b])"),
        (lambda: LOOSE.c_[ARRAY, ARRAY], "write numpy.column_stack([a, b])"),
        (lambda: LOOSE.r_[ARRAY, ARRAY], "write numpy.concatenate([a, b])"),
        (lambda: np.dot(ARRAY, np.ones(2)), "a NumPy array of shape (2,) in dot: it is not"),
        (lambda: np.inner(ARRAY, np.ones(2)), "a NumPy array of shape (2,) in inner: it is not"),
        (lambda: np.vdot(ARRAY, np.ones(2)), "a NumPy array of shape (2,) in vdot: it is not"),
        (lambda: np.column_stack([ARRAY, np.ones(3)]), "shape (3,) in column_stack: it is not"),
        (lambda: np.vstack([ARRAY, np.ones(2)]), "shape (2,) in vstack: it is not"),
        (lambda: np.hstack([ARRAY, np.ones(2)]), "shape (2,) in hstack: it is not"),
        (lambda: np.concatenate([ARRAY, np.ones((1, 2))]), "(1, 2) in concatenate: it is not"),
        (lambda: LOOSE.multiply(ARRAY, 2, out=ARRAY), "write a *= b to change a, or out[...] ="),
        (lambda: LOOSE.exp(ARRAY, out=ARRAY), "write out[...] = numpy.exp(a)"),
        (lambda: np.cov(ARRAY.T, aweights=[1.0]), "3 observations with aweights of shape (1,)"),
        (
            lambda: LOOSE.cov(ARRAY.T, fweights=[1.0] * 3),
            "fweights of float64 in cov: need integers",
        ),
        (lambda: np.cov(ARRAY.T, aweights=[1, 2, -1]), "cannot use aweights below 0 in cov"),
        (
            lambda: np.cov(ARRAY, dtype="f4"),
            "cannot use numpy.cov on a global array with dtype=: pgas.cov takes y=, rowvar=",
        ),
        (
            lambda: LOOSE.median(ARRAY, overwrite_input=True),
            "with overwrite_input=: pgas.median takes axis=, keepdims=; leave overwrite_input= out",
        ),
        (
            lambda: LOOSE.sum(ARRAY, 0, None, None, True),
            "cannot use numpy.sum on a global array with these arguments: pgas.sum takes axis=",
        ),
    ],
)
def test_usual_ones(call: Any, words: str) -> None:
    with pytest.raises((AttributeError, TypeError, redist.RequestError), match=re.escape(words)):
        call()


class Foreign:
    """An array of another library, as a Series of pandas is: NumPy can convert it."""

    def __init__(self, values: list[bool] | list[int]) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._values, dtype)


def test_masks_and_indices_of_other_libraries_are_taken() -> None:
    a = pgas.asarray(np.arange(6.0).reshape(3, 2))
    assert a[Foreign([True, False, True])].tolist() == [[0, 1], [4, 5]]
    assert a[Foreign([2, 0]), 1].tolist() == [5, 1]
    a[Foreign([False, True, False])] = 7
    assert a[:, 0].tolist() == [0, 7, 4]


def test_other_operands_are_left_to_their_own_operators() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        ARRAY + "text"
    assert (ARRAY == None) is False  # noqa: E711


def test_every_kind_of_sort_is_taken_and_c_order_too() -> None:
    a = pgas.asarray([3.0, 1, 2])
    for kind in (None, "stable", "quicksort", "mergesort", "heapsort"):
        assert np.sort(a, kind=kind).tolist() == [1, 2, 3]
        assert np.argsort(a, -1, kind).tolist() == a.argsort(kind=kind).tolist() == [1, 2, 0]
        b = a.copy()
        b.sort(0, kind)
        assert b.tolist() == [1, 2, 3]
    assert ARRAY.ravel("C").shape == np.ravel(ARRAY, order="K").shape == (6,)


def test_what_is_said_of_interp_and_lexsort_and_histogram2d_gives_what_numpy_gives() -> None:
    rng = np.random.default_rng(0)
    at, of, given = np.sort(rng.random(9)), rng.random(9), rng.random(50)
    x, xp, fp = map(pgas.asarray, (given, at, of))
    x = pgas.clip(x, xp[0], xp[-1])
    i = pgas.clip(pgas.searchsorted(xp, x), 1, len(xp) - 1)
    found = fp[i - 1] + (x - xp[i - 1]) / (xp[i] - xp[i - 1]) * (fp[i] - fp[i - 1])
    np.testing.assert_allclose(found.gather(), np.interp(given, at, of))
    keys = rng.integers(0, 4, (2, 50))
    minor, main = map(pgas.asarray, keys)
    order = pgas.argsort(minor)
    order = order[pgas.argsort(main[order])]
    np.testing.assert_array_equal(order.gather(), np.lexsort(tuple(keys)))
    m, n = 3, 4
    edges, others = np.linspace(0, 1, m + 1), np.linspace(0, 1, n + 1)
    pairs = rng.random((2, 50))
    a, b = map(pgas.asarray, pairs)
    i = pgas.clip(pgas.digitize(a, edges) - 1, 0, m - 1)
    j = pgas.clip(pgas.digitize(b, others) - 1, 0, n - 1)
    counts = pgas.bincount(i * n + j, minlength=m * n).reshape(m, n)
    np.testing.assert_array_equal(
        counts.gather(), LOOSE.histogram2d(*pairs, bins=(edges, others))[0]
    )


def test_what_is_said_of_polyfit_and_out_gives_what_numpy_gives() -> None:
    rng = np.random.default_rng(0)
    given, of, deg = rng.random(50), rng.random(50), 3
    x, y = map(pgas.asarray, (given, of))
    found = pgas.linalg.lstsq(x[:, None] ** pgas.arange(deg, -1, -1), y)
    np.testing.assert_allclose(found.gather(), np.polyfit(given, of, deg))
    out = pgas.zeros(50)
    out[...] = np.multiply(x, y)
    assert out.tolist() == (given * of).tolist()


def test_a_histogram_says_what_it_cannot_count() -> None:
    with pytest.raises(redist.RedistError, match="the values contain nan"):
        np.histogram(pgas.asarray([1.0, np.nan, 3.0]))
    with pytest.raises(redist.RedistError, match="the values contain infinity"):
        np.histogram(pgas.asarray([1.0, np.inf, 3.0]))
    assert float(np.histogram(pgas.asarray([1.0, np.nan]), range=(0, 2))[0].sum()) == 1


def test_names_of_modules_hide_none_of_numpy() -> None:
    for package in (pgas, pgas.linalg, pgas.fft, pgas.random):
        modules = {name for name, one in vars(package).items() if isinstance(one, ModuleType)}
        theirs = {name for name in names(np) if callable(getattr(np, name))}
        assert not modules & theirs, modules & theirs
