"""Collective indexing: keys as items for every dim, and the rules that read and write what they name."""
