"""Run a memory graph on one rank: tasks, moves, loads and stores beside each other, stores for tiles."""
