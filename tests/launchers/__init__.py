"""Ranks that other launchers start; what needs one of them runs where it is installed: make launchers."""
