"""The ten kernels of Ziogas et al., "Deinsum: Practically I/O Optimal Multilinear Algebra", scaled down."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.layouts.workload import Aims, Workload, as_new

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
