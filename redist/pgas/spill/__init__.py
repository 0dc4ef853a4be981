"""Arrays put away into a nameless file where a memory limit has no room; they come back when touched."""
