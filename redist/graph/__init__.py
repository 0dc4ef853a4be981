"""Programs as values: which call needs which, what each makes and moves; as text, JSON and pictures."""
