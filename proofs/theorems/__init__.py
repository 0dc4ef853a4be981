"""The theorems, one file each."""
