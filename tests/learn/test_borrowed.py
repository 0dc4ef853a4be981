"""The installed scikit-learn has every name that is borrowed, and those that are offered."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("sklearn") is None:
    pytest.skip(
        "needs scikit-learn: make learn has an environment with it", allow_module_level=True
    )

import inspect
from typing import Any

import sklearn.cluster
import sklearn.linear_model

from redist.learn import borrowed, cluster, linear_model


@pytest.mark.parametrize("name", borrowed.__all__)
def test_the_name_is_there(name: str) -> None:
    assert getattr(borrowed, name) is not None


@pytest.mark.parametrize(
    ("own", "known", "name"),
    [
        *((cluster, sklearn.cluster, name) for name in cluster.__all__),
        *((linear_model, sklearn.linear_model, name) for name in linear_model.__all__),
    ],
)
def test_names_and_parameters_are_scikit_learns(own: Any, known: Any, name: str) -> None:
    ours, theirs = getattr(own, name), getattr(known, name)
    given = [inspect.signature(one).parameters for one in (ours, theirs)]
    assert list(given[0]) == list(given[1])
    assert [p.default for p in given[0].values()] == [p.default for p in given[1].values()]
    assert [p.kind for p in given[0].values()] == [p.kind for p in given[1].values()]
    if inspect.isclass(theirs):
        assert issubclass(ours, theirs)


def test_all_names_are_there() -> None:
    assert sorted(cluster.__all__) == sorted(sklearn.cluster.__all__)
