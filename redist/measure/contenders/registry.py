"""Who takes part, by the name on the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from redist.errors import RequestError
from redist.measure.contenders.by_hand import AllReduceByHand, AlltoallwByHand, ReduceScatterByHand
from redist.measure.contenders.contender import Contender
from redist.measure.contenders.naive import GatherAndSlice, JustSlice, ReduceAndSlice
from redist.measure.contenders.ours import AnyArrays, OnlyMessages, OwnBuffers

Ways: TypeAlias = Sequence[type[Contender]]
"""The first that can express a case takes part in it."""

CONTENDERS: Mapping[str, Ways] = {
    "naive": (JustSlice, GatherAndSlice, ReduceAndSlice),
    "by-hand": (AlltoallwByHand, ReduceScatterByHand, AllReduceByHand),
    "redist": (OwnBuffers,),
    "redist-any": (AnyArrays,),
    "redist-mpi": (OnlyMessages,),
}


def chosen(names: Sequence[str], more: Mapping[str, Ways]) -> dict[str, Ways]:
    """The contenders called so; those of ``more`` come last, and all of them.

    >>> list(chosen(["redist", "naive"], {}))
    ['naive', 'redist']
    """
    return {key: ways for key, ways in CONTENDERS.items() if key in names} | dict(more)


def contenders_of(module: str) -> Mapping[str, Ways]:
    """The contenders that a module brings along in ``CONTENDERS``."""
    try:
        return importlib.import_module(module).CONTENDERS
    except ModuleNotFoundError as error:
        raise RequestError(
            f"cannot measure the contenders of {module}: {error}; run in a checkout of redist"
        ) from None
