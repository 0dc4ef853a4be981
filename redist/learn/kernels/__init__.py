"""Loops over the rows of one rank, in C and NumPy, and sums that have the same bits in every order."""
