"""The brute-force oracle, and random meshes and types small enough for it."""
