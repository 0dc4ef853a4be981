"""Sets of rows to cluster, made where they lie: every rank makes its own, and nothing moves.

In an SPMD program::

    from redist.learn.datasets import make_blobs, make_moons

    x, y = make_blobs(1_000_000, 8, centers=5, random_state=0, type="{x}, {}")

Names and arguments are those of ``sklearn.datasets``. The values depend only on the seed and on the number
of the row: they are the same for every number of ranks and every type, and differ from scikit-learn's.
"""

from redist.learn.datasets.blocks import make_biclusters, make_checkerboard
from redist.learn.datasets.clouds import make_blobs, make_classification
from redist.learn.datasets.curves import make_circles, make_moons, make_s_curve, make_swiss_roll

__all__ = [
    "make_biclusters",
    "make_blobs",
    "make_checkerboard",
    "make_circles",
    "make_classification",
    "make_moons",
    "make_s_curve",
    "make_swiss_roll",
]
