"""Theorems that hold for every size, one file each; ``python -m proofs`` checks them."""
