"""Counterexamples of wrong variants, shown on real arrays."""
