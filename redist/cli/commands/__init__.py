"""The commands of ``redist``, one file each: its options and its action."""
