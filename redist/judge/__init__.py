"""Everything that can be shown about one plan: replayed, proved, run on random data."""
