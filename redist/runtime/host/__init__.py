"""Run the stages of a transfer on arrays in memory."""
