"""What is done with a captured program before it runs."""
