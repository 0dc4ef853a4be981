"""Measure what moving arrays costs here: cases, contenders, times, memory; tables, JSON, pictures."""
