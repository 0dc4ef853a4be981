"""Ranks on several emulated hosts."""
