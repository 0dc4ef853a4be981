"""Layouts of captured programs: calls recorded, planned, and decided on."""
