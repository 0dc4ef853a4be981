"""Tracing, dry runs and warnings: which moves happen, and which source line caused them."""
