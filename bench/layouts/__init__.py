"""Whole programs as users write them: eagerly, as programs, with planned layouts, by other libraries."""
