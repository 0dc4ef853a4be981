"""Sorting, searching and unique values."""
