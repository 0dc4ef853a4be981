"""Run a plan."""
