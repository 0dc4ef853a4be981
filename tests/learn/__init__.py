"""Clustering on global arrays; needs scikit-learn: make learn has an environment with it."""
