"""Refits: weights of one side to the ranks and layouts of another, as a plan that any transport runs."""
