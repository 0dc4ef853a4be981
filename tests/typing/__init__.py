"""What a user's type checker sees of redist."""
