"""The names of ``sklearn.cluster`` on global arrays: subclasses of its estimators, and functions."""

from redist.learn.cluster.affinity import AffinityPropagation, affinity_propagation
from redist.learn.cluster.agglomerative import (
    AgglomerativeClustering,
    FeatureAgglomeration,
    linkage_tree,
    ward_tree,
)
from redist.learn.cluster.biclusters import SpectralBiclustering, SpectralCoclustering
from redist.learn.cluster.birch import Birch
from redist.learn.cluster.bisecting import BisectingKMeans
from redist.learn.cluster.dbscan import DBSCAN, dbscan
from redist.learn.cluster.hdbscan import HDBSCAN
from redist.learn.cluster.kmeans import KMeans, k_means, kmeans_plusplus
from redist.learn.cluster.mean_shift import MeanShift, estimate_bandwidth, get_bin_seeds, mean_shift
from redist.learn.cluster.minibatch import MiniBatchKMeans
from redist.learn.cluster.optics import (
    OPTICS,
    cluster_optics_dbscan,
    cluster_optics_xi,
    compute_optics_graph,
)
from redist.learn.cluster.spectral import SpectralClustering, spectral_clustering

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OPTICS",
    "AffinityPropagation",
    "AgglomerativeClustering",
    "Birch",
    "BisectingKMeans",
    "FeatureAgglomeration",
    "KMeans",
    "MeanShift",
    "MiniBatchKMeans",
    "SpectralBiclustering",
    "SpectralClustering",
    "SpectralCoclustering",
    "affinity_propagation",
    "cluster_optics_dbscan",
    "cluster_optics_xi",
    "compute_optics_graph",
    "dbscan",
    "estimate_bandwidth",
    "get_bin_seeds",
    "k_means",
    "kmeans_plusplus",
    "linkage_tree",
    "mean_shift",
    "spectral_clustering",
    "ward_tree",
]
