"""Matrices whose rows are cut over ranks: blocks of columns, affinities, eigenvectors, singular vectors."""
