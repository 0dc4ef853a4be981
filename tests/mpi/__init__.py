"""Tests that run under mpirun; the files test_*.py start them."""
