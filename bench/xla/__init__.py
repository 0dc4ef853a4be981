"""Plans beside what XLA compiles for the same redistribution."""
