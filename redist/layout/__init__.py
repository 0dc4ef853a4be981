"""Layouts as types: meshes, array types, their text, and what every device holds."""
