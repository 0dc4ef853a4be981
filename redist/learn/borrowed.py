"""Names that scikit-learn does not promise to keep; this is the only module that imports them.

``tests/learn/test_borrowed.py`` checks for each of them in the installed version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sklearn

from redist.learn.working import working

KNOWN = "1.6 to 1.9"
"""The versions that have these names."""

try:
    from sklearn.base import _fit_context
    from sklearn.cluster._agglomerative import _hc_cut as cut_tree
    from sklearn.cluster._bisect_k_means import _BisectingTree as BisectingTree
    from sklearn.cluster._hdbscan._linkage import MST_edge_dtype as EDGE
    from sklearn.cluster._hdbscan._tree import tree_to_labels
    from sklearn.cluster._hdbscan.hdbscan import _OUTLIER_ENCODING as OUTLIERS
    from sklearn.cluster._hdbscan.hdbscan import FAST_METRICS, remap_single_linkage_tree
    from sklearn.cluster._hdbscan.hdbscan import _process_mst as single_linkage_of
    from sklearn.cluster._hierarchical_fast import single_linkage_label
    from sklearn.cluster._kmeans import _mini_batch_step as mini_batch_step
    from sklearn.cluster._optics import _validate_size as check_optics_size
    from sklearn.cluster._spectral import cluster_qr, discretize
    from sklearn.metrics._dist_metrics import METRIC_MAPPING64 as TREE_METRICS
    from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS as BOOLEAN_METRICS
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
except ImportError as problem:
    raise ImportError(
        f"cannot use scikit-learn {sklearn.__version__}: {problem}; versions {KNOWN} are known to work"
    ) from problem

__all__ = [
    "BOOLEAN_METRICS",
    "EDGE",
    "FAST_METRICS",
    "KNOWN",
    "OUTLIERS",
    "TREE_METRICS",
    "BisectingTree",
    "check_optics_size",
    "check_sample_weight",
    "cluster_qr",
    "cut_tree",
    "discretize",
    "fit_context",
    "mini_batch_step",
    "remap_single_linkage_tree",
    "single_linkage_label",
    "single_linkage_of",
    "tree_to_labels",
]

F = TypeVar("F", bound=Callable[..., Any])


def fit_context(*, prefer_skip_nested_validation: bool) -> Callable[[F], F]:
    """Let a method check the parameters of its estimator first, as scikit-learn's own methods do.

    This also applies :func:`~redist.learn.working.working`.
    """
    checked = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
    return lambda method: working(checked(method))
