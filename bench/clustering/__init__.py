"""Clustering beside scikit-learn: on one and two ranks, its memory, other libraries, and on a GPU."""
