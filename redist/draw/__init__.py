"""Pictures of plans: who holds what, what moves, memory over time; as SVG or as one HTML page."""
