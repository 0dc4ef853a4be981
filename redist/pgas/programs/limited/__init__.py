"""Programs within a memory limit: their tasks as a memory graph that is compiled, certified and run."""
