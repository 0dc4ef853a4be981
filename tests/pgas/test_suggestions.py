"""Every name of NumPy that global arrays lack is answered with what to write, and that exists."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import redist
from redist import pgas
from redist.pgas import suggestions

ARRAY = pgas.ones((3, 2))


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
        (lambda: np.interp(ARRAY, ARRAY, ARRAY), "a.gather()"),
        (lambda: np.nanprod(ARRAY), "pgas.prod(pgas.where("),
        (lambda: np.nanquantile(ARRAY, 0.5, axis=0), "along a dim, for each a[:, j]"),
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
        (lambda: np.append(ARRAY, 1.0), "cannot append float"),
        (lambda: np.array([ARRAY[0, 0], ARRAY[1, 0]]), "write float(a) for its number"),
        (lambda: np.asarray(ARRAY[0, 0] > 0), "write bool(a) for its number"),
    ],
)
def test_usual_ones(call: Any, words: str) -> None:
    with pytest.raises((AttributeError, TypeError, redist.RequestError), match=re.escape(words)):
        call()


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


def test_metrics_are_those_of_learn() -> None:
    pytest.importorskip("sklearn", reason="redist.learn needs scikit-learn")
    from redist.learn import metrics

    assert frozenset(metrics.__all__) == suggestions.METRICS
