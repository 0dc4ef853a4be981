"""For every differentiable function: how what its results owe becomes what its operands owe."""
