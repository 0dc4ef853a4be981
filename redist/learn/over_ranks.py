"""What all estimators over ranks share: scikit-learn's own fit on whole rows, labels of a fit, and pickling.

A result that is a global array is kept in a pickle if its own rank loads it; other ranks are refused it. A
model that was fitted on several ranks and pickled by one of them can be loaded alone and can predict. Its
``labels_`` are only one rank's tile there, so accessing them raises an error that says what to write before
pickling.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from redist.errors import MissingNameError, RedistError
from redist.learn.given import seeded_alike
from redist.pgas.global_array import Array
from redist.pgas.worker_processes import refuse_workers
from redist.runtime.ranks.world import comm_or_world
from redist.spmd import cut_like, is_global, whole_of


class Kept:
    """A global array in the state of an estimator."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __deepcopy__(self, memo: Any) -> Kept:
        return Kept(self.array.copy())

    def __reduce__(self) -> Any:
        try:
            restore, parts = self.array.__reduce__()
        except RedistError as problem:
            return Lost, (str(problem),)
        return _load, (restore, parts)


class Lost:
    """A placeholder for a global array whose values are not here."""

    def __init__(self, why: str) -> None:
        self.why = why


def _load(restore: Any, parts: Any) -> Kept | Lost:
    try:
        return Kept(restore(*parts))
    except RedistError as problem:
        return Lost(str(problem))


class OverRanks:
    """The first base class of an estimator, before scikit-learn's; one rank can pickle the model."""

    _per_row: ClassVar[tuple[str, ...]] = ("labels_",)
    """Attributes with a value, or a row, for each row of what is fitted."""

    def _fit_whole(self, X: Any, **weights: Any) -> Any:
        """**Collective.** scikit-learn's own fit, whole on every rank; answers are cut as ``X`` is."""
        given = {name: whole_of(one) for name, one in weights.items()}
        above: Any = super()
        with seeded_alike(self) if hasattr(self, "random_state") else nullcontext():
            above.fit(whole_of(X), **given)
        return self._cut_like(X) if is_global(X) else self

    def _cut_like(self, X: Any) -> Any:
        """**Local.** Let what every row has be global arrays."""
        for name in self._per_row:
            found = getattr(self, name)
            if not issparse(found):
                setattr(self, name, cut_like(X, np.asarray(found)))
        return self

    def __getstate__(self) -> dict[str, Any]:
        refuse_workers(f"{type(self).__name__} of redist.learn", comm_or_world(None))
        above: Any = super()
        return {
            name: Kept(value) if isinstance(value, Array) else value
            for name, value in above.__getstate__().items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        lost = {name: one.why for name, one in state.items() if isinstance(one, Lost)}
        found = {
            name: one.array if isinstance(one, Kept) else one
            for name, one in state.items()
            if name not in lost
        }
        if lost:
            found["_lost"] = {**found.get("_lost", {}), **lost}
        above: Any = super()
        above.__setstate__(found)

    def __getattr__(self, name: str) -> Any:
        why = self.__dict__.get("_lost", {}).get(name)
        kind = type(self).__name__
        if why is None:
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        raise MissingNameError(
            f"cannot give {name} of this {kind}, which was loaded from a pickle: {why}; or, before it is "
            f"pickled, let every rank write model.{name} = model.{name}.gather()"
        )


class ClustersRows(OverRanks):
    """An estimator whose fit gives labels to rows."""

    def fit_predict(self, X: Any, y: Any = None, *, progress: bool | None = None) -> Any:
        """**Collective.** Fit the model, and return the labels of the rows of ``X``."""
        fitted: Any = self
        return fitted.fit(X, progress=progress).labels_


class ClustersWeightedRows(OverRanks):
    """An estimator whose fit gives labels to rows that have weights."""

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> Any:
        """**Collective.** Fit the model, and return the labels of the rows of ``X``."""
        fitted: Any = self
        return fitted.fit(X, sample_weight=sample_weight, progress=progress).labels_


def gathered(model: Any) -> Any:
    """**Collective.** A copy of a fitted model or pipeline in which NumPy arrays replace the global arrays.

    In an SPMD program::

        whole = gathered(model)                     # on all ranks
        if comm.rank == 0:
            pickle.dump(whole, file)                # loads and predicts anywhere

    The arrays of all its steps are gathered on every rank, ``labels_`` included. The model itself is not
    changed.
    """
    if isinstance(model, Array):
        return model.gather()
    if isinstance(model, BaseEstimator):
        twin = object.__new__(type(model))
        twin.__dict__.update({name: gathered(one) for name, one in vars(model).items()})
        return twin
    if type(model) in (list, tuple):
        return type(model)(gathered(one) for one in model)
    if type(model) is dict:
        return {name: gathered(one) for name, one in model.items()}
    return model
