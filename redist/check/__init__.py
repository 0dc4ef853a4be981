"""Judge a plan: replay it, and prove its memory bound. Shares no code with the synthesizer."""
