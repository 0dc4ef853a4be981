"""Plans as values: steps, typing rules, schedules, the memory model and the cost model."""
