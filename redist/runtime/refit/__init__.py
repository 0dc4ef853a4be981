"""Carry out refits: weights from ranks that train to ranks that serve, round by round or straight."""
