"""Random redistribution problems, and the check that every plan must pass."""
