"""The version of redist; the package, its command line and what it measures name it."""

__version__ = "0.2.0"
