"""Benchmarks: one module per question, shared problems, results checked before they are printed."""
