"""Refits: how long plans take, beside other schedules."""
