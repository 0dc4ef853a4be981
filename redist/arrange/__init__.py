"""The best layout for every intermediate of a program: costs as tables, minimised exactly."""
