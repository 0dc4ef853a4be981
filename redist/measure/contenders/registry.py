"""Who takes part, by the name on the command line: redist's contenders, and peers of others.

Peers come from modules with a mapping ``CONTENDERS``, named on the command line:
``redist bench -n 8 --peers my_project.contenders``.
"""

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


def choose_contenders(names: Sequence[str], peers: Mapping[str, Ways]) -> dict[str, Ways]:
    """Choose the contenders called so; the peers come last, and all of them.

    >>> list(choose_contenders(["redist", "naive"], {}))
    ['naive', 'redist']
    """
    return {key: ways for key, ways in CONTENDERS.items() if key in names} | dict(peers)


def load_peers(modules: Sequence[str]) -> dict[str, Ways]:
    """Import the contenders that modules bring along in ``CONTENDERS``."""
    found: dict[str, Ways] = {}
    for module in modules:
        try:
            found |= importlib.import_module(module).CONTENDERS
        except (ImportError, AttributeError) as error:
            raise RequestError(
                f"cannot measure the contenders of {module}: {error}; run where it can be imported"
            ) from None
    return found
