"""How good clusters are: scikit-learn's scores for global arrays, the same for every number of ranks.

In an SPMD program::

    from redist.learn.metrics import adjusted_rand_score, silhouette_score

    adjusted_rand_score(y, labels), silhouette_score(x, labels)      # global arrays, or NumPy's
"""

from redist.learn.metrics.comparisons import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    completeness_score,
    contingency_matrix,
    fowlkes_mallows_score,
    homogeneity_completeness_v_measure,
    homogeneity_score,
    mutual_info_score,
    normalized_mutual_info_score,
    pair_confusion_matrix,
    rand_score,
    v_measure_score,
)
from redist.learn.metrics.silhouette import (
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_samples,
    silhouette_score,
)

__all__ = [
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "calinski_harabasz_score",
    "completeness_score",
    "contingency_matrix",
    "davies_bouldin_score",
    "fowlkes_mallows_score",
    "homogeneity_completeness_v_measure",
    "homogeneity_score",
    "mutual_info_score",
    "normalized_mutual_info_score",
    "pair_confusion_matrix",
    "rand_score",
    "silhouette_samples",
    "silhouette_score",
    "v_measure_score",
]
